//! Checks the files that settings of Kubernetes' components name. A component needs such a file when it starts. If the component runs in a
//! pod, it sees only the mounted files and directories.

mod components;

use std::path::Path;

use super::basis::Basis;
use super::{FileAsset, KubeApiServer, Kubelet, Problems};

/// A component, and the files that its settings name.
struct Component<'a> {
    /// The component's name in messages.
    name: &'static str,
    /// The path of the component's settings in the configuration.
    settings: &'static str,
    /// The directory into which a user can put files for the component.
    directory: String,
    /// The host files and directories that the component's pod mounts. `None` if the component does not run in a pod.
    seen: Option<Vec<String>>,
    /// The files that kOps writes for the component.
    own: Vec<String>,
    /// The fields that name a file of the component, each with the path of the file. An empty path names no file.
    named: Vec<(&'static str, &'a str)>,
    /// The fields whose path kOps replaces, each with the user's path and with kOps' path.
    replaced: Vec<(&'static str, &'a str, String)>,
}

/// Adds a problem for each file that is not visible in the component's pod. Adds a warning for each file that neither kOps nor fileAssets
/// write, and for each path that kOps replaces.
pub(super) fn check(
    basis: &Basis<'_>,
    kubelet: Option<&Kubelet>,
    api_server: Option<&KubeApiServer>,
    files: &[FileAsset],
    problems: &mut Problems,
) {
    let plugins = match kubelet {
        Some(kubelet) => kubelet.config.volume_plugin_directory.as_str(),
        None => basis.distribution.volume_plugin_directory,
    };
    let components = [
        api_server.map(|api_server| components::api_server(basis, api_server)),
        components::kube_controller_manager(basis, plugins),
        components::kube_scheduler(basis),
        Some(components::kubelet(basis)),
    ];
    components.iter().flatten().for_each(|component| component.check(files, problems));
}

