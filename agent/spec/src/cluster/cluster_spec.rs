//! The specification of a cluster, with the field names of kOps' internal API.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::apply;

use crate::api::APISpec;
use crate::authentication::{AuthenticationSpec, AuthorizationSpec, NodeAuthorizationSpec};
use crate::cluster::addons::{
    AddonSpec, CertManagerConfig, ClusterAutoscalerConfig, KarpenterConfig, MetricsServerConfig, NTPConfig,
    NodeProblemDetectorConfig, SnapshotControllerConfig,
};
use crate::cluster::cloud::{CloudConfiguration, CloudProviderSpec};
use crate::cluster::cloud_controller_manager::CloudControllerManagerConfig;
use crate::cluster::dns::{DNSControllerGossipConfig, ExternalDNSConfig, GossipConfig, KubeDNSConfig};
use crate::cluster::etcd::EtcdClusterSpec;
use crate::cluster::iam::{IAMSpec, ServiceAccountIssuerDiscoveryConfig};
use crate::containerd::ContainerdConfig;
use crate::customization::{FileAssetSpec, HookSpec};
use crate::go_yaml::is_zero;
use crate::kube_apiserver::KubeAPIServerConfig;
use crate::kube_controller_manager::KubeControllerManagerConfig;
use crate::kube_proxy::KubeProxyConfig;
use crate::kube_scheduler::KubeSchedulerConfig;
use crate::kubelet::KubeletConfigSpec;
use crate::networking::NetworkingSpec;
use crate::scalars::IntOrString;

/// The desired state of a cluster, with the field names of kOps' internal API.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterSpec {
    /// The channel that recommends versions.
    pub channel: String,
    pub addons: Vec<AddonSpec>,
    /// Locations of the cluster's folders in the state store.
    #[serde_with(skip_apply)]
    pub config_store: ConfigStoreSpec,
    #[serde_with(skip_apply)]
    pub cloud_provider: CloudProviderSpec,
    /// Settings of gossip, which distributes the cluster's names without DNS. kOps 1.37 removes this field.
    pub gossip_config: Option<GossipConfig>,
    /// Version of Kubernetes, or the URL of a build. A completed spec has the version without a leading `v`.
    pub kubernetes_version: String,
    /// The name or id of the DNS zone that contains the cluster's names.
    pub dns_zone: String,
    /// Gossip settings of dns-controller. kOps 1.37 removes this field.
    pub dns_controller_gossip_config: Option<DNSControllerGossipConfig>,
    #[serde(rename = "clusterDNSDomain")]
    pub cluster_dns_domain: String,
    /// Addresses that may connect by SSH.
    pub ssh_access: Vec<String>,
    /// Addresses that may connect to node ports.
    pub node_port_access: Vec<String>,
    /// Name of an SSH key that is registered in the cloud.
    pub ssh_key_name: Option<String>,
    /// Whether machines install operating system updates (`automatic`) or not (`external`).
    pub update_policy: Option<String>,
    /// ARNs of existing IAM policies for machines, by role.
    pub external_policies: BTreeMap<String, Vec<String>>,
    /// IAM policies for machines, by role, as JSON that the user writes.
    pub additional_policies: BTreeMap<String, String>,
    /// Files that the user adds to nodes.
    pub file_assets: Vec<FileAssetSpec>,
    pub etcd_clusters: Vec<EtcdClusterSpec>,
    pub containerd: Option<ContainerdConfig>,
    #[serde(rename = "kubeDNS")]
    pub kube_dns: Option<KubeDNSConfig>,
    #[serde(rename = "kubeAPIServer")]
    pub kube_api_server: Option<KubeAPIServerConfig>,
    pub kube_controller_manager: Option<KubeControllerManagerConfig>,
    pub cloud_controller_manager: Option<CloudControllerManagerConfig>,
    pub kube_scheduler: Option<KubeSchedulerConfig>,
    pub kube_proxy: Option<KubeProxyConfig>,
    pub kubelet: Option<KubeletConfigSpec>,
    pub control_plane_kubelet: Option<KubeletConfigSpec>,
    /// Cloud settings that are independent of the cloud provider.
    pub cloud_config: Option<CloudConfiguration>,
    /// The controller that publishes the cluster's names in external DNS.
    #[serde(rename = "externalDNS")]
    pub external_dns: Option<ExternalDNSConfig>,
    pub ntp: Option<NTPConfig>,
    /// Packages that the user adds to nodes.
    pub packages: Vec<String>,
    pub node_problem_detector: Option<NodeProblemDetectorConfig>,
    pub metrics_server: Option<MetricsServerConfig>,
    pub cert_manager: Option<CertManagerConfig>,
    #[serde_with(skip_apply)]
    pub networking: NetworkingSpec,
    /// How clients reach the Kubernetes API.
    #[serde_with(skip_apply)]
    pub api: APISpec,
    pub authentication: Option<AuthenticationSpec>,
    pub authorization: Option<AuthorizationSpec>,
    /// How nodes prove their identity. kOps no longer uses this field.
    pub node_authorization: Option<NodeAuthorizationSpec>,
    /// Tags of all cloud resources of the cluster.
    pub cloud_labels: BTreeMap<String, String>,
    /// Units that the user adds to nodes.
    pub hooks: Vec<HookSpec>,
    /// Mirrors of images and files.
    pub assets: Option<AssetsSpec>,
    /// Cloud identities of nodes and service accounts.
    pub iam: Option<IAMSpec>,
    /// Whether the API server encrypts the content of etcd with the secret `encryptionconfig`.
    pub encryption_config: Option<bool>,
    /// Settings of the tools that create a cluster's resources, such as Terraform.
    pub target: Option<TargetSpec>,
    /// Whether components trust the CA certificates of the machine.
    pub use_host_certificates: Option<bool>,
    /// Kernel parameters, each as `name=value`.
    pub sysctl_parameters: Vec<String>,
    pub rolling_update: Option<RollingUpdate>,
    pub cluster_autoscaler: Option<ClusterAutoscalerConfig>,
    /// Where the cluster publishes the public keys that verify service account tokens.
    pub service_account_issuer_discovery: Option<ServiceAccountIssuerDiscoveryConfig>,
    pub snapshot_controller: Option<SnapshotControllerConfig>,
    pub karpenter: Option<KarpenterConfig>,
}

/// Locations of a cluster's folders in the state store.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ConfigStoreSpec {
    /// The cluster's folder in the state store.
    pub base: String,
    /// The folder of keysets.
    pub keypairs: String,
    pub secrets: String,
}

/// Mirrors of images and files.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AssetsSpec {
    /// Registry to which kOps copies all images.
    pub container_registry: Option<String>,
    /// Server to which kOps copies all files.
    pub file_repository: Option<String>,
    /// Registry through which nodes pull all images (a pull-through cache).
    pub container_proxy: Option<String>,
}

/// Settings of the tools that create a cluster's resources, such as Terraform.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TargetSpec {
    pub terraform: Option<TerraformSpec>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TerraformSpec {
    /// Additional settings of Terraform's provider for the cloud.
    pub provider_extra_config: BTreeMap<String, String>,
    /// Additional settings of Terraform's provider that writes files.
    pub files_provider_extra_config: BTreeMap<String, String>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RollingUpdate {
    pub drain_and_terminate: Option<bool>,
    /// Maximum number or percentage of nodes that are unavailable at a time.
    pub max_unavailable: Option<IntOrString>,
    /// Maximum number or percentage of additional nodes during the update.
    pub max_surge: Option<IntOrString>,
}
