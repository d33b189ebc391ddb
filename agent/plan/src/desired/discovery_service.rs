//! The registration of a control-plane machine with the cluster's hosted discovery service.
//!
//! Source: nodeup/pkg/model/discovery_service.go and
//! upup/pkg/fi/nodeup/nodetasks/discovery_service_register.go.

use serde_json::json;

use crate::resolve::{DISCOVERY_CA, DiscoveryService, NodeConfig};
use crate::resource::{CertificateType, DesiredState, DiscoveryRegistration};

use super::certificates;

const CERTIFICATE: &str = "discovery-service-client";

/// Adds the registration and its client certificate, if the cluster has a discovery service.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    let Some(service) = &node.discovery_service else { return };
    let name = &node.node_name;
    state.add(certificates::issued(
        node,
        CERTIFICATE,
        DISCOVERY_CA,
        CertificateType::Client,
        certificates::user(name),
        vec![name.clone()],
    ));
    state.add(DiscoveryRegistration {
        name: "register".into(),
        url: service.url.clone(),
        certificate: CERTIFICATE.into(),
        object: object(node, service),
    });
}

/// This node's DiscoveryEndpoint, as JSON. Its name is the node's name. Its namespace is the cluster's name
/// with `-` for each `.`.
fn object(node: &NodeConfig, service: &DiscoveryService) -> String {
    let object = json!({
        "apiVersion": "discovery.kops.k8s.io/v1alpha1",
        "kind": "DiscoveryEndpoint",
        "metadata": { "name": node.node_name, "namespace": node.boot.cluster_name.replace('.', "-") },
        "spec": { "oidc": { "keys": service.keys } },
    });
    object.to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::resolve::testing::{RSA_CERTIFICATE, control_plane, keyset_of, problems};
    use crate::resource::{Kind, ResourceId};
    use kops_agent_spec::DiscoveryServiceOptions;

    use super::*;

    #[test]
    fn a_machine_registers_service_account_keys_under_its_own_name() {
        let node = control_plane(|inputs| {
            inputs.config.discovery_service =
                Some(DiscoveryServiceOptions { url: "https://discovery.example.com/u".into() });
            inputs.config.keypair_ids.insert(DISCOVERY_CA.into(), "3".into());
            let keyset = keyset_of(DISCOVERY_CA, &[("3", RSA_CERTIFICATE, "")]);
            inputs.keysets.insert(DISCOVERY_CA.into(), keyset);
        });
        let mut state = DesiredState::default();
        add(&node, &mut state);
        let certificate = state.get(&ResourceId::new(Kind::Certificate, CERTIFICATE)).unwrap();
        let certificate = serde_json::to_value(certificate).unwrap();
        assert_eq!(certificate["sans"], json!(["node-1"]));
        assert_eq!((&certificate["signer"], &certificate["keypairId"]), (&json!(DISCOVERY_CA), &json!("3")));

        let registration = state.get(&ResourceId::new(Kind::DiscoveryRegistration, "register")).unwrap();
        let registration = serde_json::to_value(registration).unwrap();
        let object: serde_json::Value =
            serde_json::from_str(registration["object"].as_str().unwrap()).unwrap();
        assert_eq!(object["metadata"], json!({"name": "node-1", "namespace": "c-example-com"}));
        let key = &object["spec"]["oidc"]["keys"][0];
        assert_eq!(
            (&key["kid"], &key["kty"], &key["alg"], &key["use"]),
            (&json!("7"), &json!("RSA"), &json!("RS256"), &json!("sig"))
        );
    }

    #[test]
    fn a_missing_discovery_authority_is_a_problem() {
        let problems = problems(|inputs| {
            inputs.config.discovery_service = Some(DiscoveryServiceOptions::default());
        });
        assert!(problems.contains("KeypairIDs.discovery-ca: is not set"), "{problems}");
    }
}
