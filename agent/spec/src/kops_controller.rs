//! The configuration of kops-controller, which kOps writes into the ConfigMap `kube-system/kops-controller`.
//!
//! Source: upstream's `cmd/kops-controller/pkg/config/options.go`; the clouds' own options are in
//! `pkg/bootstrap/awsbootstrap/verifier.go` (until 1.36 `upup/pkg/fi/cloudup/awsup/aws_verifier.go`),
//! `upup/pkg/fi/cloudup/gce/tpm/types.go` and `pkg/bootstrap/pkibootstrap/options.go`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::apply;

use super::cloud_provider::CloudProvider;
use super::error::SpecError;
use super::go_yaml::is_zero;
use super::yaml::parse_yaml;

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KopsControllerOptions {
    #[serde(default)]
    #[serde_with(skip_apply)]
    pub cluster_name: String,
    /// The cloud of the cluster's machines.
    #[serde_with(skip_apply)]
    pub cloud: CloudProvider,
    /// URL of the cluster's folder in the state store.
    #[serde(default)]
    pub config_base: String,
    /// URL of the folder of secrets in the state store.
    #[serde(default)]
    pub secret_store: String,
    /// The bootstrap server, if it is enabled.
    #[serde(default)]
    pub server: Option<KopsControllerServerOptions>,
    /// Whether upstream's kops-controller caches the identity of an instance. kops-agent's controller always caches the identity.
    #[serde(default)]
    pub cache_nodeidentity_info: bool,
    /// Whether the cloud assigns the addresses of a node's pods.
    #[serde(rename = "enableCloudIPAM", default)]
    pub enable_cloud_ipam: bool,
    #[serde(default)]
    pub capi: Option<CapiOptions>,
    /// Settings for the DNS names of a gossip cluster, in kOps 1.36 and earlier.
    #[serde(default)]
    pub discovery: Option<DiscoveryOptions>,
}

impl KopsControllerOptions {
    /// Reads a `config.yaml`. Errors contain `source_file`.
    pub fn parse(text: &[u8], source_file: &str) -> Result<KopsControllerOptions, SpecError> {
        let options: KopsControllerOptions = parse_yaml(text, source_file)?;
        match options.cluster_name.as_str() {
            "" => Err(SpecError::of_field(source_file, "clusterName", "it is missing")),
            _ => Ok(options),
        }
    }
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CapiOptions {
    /// Whether Machines of Cluster API are nodes of this cluster.
    pub enabled: Option<bool>,
}

/// Settings for the DNS names of a gossip cluster. kops-controller writes the names into CoreDNS' ConfigMap, so that pods can resolve them
/// (upstream: `HostsReconciler` in `cmd/kops-controller/controllers`, until 1.36).
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DiscoveryOptions {
    pub enabled: Option<bool>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KopsControllerServerOptions {
    /// The address at which the server listens, such as `:3988` or `127.0.0.1:3988`.
    #[serde(rename = "Listen")]
    #[serde_with(skip_apply)]
    pub listen: String,
    /// Settings for verifying the identity of machines, by cloud.
    #[serde_with(skip_apply)]
    pub provider: ServerProviderOptions,
    /// Settings for machines that prove their identity with their own key.
    pub pki: Option<PkiOptions>,
    pub server_key_path: String,
    pub server_certificate_path: String,
    /// Folder with the certificates and keys of the authorities.
    #[serde(rename = "caBasePath")]
    #[serde_with(skip_apply)]
    pub ca_base_path: String,
    #[serde(rename = "signingCAs")]
    #[serde_with(skip_apply)]
    pub signing_cas: Vec<String>,
    /// Names of the certificates that nodes may request.
    #[serde_with(skip_apply)]
    pub cert_names: Vec<String>,
}

/// Settings for verifying the identity of machines, by cloud.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServerProviderOptions {
    pub aws: Option<AwsVerifierOptions>,
    pub gce: Option<GceVerifierOptions>,
    /// Settings for clouds other than AWS and GCE. The map's key is kOps' field name for the cloud.
    #[serde(flatten)]
    #[serde_with(skip_apply)]
    pub others: BTreeMap<String, Value>,
}

/// Settings for machines whose identity AWS proves.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AwsVerifierOptions {
    /// The IAM roles of workers.
    #[serde_with(skip_apply)]
    pub nodes_roles: Vec<String>,
    #[serde(rename = "Region")]
    #[serde_with(skip_apply)]
    pub region: String,
    /// Whether a node is named by its private DNS name instead of its instance id.
    #[serde(rename = "useIPBasedNodeNames")]
    pub use_ip_based_node_names: bool,
}

/// Settings for machines whose identity Google proves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GceVerifierOptions {
    #[serde(rename = "projectID")]
    pub project_id: String,
    pub region: String,
    /// The cluster's name in the machines' metadata.
    pub cluster_name: String,
    /// The maximum difference between a machine's clock and the server's clock, in seconds.
    #[serde(rename = "MaxTimeSkew")]
    pub max_time_skew: i64,
}

/// Settings for machines that prove their identity with their own key.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PkiOptions {
    /// The maximum difference between a machine's clock and the server's clock, in seconds. Zero means 300.
    #[serde(rename = "MaxTimeSkew")]
    pub max_time_skew: i64,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(text: &str) -> Result<KopsControllerOptions, SpecError> {
        KopsControllerOptions::parse(text.as_bytes(), "config.yaml")
    }

    #[test]
    fn kops_file_is_read_completely() {
        let options = parse(
            r#"{"clusterName":"c.example.com","cloud":"aws","configBase":"s3://clusters/c.example.com",
                "secretStore":"s3://clusters/c.example.com/secrets","server":{"Listen":":3988","provider":{"aws":
                {"nodesRoles":["nodes.c.example.com"],"Region":"us-test-1"}},"serverKeyPath":
                "/etc/kubernetes/kops-controller/pki/kops-controller.key","serverCertificatePath":
                "/etc/kubernetes/kops-controller/pki/kops-controller.crt","caBasePath":
                "/etc/kubernetes/kops-controller/pki","signingCAs":["kubernetes-ca"],"certNames":
                ["kubelet","kubelet-server","kube-proxy"]},"somethingNew":1}"#,
        )
        .unwrap();
        assert_eq!(options.cloud, CloudProvider::Aws);
        let server = options.server.unwrap();
        assert_eq!(server.listen, ":3988");
        assert_eq!(server.signing_cas, ["kubernetes-ca"]);
        let aws = server.provider.aws.unwrap();
        assert_eq!((aws.region.as_str(), aws.use_ip_based_node_names), ("us-test-1", false));
    }

    #[test]
    fn google_and_other_clouds_have_their_own_options() {
        let options = parse(
            "{clusterName: c, cloud: gce, server: {provider: {gce: {projectID: p, region: r, clusterName: c, \
             MaxTimeSkew: 300}, hetzner: {}}}}",
        )
        .unwrap();
        let provider = options.server.unwrap().provider;
        assert_eq!(provider.gce.unwrap().max_time_skew, 300);
        assert!(provider.others.contains_key("hetzner"));
    }

    #[test]
    fn a_file_without_cluster_or_cloud_is_rejected() {
        for (text, expected) in [
            ("{cloud: aws}", "clusterName"),
            ("{clusterName: c}", "cloud"),
            ("{clusterName: c, cloud: moon}", "moon"),
            ("{clusterName: c, cloud: aws, server: {certNames: kubelet}}", "server.certNames"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("config.yaml"), "{error}");
        }
    }
}
