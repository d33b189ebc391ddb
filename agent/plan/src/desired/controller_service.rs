//! kops-agent's control-plane mode as a service of a control-plane machine, for clusters that use this mode instead of kOps'
//! kops-controller. Adds the unit of the service, its kubeconfig, its configuration, and a link to its keys.
//!
//! kOps' pods mount the machine's `/etc/kubernetes/kops-controller` at its subdirectory `pki`, and their configuration
//! names the keys by paths below `pki`. A link `pki` to the directory itself makes those paths valid outside the pod
//! too.

use crate::resolve::{KUBERNETES_CA, NodeConfig};
use crate::resource::{DesiredState, File, Mode, Symlink, Unit};

use super::{certificates, kops_controller, own_service};

pub const UNIT: &str = "kops-agent-controller.service";
/// The file with the configuration of the service. kOps wrote this configuration for its own kops-controller.
pub const CONF: &str = "/etc/kubernetes/kops-controller/config.yaml";
pub const KUBECONFIG: &str = "/etc/kubernetes/kops-controller/kubeconfig";
const UNIT_TEXT: &str = include_str!("../../../../units/kops-agent-controller.service");

/// The account to which kOps grants the rights of kops-controller
/// (upup/models/cloudup/resources/addons/kops-controller.addons.k8s.io/k8s-1.16.yaml.template).
const IDENTITY: &str = "system:serviceaccount:kube-system:kops-controller";
const CERTIFICATE: &str = "kops-controller-client";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerService {
    /// kops-controller's `config.yaml`, as kOps wrote it ([`crate::derive::kops_controller_config`]).
    pub options: String,
    pub program: String,
    /// Whether machines bootstrap from the service ([`kops_agent_cluster::takeover::serves_machines`]).
    pub serves_machines: bool,
}

pub(super) fn add(node: &NodeConfig, service: &ControllerService, state: &mut DesiredState) {
    if !node.is_control_plane() {
        return;
    }
    let path = |file: &str| format!("{}/{file}", kops_controller::DIRECTORY);
    state.add(File::text(CONF, &service.options).owned_by(kops_controller::NAME));
    let identity = certificates::user(IDENTITY);
    let content = certificates::issued_kubeconfig(state, node, CERTIFICATE, identity);
    state.add(File::new(KUBECONFIG, content).mode(Mode(0o400)).owned_by(kops_controller::NAME));
    // The service trusts the same authorities as the API server: during a CA rotation, nodes still have certificates of
    // the previous CA.
    state.add(
        File::text(path(kops_controller::NODE_AUTHORITIES), node.ca(KUBERNETES_CA))
            .owned_by(kops_controller::NAME),
    );
    state.add(Symlink { path: path("pki"), target: ".".into() });
    let text = own_service::unit_text(node, UNIT_TEXT, &service.program);
    state.add(Unit::new(UNIT, text).restarted_by_files([CONF, KUBECONFIG]));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use crate::desired::paths::PACKAGED_PROGRAM;
    use crate::desired::{Services, desired_with};
    use crate::resolve::testing::{api_server, control_plane};
    use crate::resource::{Kind, ResourceId};

    use super::*;

    fn service() -> ControllerService {
        ControllerService {
            options: "{\"clusterName\":\"c\"}".into(),
            program: "/opt/agent".into(),
            serves_machines: true,
        }
    }

    #[test]
    fn the_service_uses_kops_paths_and_kops_user() {
        let mut state = DesiredState::default();
        add(&control_plane(|_| {}), &service(), &mut state);
        let get = |kind, name: &str| -> Value {
            serde_json::to_value(state.get(&ResourceId::new(kind, name)).unwrap()).unwrap()
        };
        assert_eq!(
            get(Kind::File, "/etc/kubernetes/kops-controller/config.yaml")["content"]["text"],
            service().options.as_str()
        );
        let kubeconfig = get(Kind::File, "/etc/kubernetes/kops-controller/kubeconfig");
        assert_eq!((&kubeconfig["mode"], &kubeconfig["owner"]), (&json!("0400"), &json!("kops-controller")));
        assert_eq!(get(Kind::Certificate, CERTIFICATE)["subject"]["commonName"], IDENTITY);
        let trusted = get(Kind::File, "/etc/kubernetes/kops-controller/kubernetes-ca-trusted.crt");
        assert_eq!(trusted["content"]["text"], control_plane(|_| {}).ca(KUBERNETES_CA));
        assert_eq!(get(Kind::Symlink, "/etc/kubernetes/kops-controller/pki")["target"], ".");
        let unit = get(Kind::Unit, UNIT)["text"].as_str().unwrap().to_owned();
        assert!(unit.contains("ExecStart=/opt/agent controller --conf /etc/kubernetes/"), "{unit}");
        assert!(!unit.contains(PACKAGED_PROGRAM), "{unit}");
    }

    #[test]
    fn the_bootstrap_name_stays_published_without_kops_own_pods() {
        const NAMES: &str = "dns.alpha.kubernetes.io/internal";
        let published = |node: &NodeConfig, service: Option<&ControllerService>| {
            let services = Services { controller: service, ..Services::default() };
            let state = desired_with(node, services).unwrap();
            let manifest = ResourceId::new(Kind::File, "/etc/kubernetes/manifests/kube-apiserver.manifest");
            let manifest = serde_json::to_value(state.get(&manifest).unwrap()).unwrap();
            let manifest: Value =
                serde_yaml::from_str(manifest["content"]["text"].as_str().unwrap()).unwrap();
            manifest["metadata"]["annotations"][NAMES].clone()
        };
        let both = json!("api.internal.c.example.com,kops-controller.internal.c.example.com");
        let only_the_api = json!("api.internal.c.example.com");
        let node = control_plane(|_| {});
        assert_eq!(published(&node, Some(&service())), both);
        assert_eq!(published(&node, None), only_the_api);
        let idle = ControllerService { serves_machines: false, ..service() };
        assert_eq!(published(&node, Some(&idle)), only_the_api, "machines ask kOps' own pods");
        // A dedicated API server runs no bootstrap server.
        assert_eq!(published(&api_server(|_| {}), Some(&service())), only_the_api);
    }

    #[test]
    fn a_dedicated_api_server_does_not_get_it() {
        let mut state = DesiredState::default();
        add(&api_server(|_| {}), &service(), &mut state);
        assert!(state.is_empty());
    }
}