impl Component<'_> {
    fn check(&self, files: &[FileAsset], problems: &mut Problems) {
        let Component { name, settings, directory, .. } = self;
        // Relative paths are skipped here. `check_audit_paths` rejects relative paths of the API server's audit files.
        for (field, path) in self.named.iter().filter(|(_, path)| path.starts_with('/')) {
            let field = format!("{settings}.{field}");
            if !self.sees(path) {
                problems.add(
                    field,
                    format!(
                        "names {path}, which is not mounted into {name}'s pod, so {name} does not start; use fileAssets to put the file \
                         into {directory}, and set this field to the new path"
                    ),
                );
            } else if !self.own.iter().any(|own| own == path) && !files.iter().any(|file| file.path == *path)
            {
                let effect = match self.seen {
                    Some(_) => "does not start",
                    None => "runs no pods",
                };
                problems.warn(
                    field,
                    format!(
                        "names {path}, but neither fileAssets nor kOps writes this file, and {name} {effect} without it; add it to \
                         fileAssets, unless the machine's image or a hook contains it"
                    ),
                );
            }
        }
        for (field, path, own) in
            self.replaced.iter().filter(|(_, path, own)| !path.is_empty() && path != own)
        {
            problems.warn(
                format!("{settings}.{field}"),
                format!(
                    "names {path}, which {name} does not read, because kOps gives {name} {own} instead; \
                     remove the setting"
                ),
            );
        }
    }

    fn sees(&self, path: &str) -> bool {
        self.seen.as_ref().is_none_or(|seen| seen.iter().any(|place| Path::new(path).starts_with(place)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::resolve::Inputs;
    use crate::resolve::testing::{control_plane, problems};
    use serde_json::Value;

    const API_SERVER: &str = "APIServerConfig.KubeAPIServer";
    const CONTROLLER_MANAGER: &str = "ControlPlaneConfig.KubeControllerManager";
    const SCHEDULER: &str = "ControlPlaneConfig.KubeScheduler";
    const KUBELET: &str = "KubeletConfig";

    /// Returns a change that adds the fields of the YAML text `set` to the settings of a component.
    fn with(settings: &str, set: &str) -> impl FnOnce(&mut Inputs) {
        let (pointer, set) = (format!("/{}", settings.replace('.', "/")), set.to_owned());
        move |inputs| {
            let mut config = serde_json::to_value(&inputs.config).unwrap();
            let more: Value = serde_yaml::from_str(&set).unwrap();
            let settings = config.pointer_mut(&pointer).unwrap().as_object_mut().unwrap();
            settings.extend(more.as_object().unwrap().clone());
            inputs.config = serde_json::from_value(config).unwrap();
        }
    }

    fn warnings(settings: &str, set: &str, files: &str) -> Vec<String> {
        let node = control_plane(|inputs| {
            with(settings, set)(inputs);
            inputs.config.file_assets = serde_yaml::from_str(files).unwrap();
        });
        node.warnings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_file_outside_the_pods_mounts_is_a_problem() {
        for (settings, field, directory) in [
            (API_SERVER, "admissionControlConfigFile", "/srv/kubernetes/kube-apiserver"),
            (API_SERVER, "authenticationTokenWebhookConfigFile", "/srv/kubernetes/kube-apiserver"),
            (API_SERVER, "encryptionProviderConfig", "/srv/kubernetes/kube-apiserver"),
            (CONTROLLER_MANAGER, "tlsCertFile", "/srv/kubernetes/kube-controller-manager"),
            (SCHEDULER, "tlsCertFile", "/srv/kubernetes/kube-scheduler"),
        ] {
            let told = problems(with(settings, &format!("{{{field}: /etc/mine/file}}")));
            let start = format!("{settings}.{field}: names /etc/mine/file");
            assert!(told.starts_with(&start) && told.contains(&format!("into {directory}, and")), "{told}");
            assert_eq!(told.lines().count(), 1, "{told}");
        }
    }

    #[test]
    fn a_file_without_a_writer_gives_a_warning() {
        for (settings, field, path, name) in [
            (API_SERVER, "auditPolicyFile", "/etc/audit/policy.yaml", "the API server"),
            (CONTROLLER_MANAGER, "tlsCertFile", "/etc/ssl/mine.crt", "kube-controller-manager"),
            (
                CONTROLLER_MANAGER,
                "tlsCertFile",
                "/srv/kubernetes/kube-controller-manager/server.crt",
                "kube-controller-manager",
            ),
            (SCHEDULER, "tlsCertFile", "/srv/kubernetes/kube-scheduler/mine.crt", "kube-scheduler"),
            (KUBELET, "kubeconfigPath", "/etc/kubelet.yaml", "kubelet"),
            (KUBELET, "resolvConf", "/etc/kubelet/resolv.conf", "kubelet"),
        ] {
            let set = format!("{{{field}: {path}}}");
            let told = warnings(settings, &set, "[]");
            let start = format!("{settings}.{field}: names {path}, but neither fileAssets nor kOps writes");
            assert!(told.len() == 1 && told[0].starts_with(&start), "{told:?}");
            assert!(told[0].contains(&format!("{name} ")), "{told:?}");
            assert_eq!(warnings(settings, &set, &format!("[{{path: {path}, content: x}}]")), [""; 0]);
        }
        let key = "{tlsCertFile: /etc/ssl/mine.crt, tlsPrivateKeyFile: /etc/ssl/mine.key}";
        let told = warnings(CONTROLLER_MANAGER, key, "[{path: /etc/ssl/mine.crt, content: x}]");
        assert!(
            told.len() == 1 && told[0].contains("tlsPrivateKeyFile: names /etc/ssl/mine.key"),
            "{told:?}"
        );
    }

    #[test]
    fn files_of_kops_and_of_the_machine_are_accepted() {
        for (settings, set) in [
            (
                API_SERVER,
                "{clientCAFile: /srv/kubernetes/ca.crt, tokenAuthFile: /srv/kubernetes/kube-apiserver/known_tokens.csv}",
            ),
            (CONTROLLER_MANAGER, "{rootCAFile: /srv/kubernetes/ca.crt}"),
            (KUBELET, "{kubeconfigPath: /var/lib/kubelet/kubeconfig, resolvConf: ''}"),
            (KUBELET, "{resolvConf: /run/systemd/resolve/resolv.conf}"),
            (KUBELET, "{resolvConf: /etc/resolv.conf, bootstrapKubeconfig: /etc/bootstrap}"),
        ] {
            assert_eq!(warnings(settings, set, "[]"), [""; 0], "{set}");
        }
    }

    #[test]
    fn a_path_that_kops_replaces_gives_a_warning() {
        for (settings, field, own) in [
            (API_SERVER, "etcdCAFile", "/srv/kubernetes/kube-apiserver/etcd-ca.crt"),
            (API_SERVER, "kubeletClientKey", "/srv/kubernetes/kube-apiserver/kubelet-api.key"),
            (API_SERVER, "proxyClientCertFile", "/srv/kubernetes/kube-apiserver/apiserver-aggregator.crt"),
            (
                API_SERVER,
                "requestheaderClientCAFile",
                "/srv/kubernetes/kube-apiserver/apiserver-aggregator-ca.crt",
            ),
            (API_SERVER, "tlsCertFile", "/srv/kubernetes/kube-apiserver/server.crt"),
            (API_SERVER, "tlsPrivateKeyFile", "/srv/kubernetes/kube-apiserver/server.key"),
            (CONTROLLER_MANAGER, "rootCAFile", "/srv/kubernetes/ca.crt"),
            (SCHEDULER, "authorizationKubeconfig", "/var/lib/kube-scheduler/kubeconfig"),
            (KUBELET, "clientCAFile", "/srv/kubernetes/ca.crt"),
            (KUBELET, "tlsCertFile", "/srv/kubernetes/kubelet-server.crt"),
            (KUBELET, "tlsPrivateKeyFile", "/srv/kubernetes/kubelet-server.key"),
        ] {
            let told =
                warnings(settings, &format!("{{{field}: /etc/mine}}"), "[{path: /etc/mine, content: x}]");
            let start = format!("{settings}.{field}: names /etc/mine, which ");
            let reason = " does not read, because kOps gives ";
            assert!(told.len() == 1 && told[0].starts_with(&start) && told[0].contains(reason), "{told:?}");
            assert!(told[0].contains(own), "{told:?}");
        }
    }
}
