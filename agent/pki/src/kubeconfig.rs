//! Kubeconfigs that authenticate with a certificate.
//!
//! The names of the cluster and the context are upstream's (upup/pkg/fi/nodeup/nodetasks/kubeconfig.go).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::pem::PemPair;

const CERTIFICATE: &str = "client-certificate-data: ";
const KEY: &str = "client-key-data: ";

/// A kubeconfig for this API server and user, with the certificate, the key and the authority embedded.
pub fn write(server: &str, user: &str, ca: &str, certificate: &str, private_key: &str) -> String {
    // Every JSON string is also a YAML string, so JSON quoting is safe here.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let (server, user) = (quoted(server), quoted(user));
    let (ca, certificate, key) =
        (STANDARD.encode(ca), STANDARD.encode(certificate), STANDARD.encode(private_key));
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: local
  cluster:
    certificate-authority-data: {ca}
    server: {server}
users:
- name: {user}
  user:
    {CERTIFICATE}{certificate}
    {KEY}{key}
contexts:
- name: service-account-context
  context:
    cluster: local
    user: {user}
current-context: service-account-context
"
    )
}

/// Reads the certificate and key from a kubeconfig of the agent or of upstream's nodeup. `None` if one of them is missing or
/// unreadable.
pub fn read(text: &str) -> Option<PemPair> {
    let field = |name: &str| {
        let encoded = text.lines().find_map(|line| line.trim_start().strip_prefix(name))?;
        String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()
    };
    Some(PemPair { certificate: field(CERTIFICATE)?, private_key: field(KEY)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_a_kubeconfig_returns_the_written_pair() {
        let text = write("https://127.0.0.1", "kubelet", "CA", "CERT", "KEY");
        assert_eq!(read(&text), Some(PemPair { certificate: "CERT".into(), private_key: "KEY".into() }));
        assert!(text.contains("\n    certificate-authority-data: Q0E=\n    server: \"https://127.0.0.1\"\n"));
        assert_eq!(read("users: []\n"), None);
        assert_eq!(read(&text.replace("Q0VSVA", "!")), None);
    }
}
