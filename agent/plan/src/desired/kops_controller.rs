//! Files for kops-controller's pods on a control-plane machine: its serving certificate, and the keypairs that sign for
//! joining nodes.
//!
//! Source: nodeup/pkg/model/kops_controller.go.

use crate::resolve::{KUBERNETES_CA, NodeConfig};
use crate::resource::{CertificateType, Content, DesiredState, Directory, File, Mode, User};
use kops_agent_cluster::bootstrap::server_name;
use kops_agent_spec::go_yaml;

use super::certificates;

/// kops-controller's user on the machine (pkg/wellknownusers). Its certificate has this name too.
pub(super) const NAME: &str = "kops-controller";
const UID: u32 = 10011;
pub(super) const DIRECTORY: &str = "/etc/kubernetes/kops-controller";
/// Name of a file in kops-controller's directory. Control-plane mode accepts node certificates that the authorities in this file signed.
/// Upstream has no such file.
pub const NODE_AUTHORITIES: &str = "kubernetes-ca-trusted.crt";

/// On a control-plane machine, adds the user and the files of kops-controller.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    if !node.is_control_plane() {
        return;
    }
    state.add(User { name: NAME.into(), uid: UID, home: String::new(), shell: "/sbin/nologin".into() });
    state.add(Directory::new(DIRECTORY));
    add_serving_certificate(node, state);
    for keyset in signers(node) {
        let path = |suffix: &str| format!("{DIRECTORY}/{keyset}.{suffix}");
        state.add(certificates::certificate_file(node, keyset, &path("crt")).owned_by(NAME));
        state.add(certificates::private_key_file(node, keyset, &path("key")).owned_by(NAME));
    }
    let keypair_ids = go_yaml::to_string(&node.config.keypair_ids);
    state.add(
        File::text(format!("{DIRECTORY}/keypair-ids.yaml"), keypair_ids).mode(Mode::PRIVATE).owned_by(NAME),
    );
}

fn add_serving_certificate(node: &NodeConfig, state: &mut DesiredState) {
    let mut names = vec![server_name(node.cluster_name())];
    names.extend(node.boot.api_server_ips.iter().cloned());
    state.add(certificates::issued(
        node,
        NAME,
        KUBERNETES_CA,
        CertificateType::Server,
        certificates::user(NAME),
        names,
    ));
    let path = |suffix: &str| format!("{DIRECTORY}/{NAME}.{suffix}");
    state.add(File::new(path("crt"), Content::Certificate(NAME.into())).owned_by(NAME));
    state.add(File::new(path("key"), Content::PrivateKey(NAME.into())).mode(Mode::PRIVATE).owned_by(NAME));
}

/// The keysets that sign certificates for nodes. Cilium's etcd has a separate authority for its clients.
fn signers(node: &NodeConfig) -> impl Iterator<Item = &'static str> {
    [KUBERNETES_CA].into_iter().chain(node.config.use_cilium_etcd.then_some("etcd-clients-ca-cilium"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use crate::resolve::testing::{api_server, control_plane, fill_store};
    use crate::resource::{Kind, ResourceId};

    use super::*;

    fn resource(state: &DesiredState, kind: Kind, name: &str) -> Value {
        serde_json::to_value(state.get(&ResourceId::new(kind, name)).unwrap()).unwrap()
    }

    #[test]
    fn kops_controller_gets_ciliums_signer_and_the_apis_addresses() {
        let node = control_plane(|inputs| {
            inputs.boot.api_server_ips = vec!["10.0.0.9".into()];
            inputs.config.use_cilium_etcd = true;
            inputs.config.keypair_ids.insert("etcd-clients-ca-cilium".into(), "9".into());
            fill_store(inputs);
        });
        let mut state = DesiredState::default();
        add(&node, &mut state);
        let names = &resource(&state, Kind::Certificate, NAME)["sans"];
        assert_eq!(names, &json!(["kops-controller.internal.c.example.com", "10.0.0.9"]));
        for keyset in ["kubernetes-ca", "etcd-clients-ca-cilium"] {
            let key = resource(&state, Kind::File, &format!("{DIRECTORY}/{keyset}.key"));
            assert_eq!((&key["owner"], &key["mode"]), (&json!(NAME), &json!("0600")));
            let certificate = resource(&state, Kind::File, &format!("{DIRECTORY}/{keyset}.crt"));
            assert!(certificate["content"]["text"].as_str().unwrap().starts_with("-----BEGIN CERTIFICATE"));
        }
        let ids = resource(&state, Kind::File, &format!("{DIRECTORY}/keypair-ids.yaml"));
        assert!(ids["content"]["text"].as_str().unwrap().contains("kubernetes-ca: \"7\"\n"), "{ids}");
    }

    #[test]
    fn a_dedicated_api_server_does_not_get_it() {
        let mut state = DesiredState::default();
        add(&api_server(|_| {}), &mut state);
        assert!(state.is_empty());
    }
}
