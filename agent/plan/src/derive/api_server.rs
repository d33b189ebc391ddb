//! The additional configuration of machines with an API server (upstream: `pkg/apis/nodeup/config.go`,
//! `upup/pkg/fi/cloudup/apply_cluster.go`).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use sha2::{Digest, Sha256};

use super::Inputs;
use super::authorities::{SERVICE_ACCOUNT, keyset};
use crate::resolve::Problems;
use kops_agent_spec::invalid::Invalid;
use kops_agent_spec::{
    APIServerConfig, APISpec, AWSAuthenticationSpec, AuthenticationSpec, ControlPlaneConfig, DNSAccessSpec,
    LoadBalancerAccessSpec,
};

/// The secret with the encryption configuration of the API server.
pub(super) const ENCRYPTION_CONFIG: &str = "encryptionconfig";

const NOT_COMPLETED: &str =
    "it is missing, but a completed cluster spec always has it; read cluster-completed.spec, not config";

pub(super) fn api_server_config(inputs: &Inputs<'_>, problems: &mut Problems) -> Option<APIServerConfig> {
    if !inputs.runs_api_server() {
        return None;
    }
    let spec = &inputs.cluster.spec;
    if spec.kube_api_server.is_none() {
        problems.add("spec.kubeAPIServer", NOT_COMPLETED);
    }
    let service_account = keyset(inputs, SERVICE_ACCOUNT, problems);
    let public_keys = service_account
        .map(|keyset| keyset.public_keys_pem().map_err(|error| Invalid::new(error.to_string())));
    Some(APIServerConfig {
        cluster_dns_domain: spec.cluster_dns_domain.clone(),
        kube_api_server: spec.kube_api_server.clone(),
        api: api(inputs),
        authentication: spec.authentication.as_ref().map(authentication),
        encryption_config_secret_hash: encryption_config_secret_hash(inputs, problems),
        service_account_public_keys: public_keys
            .and_then(|keys| problems.keep("pki/private/service-account/keyset.yaml", keys))
            .unwrap_or_default(),
    })
}

fn api(inputs: &Inputs<'_>) -> APISpec {
    let api = &inputs.cluster.spec.api;
    let is_internal = api.load_balancer.as_ref().is_some_and(|balancer| balancer.use_for_internal_api);
    APISpec {
        public_name: api.public_name.clone(),
        additional_sans: api.additional_sans.clone(),
        dns: api.dns.as_ref().map(|_| DNSAccessSpec::default()),
        load_balancer: is_internal.then(|| LoadBalancerAccessSpec {
            use_for_internal_api: true,
            ..LoadBalancerAccessSpec::default()
        }),
        ..APISpec::default()
    }
}

/// Returns the cluster's authentication settings. The settings of AWS IAM Authenticator are empty, because its
/// manifest contains them.
fn authentication(authentication: &AuthenticationSpec) -> AuthenticationSpec {
    AuthenticationSpec {
        aws: authentication.aws.as_ref().map(|_| AWSAuthenticationSpec::default()),
        ..authentication.clone()
    }
}

fn encryption_config_secret_hash(inputs: &Inputs<'_>, problems: &mut Problems) -> String {
    if inputs.cluster.spec.encryption_config != Some(true) {
        return String::new();
    }
    match inputs.secrets.get(ENCRYPTION_CONFIG) {
        Some(secret) => URL_SAFE.encode(Sha256::digest(secret.expose())),
        None => {
            problems.add(
                "spec.encryptionConfig",
                "it is on, but the store has no secret encryptionconfig; create it with `kops create secret encryptionconfig`",
            );
            String::new()
        }
    }
}

pub(super) fn control_plane_config(
    inputs: &Inputs<'_>,
    problems: &mut Problems,
) -> Option<ControlPlaneConfig> {
    if !inputs.is_control_plane() {
        return None;
    }
    let spec = &inputs.cluster.spec;
    if spec.kube_controller_manager.is_none() {
        problems.add("spec.kubeControllerManager", NOT_COMPLETED);
    }
    if spec.kube_scheduler.is_none() {
        problems.add("spec.kubeScheduler", NOT_COMPLETED);
    }
    Some(ControlPlaneConfig {
        kube_controller_manager: spec.kube_controller_manager.clone().unwrap_or_default(),
        kube_scheduler: spec.kube_scheduler.clone().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::derive::testing::Store;
    use kops_agent_spec::Secret;

    #[test]
    fn only_needed_fields_of_the_api_reach_nodes() {
        let store = Store::new(
            "masterPublicName: api.example.com, additionalSans: [a], api: {dns: {}, loadBalancer: {type: Public, useForInternalApi: true}}, authentication: {aws: {image: x}}",
            "role: Master",
        );
        let config = api_server_config(&store.inputs(), &mut Problems::default()).unwrap();
        assert_eq!(
            serde_json::to_value(config.api).unwrap(),
            json!({"publicName": "api.example.com", "additionalSANs": ["a"], "dns": {}, "loadBalancer": {"useForInternalAPI": true}})
        );
        assert_eq!(serde_json::to_value(config.authentication).unwrap(), json!({"aws": {}}));
    }

    #[test]
    fn a_missing_encryption_config_is_a_problem() {
        let mut store = Store::new("encryptionConfig: true", "role: APIServer");
        let mut problems = Problems::default();
        encryption_config_secret_hash(&store.inputs(), &mut problems);
        assert!(problems.to_string().contains("spec.encryptionConfig: "), "{problems}");
        store.secrets.insert(ENCRYPTION_CONFIG.into(), Secret::new(b"x".to_vec()));
        assert_eq!(
            encryption_config_secret_hash(&store.inputs(), &mut Problems::default()),
            "LXEWQrcmsEQBYnyp-6wy9chTD7GQPMTbAiWHF5IaSIE="
        );
    }

    #[test]
    fn an_incomplete_spec_is_a_problem() {
        let store = Store::new("", "role: Master");
        let mut problems = Problems::default();
        api_server_config(&store.inputs(), &mut problems);
        control_plane_config(&store.inputs(), &mut problems);
        for field in ["spec.kubeAPIServer", "spec.kubeControllerManager", "spec.kubeScheduler"] {
            assert!(problems.iter().any(|problem| problem.field == field), "{field}");
        }
    }
}
