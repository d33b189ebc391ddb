//! Files with which a machine trusts the cluster, and pulls from registries that require a password.
//!
//! Source: nodeup/pkg/model/secrets.go.

use crate::resolve::{KUBERNETES_CA, NodeConfig};
use crate::resource::{Content, DesiredState, File, Mode, SecretPiece};

use super::paths;

const DOCKER_CONFIG: &str = "dockerconfig";

/// Adds the certificates of the cluster's CA, and the passwords for registries if the cluster has any.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    state
        .add(File::text(paths::kubernetes_ca(node.distribution), node.ca(KUBERNETES_CA)).mode(Mode::PRIVATE));
    if node.secret_names.contains(DOCKER_CONFIG) {
        let content = Content::SecretText(vec![SecretPiece::Secret(DOCKER_CONFIG.into())]);
        state.add(File::new("/root/.docker/config.json", content).mode(Mode::PRIVATE));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::resolve::testing::control_plane;
    use crate::resource::{Kind, ResourceId};

    use super::*;

    #[test]
    fn registry_passwords_are_added_if_the_cluster_has_any() {
        let id = ResourceId::new(Kind::File, "/root/.docker/config.json");
        let mut state = DesiredState::default();
        add(&control_plane(|_| {}), &mut state);
        assert_eq!((state.len(), state.get(&id)), (1, None));
        let node = control_plane(|inputs| {
            inputs.secret_names.insert(DOCKER_CONFIG.into());
        });
        add(&node, &mut state);
        let file = serde_json::to_value(state.get(&id).unwrap()).unwrap();
        assert_eq!(file["content"], serde_json::json!({"secretText": [{"secret": "dockerconfig"}]}));
        assert_eq!(file["mode"], "0600");
    }
}
