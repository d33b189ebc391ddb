//! Files that not all may read, and that are nothing but a secret: what a user writes by the cluster spec has no names, often.

use super::files::{self, Named};

/// Private files that kOps makes and that have no secrets.
const OF_KOPS: [&str; 3] = [
    "/etc/kubernetes/authn.config",
    "/etc/kubernetes/kops-controller/keypair-ids.yaml",
    "/var/lib/kube-scheduler/config.yaml",
];
/// How paths of other such files end: certificates, public keys, and what says by names what in it is secret.
const OF_KOPS_ENDS: [&str; 5] = [".crt", ".pub", "/cert.pem", "kubeconfig", "/.kube/config"];
const LOGS: &str = "/var/log/";

/// Whether all of a private file is secret: it is a token on a line, or has no names that say what is, and is none that kOps
/// makes for a component.
pub fn is_nothing_but_secret(path: &str, text: &str) -> bool {
    let is_of_kops = OF_KOPS.contains(&path)
        || path.starts_with(LOGS)
        || OF_KOPS_ENDS.iter().any(|end| path.ends_with(end));
    let names_secrets = || files::values(text).iter().any(Named::is_named_secret);
    !is_of_kops && (text.trim().lines().count() <= 1 || !names_secrets())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_names_is_secret_as_a_whole() {
        let whole = |path, text| is_nothing_but_secret(path, text);
        assert!(whole("/etc/app/token", "hunter2\n") && whole("/etc/app/token", "password = hunter2\n"));
        assert!(whole("/etc/app/lines", "hunter2\ncorrecthorse\n"));
        assert!(!whole("/etc/app/named", "user = robot\npassword = hunter2\n"));
        for path in
            ["/srv/kubernetes/ca.crt", "/var/log/kube-proxy.log", "/var/lib/kube-scheduler/config.yaml"]
        {
            assert!(!whole(path, "hunter2\n"), "{path}");
        }
    }
}
