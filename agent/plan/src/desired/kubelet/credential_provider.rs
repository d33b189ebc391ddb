//! The program that gives kubelet credentials for the cloud's own image registries, on AWS and GCE.

use serde::Serialize;

use crate::desired::paths;
use crate::resolve::NodeConfig;
use crate::resource::{DesiredState, File, Mode};
use kops_agent_spec::CloudProvider;
use kops_agent_spec::go_yaml;

/// `CredentialProviderConfig` of kubelet.config.k8s.io/v1.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CredentialProviderConfig {
    api_version: &'static str,
    kind: &'static str,
    providers: [CredentialProvider; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CredentialProvider {
    api_version: &'static str,
    name: &'static str,
    match_images: Vec<String>,
    default_cache_duration: &'static str,
    args: Vec<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    env: Vec<ExecEnvVar>,
}

#[derive(Serialize)]
struct ExecEnvVar {
    name: &'static str,
    value: String,
}

/// Registries of ECR in each of AWS' partitions.
const ECR: [&str; 4] = [
    "*.dkr.ecr.*.amazonaws.com",
    "*.dkr.ecr.*.amazonaws.com.cn",
    "*.dkr.ecr-fips.*.amazonaws.com",
    "*.dkr.ecr.us-iso-east-1.c2s.ic.gov",
];
/// Google's Container Registry and Artifact Registry.
const GOOGLE: [&str; 4] = ["gcr.io", "*.gcr.io", "container.cloud.google.com", "*.pkg.dev"];

/// Adds the credential provider's program, and its configuration for kubelet.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    let Some(program) = &node.kubelet.credential_provider else { return };
    let provider = match node.cloud_provider() {
        CloudProvider::Gce => gcp(),
        _ => ecr(node),
    };
    let path = format!("{}/{}", node.distribution.kubelet_bin, provider.name);
    state.add(File::new(path, program.content()).mode(Mode::EXECUTABLE));
    let config = CredentialProviderConfig {
        api_version: "kubelet.config.k8s.io/v1",
        kind: "CredentialProviderConfig",
        providers: [provider],
    };
    state.add(File::text(paths::KUBELET_CREDENTIAL_PROVIDER_CONFIG, go_yaml::to_string(&config)));
}

/// The provider for ECR. With `useECRCredentialsForMirrors`, it also serves all registries that have a
/// mirror, sorted by name.
fn ecr(node: &NodeConfig) -> CredentialProvider {
    let containerd = node.containerd();
    let mirrored = containerd.registry_mirrors.keys().filter(|_| containerd.use_ecr_credentials_for_mirrors);
    let region = node.facts.cloud.aws.as_ref().map(|aws| aws.region.clone());
    CredentialProvider {
        api_version: PROVIDER_API,
        name: "ecr-credential-provider",
        match_images: ECR.into_iter().map(str::to_owned).chain(mirrored.cloned()).collect(),
        default_cache_duration: "12h0m0s",
        args: vec!["get-credentials"],
        env: vec![ExecEnvVar { name: "AWS_REGION", value: region.unwrap_or_default() }],
    }
}

fn gcp() -> CredentialProvider {
    CredentialProvider {
        api_version: PROVIDER_API,
        name: "gcp-credential-provider",
        match_images: GOOGLE.into_iter().map(str::to_owned).collect(),
        default_cache_duration: "1m",
        args: vec!["get-credentials", "--v=3"],
        env: Vec::new(),
    }
}

const PROVIDER_API: &str = "credentialprovider.kubelet.k8s.io/v1";
