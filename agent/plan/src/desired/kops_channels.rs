//! kops-channels: the static pod that applies the cluster's addons. kOps writes the pod's manifest. If kops-agent's own service replaces
//! the pod, the service has the pod's user and kubeconfig. Up to kOps 1.35 protokube applies addons instead, as root.
//!
//! Source: nodeup/pkg/model/channels.go.

use serde_json::json;

use crate::resolve::{NodeConfig, StoredPod};
use crate::resource::{DesiredState, File, Kind, Mode, ResourceId, User};
use kops_agent_spec::go_yaml;
use kops_agent_spec::redaction::LOGIN_VARIABLES;

use super::paths::{self, KOPS_CHANNELS_KUBECONFIG};
use super::{certificates, pod, protokube};

const POD: &str = "kops-channels";
/// The user that runs the pod or the service (pkg/wellknownusers).
const USER: &str = "kops-channels";
const UID: u32 = 10013;
const HOME: &str = "/var/lib/kops";
/// The user as which the program that applies addons authenticates to the API server. Its client certificate has the same name.
const IDENTITY: &str = "kops";

/// The program that applies the cluster's addons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AppliedBy {
    /// kOps' own program: the pod kops-channels or protokube ([`super::protokube`]), depending on the release.
    Kops,
    /// kops-agent's own service ([`super::addons_service`]).
    Service,
}

/// Whether a resource belongs to a program of kOps that applies addons. This program must not run together with kops-agent's service,
/// because both would apply addons and label the node.
pub(crate) fn applies_addons(id: &ResourceId) -> bool {
    let is = |(kind, name): (Kind, &str)| id.kind == kind && id.name == name;
    protokube::PARTS.into_iter().any(is) || is((Kind::File, &paths::manifest(POD)))
}

/// Adds the user and the kubeconfig. Also adds the pod, unless kops-agent's service replaces the pod. Adds nothing if the machine is not a
/// control-plane machine, or if protokube applies addons.
pub(super) fn add(node: &NodeConfig, by: AppliedBy, state: &mut DesiredState) {
    let pod = node.kops_channels.as_ref().filter(|_| by == AppliedBy::Kops);
    let runs_as_the_user = pod.is_some() || by == AppliedBy::Service;
    if !node.is_control_plane() || !runs_as_the_user {
        return;
    }
    state.add(User { name: USER.into(), uid: UID, home: HOME.into(), shell: "/sbin/nologin".into() });
    add_kubeconfig(node, USER, state);
    if let Some(stored) = pod {
        let file = pod::manifest_file(POD, manifest(node, stored));
        // Upstream lets all users read the manifest. kops-agent makes a manifest with credentials private, because only kubelet reads it,
        // as root.
        state.add(if is_given_login(stored) { file.mode(Mode::PRIVATE) } else { file });
    }
}

/// Whether kOps put credentials for the cloud or the store into the pod. Checks only the names of the pod's variables, not their values.
fn is_given_login(stored: &StoredPod) -> bool {
    let variables = stored.containers().iter().filter_map(|container| container["env"].as_array()).flatten();
    let mut names = variables.filter_map(|variable| variable["name"].as_str());
    names.any(|name| LOGIN_VARIABLES.contains(&name))
}

/// Adds the kubeconfig for applying addons. Only `owner` can read it.
pub(super) fn add_kubeconfig(node: &NodeConfig, owner: &str, state: &mut DesiredState) {
    let subject = certificates::user_in_group(IDENTITY, "system:masters");
    let kubeconfig = certificates::issued_kubeconfig(state, node, IDENTITY, subject);
    state.add(File::new(KOPS_CHANNELS_KUBECONFIG, kubeconfig).mode(Mode(0o400)).owned_by(owner));
}

/// The pod's manifest, with SELinux options if this node uses SELinux. kOps writes one pod for all instance groups, but SELinux
/// can differ between groups.
fn manifest(node: &NodeConfig, stored: &StoredPod) -> String {
    match pod::unconfined_selinux_options(node) {
        None => stored.text().to_owned(),
        Some(options) => {
            go_yaml::value_to_string(&stored.with_security_context("seLinuxOptions", json!(options)))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::resolve::testing::control_plane;
    use kops_agent_spec::ContainerdConfig;

    use super::*;

    fn with_selinux(on: bool) -> NodeConfig {
        control_plane(|inputs| {
            let containerd: &mut ContainerdConfig = inputs.config.containerd_config.as_mut().unwrap();
            containerd.selinux_enabled = on;
        })
    }

    #[test]
    fn the_pod_has_the_unchanged_text_of_the_store() {
        let node = with_selinux(false);
        let stored = node.kops_channels.as_ref().unwrap();
        assert_eq!(manifest(&node, stored), node.manifests[&node.config.channels_manifest]);
    }

    #[test]
    fn only_root_reads_a_manifest_with_credentials() {
        let mode_with = |variable: serde_json::Value| {
            let node = control_plane(|inputs| {
                let url = inputs.config.channels_manifest.clone();
                let pod = json!({"kind": "Pod", "spec": {"containers": [{"name": "a", "env": [variable]}]}});
                inputs.manifests.insert(url, pod.to_string());
            });
            let mut state = DesiredState::default();
            add(&node, AppliedBy::Kops, &mut state);
            let path = "/etc/kubernetes/manifests/kops-channels.manifest";
            let file = state.get(&ResourceId::new(Kind::File, path)).unwrap();
            serde_json::to_value(file).unwrap()["mode"].clone()
        };
        assert_eq!(mode_with(json!({"name": "HCLOUD_TOKEN", "value": "t"})), "0600");
        assert_eq!(mode_with(json!({"name": "AWS_REGION", "value": "eu-west-1"})), "0644");
    }

    #[test]
    fn selinux_options_let_the_pod_read_its_kubeconfig() {
        let node = with_selinux(true);
        let manifest = manifest(&node, node.kops_channels.as_ref().unwrap());
        assert!(manifest.contains("    seLinuxOptions:\n      level: s0\n      type: spc_t\n"), "{manifest}");
        assert!(manifest.contains("name: stored\n"), "{manifest}");
    }
}
