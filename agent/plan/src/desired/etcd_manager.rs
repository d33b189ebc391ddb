//! etcd-manager: its pods, as kOps wrote them, and the authorities that sign etcd's certificates.
//!
//! Source: nodeup/pkg/model/manifests.go and etcd_manager_tls.go.

use crate::resolve::{NodeConfig, etcd_manager_authorities};
use crate::resource::{DesiredState, File, Mode};

use super::{certificates, pod};

/// Adds the pods and the keys of every etcd cluster with a member on this control-plane machine.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    if !node.is_control_plane() {
        return;
    }
    for url in &node.config.etcd_manifests {
        if let Some(manifest) = node.manifests.get(url) {
            let file = url.rsplit('/').next().unwrap_or(url);
            let name = file.rsplit_once('.').map_or(file, |(name, _)| name);
            state.add(pod::manifest_file(&format!("etcd-{name}"), manifest.clone()).mode(Mode(0o440)));
        }
    }
    for cluster in &node.config.etcd_cluster_names {
        let directory = format!("/etc/kubernetes/pki/etcd-manager-{cluster}");
        for (file, keyset) in etcd_manager_authorities(cluster) {
            state.add(File::text(format!("{directory}/{file}.crt"), node.ca(&keyset)));
            state.add(certificates::private_key_file(node, &keyset, &format!("{directory}/{file}.key")));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use crate::resolve::testing::{api_server, control_plane, fill_store};
    use crate::resource::{Kind, ResourceId};

    use super::*;

    fn state_of(node: &NodeConfig) -> DesiredState {
        let mut state = DesiredState::default();
        add(node, &mut state);
        state
    }

    fn file(state: &DesiredState, path: &str) -> Value {
        serde_json::to_value(state.get(&ResourceId::new(Kind::File, path)).unwrap()).unwrap()
    }

    #[test]
    fn etcd_pods_have_the_unchanged_text_of_the_store() {
        let node = control_plane(|_| {});
        let manifest = file(&state_of(&node), "/etc/kubernetes/manifests/etcd-main.manifest");
        assert_eq!(manifest["content"]["text"], node.manifests[&node.config.etcd_manifests[0]].as_str());
        assert_eq!(manifest["mode"], "0440");
    }

    #[test]
    fn etcd_clients_share_an_authority_except_ciliums() {
        let node = control_plane(|inputs| {
            inputs.config.etcd_cluster_names = ["main", "events", "cilium"].map(str::to_owned).into();
            for keyset in ["etcd-clients-ca-cilium", "etcd-manager-ca-cilium", "etcd-manager-ca-events"] {
                inputs.config.keypair_ids.insert(keyset.into(), "9".into());
            }
            for keyset in ["etcd-peers-ca-cilium", "etcd-peers-ca-events"] {
                inputs.config.keypair_ids.insert(keyset.into(), "9".into());
            }
            fill_store(inputs);
        });
        let state = state_of(&node);
        let key = |cluster: &str, name: &str| {
            let key = file(&state, &format!("/etc/kubernetes/pki/etcd-manager-{cluster}/{name}.key"));
            assert_eq!(key["mode"], "0600");
            key["content"]["secretText"][0]["keysetPrivateKey"].clone()
        };
        assert_eq!(key("events", "etcd-clients-ca"), json!({"keyset": "etcd-clients-ca", "id": "7"}));
        assert_eq!(key("cilium", "etcd-clients-ca"), json!({"keyset": "etcd-clients-ca-cilium", "id": "9"}));
        assert_eq!(key("cilium", "etcd-peers-ca"), json!({"keyset": "etcd-peers-ca-cilium", "id": "9"}));
        let certificate = file(&state, "/etc/kubernetes/pki/etcd-manager-main/etcd-clients-ca.crt");
        assert_eq!(
            (&certificate["content"]["text"], &certificate["mode"]),
            (&json!("ETCD CA\\n"), &json!("0644"))
        );
    }

    #[test]
    fn a_dedicated_api_server_does_not_get_it() {
        assert!(state_of(&api_server(|_| {})).is_empty());
    }
}
