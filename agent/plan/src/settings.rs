//! Finds the program whose default applies to a setting that the node does not set.

use std::iter::once;

use kops_agent_spec::{
    KubeAPIServerConfig, KubeControllerManagerConfig, KubeProxyConfig, KubeSchedulerConfig,
    KubeletConfigSpec, field_names,
};

use crate::resolve::NodeConfig;

/// A sentence that tells the user that a flag (`--max-pods`) or field (`maxPods`) is not set, and which programs' defaults apply. `None` if
/// no program of this node has the flag or field.
pub fn not_set(question: &str, node: &NodeConfig) -> Option<String> {
    let kubelet = once(("kubelet", field_names::<KubeletConfigSpec>()));
    let proxy = node.kube_proxy.as_ref().map(|_| ("kube-proxy", field_names::<KubeProxyConfig>()));
    let api_server =
        node.api_server.as_ref().map(|_| ("kube-apiserver", field_names::<KubeAPIServerConfig>()));
    let control_plane = node.is_control_plane().then(|| {
        [
            ("kube-controller-manager", field_names::<KubeControllerManagerConfig>()),
            ("kube-scheduler", field_names::<KubeSchedulerConfig>()),
        ]
    });
    let wanted = plain(question);
    let programs: Vec<&str> = kubelet
        .chain(proxy)
        .chain(api_server)
        .chain(control_plane.into_iter().flatten())
        .filter(|(_, fields)| fields.iter().any(|field| plain(field) == wanted))
        .map(|(program, _)| program)
        .collect();
    match programs.as_slice() {
        [] => None,
        [program] => Some(format!("{question} is not set; {program}'s default applies")),
        programs => Some(format!("{question} is not set; the defaults of {} apply", programs.join(" and "))),
    }
}

/// Converts a name to lower case with only letters and digits. A flag and its field have the same result.
fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_ascii_alphanumeric()).map(|c| c.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve::testing::{api_server, control_plane};

    #[test]
    fn a_setting_that_nothing_sets_names_the_program_whose_default_applies() {
        let (api_server, control_plane) = (api_server(|_| {}), control_plane(|_| {}));
        let told = |question: &str, node| not_set(question, node).unwrap_or_default();
        for question in ["--max-pods", "maxPods"] {
            assert_eq!(
                told(question, &api_server),
                format!("{question} is not set; kubelet's default applies")
            );
        }
        let question = "--attach-detach-reconcile-sync-period";
        assert_eq!(not_set(question, &api_server), None, "no controller manager runs there");
        assert_eq!(
            told(question, &control_plane),
            format!("{question} is not set; kube-controller-manager's default applies")
        );
        assert_eq!(not_set("--no-such-flag", &control_plane), None);
    }
}
