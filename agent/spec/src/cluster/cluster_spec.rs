//! The specification of a cluster, in kOps' internal names.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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
use crate::kube_apiserver::KubeAPIServerConfig;
use crate::kube_controller_manager::KubeControllerManagerConfig;
use crate::kube_proxy::KubeProxyConfig;
use crate::kube_scheduler::KubeSchedulerConfig;
use crate::kubelet::KubeletConfigSpec;
use crate::networking::NetworkingSpec;
use crate::omit::is_zero;
use crate::scalars::IntOrString;

/// What a cluster shall be, in kOps' internal names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterSpec {
    /// The channel that recommends versions.
    #[serde(skip_serializing_if = "is_zero")]
    pub channel: String,
    /// Addons of the user's.
    #[serde(skip_serializing_if = "is_zero")]
    pub addons: Vec<AddonSpec>,
    /// Where the cluster's files are.
    pub config_store: ConfigStoreSpec,
    /// The cloud it is in.
    pub cloud_provider: CloudProviderSpec,
    /// Gossip in place of DNS; removed in kOps 1.37.
    #[serde(skip_serializing_if = "is_zero")]
    pub gossip_config: Option<GossipConfig>,
    /// Version of Kubernetes, or the URL of a build; without `v` once populated.
    #[serde(skip_serializing_if = "is_zero")]
    pub kubernetes_version: String,
    /// The DNS zone of its names, by name or id.
    #[serde(skip_serializing_if = "is_zero")]
    pub dns_zone: String,
    /// Gossip of the dns-controller; removed in kOps 1.37.
    #[serde(skip_serializing_if = "is_zero")]
    pub dns_controller_gossip_config: Option<DNSControllerGossipConfig>,
    /// Domain of names inside the cluster.
    #[serde(rename = "clusterDNSDomain", skip_serializing_if = "is_zero")]
    pub cluster_dns_domain: String,
    /// Addresses that may connect by SSH.
    #[serde(skip_serializing_if = "is_zero")]
    pub ssh_access: Vec<String>,
    /// Addresses that may connect to node ports.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_port_access: Vec<String>,
    /// An SSH key that the cloud has.
    #[serde(skip_serializing_if = "is_zero")]
    pub ssh_key_name: Option<String>,
    /// Whether machines update themselves: `automatic` or `external`.
    #[serde(skip_serializing_if = "is_zero")]
    pub update_policy: Option<String>,
    /// More policies of machines, by role.
    #[serde(skip_serializing_if = "is_zero")]
    pub external_policies: BTreeMap<String, Vec<String>>,
    /// Policies of the user's for machines, by role.
    #[serde(skip_serializing_if = "is_zero")]
    pub additional_policies: BTreeMap<String, String>,
    /// Files that the user adds to nodes.
    #[serde(skip_serializing_if = "is_zero")]
    pub file_assets: Vec<FileAssetSpec>,
    /// The etcd clusters.
    #[serde(skip_serializing_if = "is_zero")]
    pub etcd_clusters: Vec<EtcdClusterSpec>,
    /// containerd.
    #[serde(skip_serializing_if = "is_zero")]
    pub containerd: Option<ContainerdConfig>,
    /// DNS inside the cluster.
    #[serde(rename = "kubeDNS", skip_serializing_if = "is_zero")]
    pub kube_dns: Option<KubeDNSConfig>,
    /// kube-apiserver.
    #[serde(rename = "kubeAPIServer", skip_serializing_if = "is_zero")]
    pub kube_api_server: Option<KubeAPIServerConfig>,
    /// kube-controller-manager.
    #[serde(skip_serializing_if = "is_zero")]
    pub kube_controller_manager: Option<KubeControllerManagerConfig>,
    /// The cloud-controller-manager.
    #[serde(skip_serializing_if = "is_zero")]
    pub cloud_controller_manager: Option<CloudControllerManagerConfig>,
    /// kube-scheduler.
    #[serde(skip_serializing_if = "is_zero")]
    pub kube_scheduler: Option<KubeSchedulerConfig>,
    /// kube-proxy.
    #[serde(skip_serializing_if = "is_zero")]
    pub kube_proxy: Option<KubeProxyConfig>,
    /// The kubelet of nodes.
    #[serde(skip_serializing_if = "is_zero")]
    pub kubelet: Option<KubeletConfigSpec>,
    /// The kubelet of control plane nodes.
    #[serde(skip_serializing_if = "is_zero")]
    pub control_plane_kubelet: Option<KubeletConfigSpec>,
    /// Settings that any cloud can have.
    #[serde(skip_serializing_if = "is_zero")]
    pub cloud_config: Option<CloudConfiguration>,
    /// The controller that publishes names outside of the cluster.
    #[serde(rename = "externalDNS", skip_serializing_if = "is_zero")]
    pub external_dns: Option<ExternalDNSConfig>,
    /// How clocks are kept right.
    #[serde(skip_serializing_if = "is_zero")]
    pub ntp: Option<NTPConfig>,
    /// Packages that the user adds to nodes.
    #[serde(skip_serializing_if = "is_zero")]
    pub packages: Vec<String>,
    /// The node problem detector.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_problem_detector: Option<NodeProblemDetectorConfig>,
    /// The metrics server.
    #[serde(skip_serializing_if = "is_zero")]
    pub metrics_server: Option<MetricsServerConfig>,
    /// cert-manager.
    #[serde(skip_serializing_if = "is_zero")]
    pub cert_manager: Option<CertManagerConfig>,
    /// The network.
    pub networking: NetworkingSpec,
    /// How the Kubernetes API is reached.
    pub api: APISpec,
    /// Whom the API server believes.
    #[serde(skip_serializing_if = "is_zero")]
    pub authentication: Option<AuthenticationSpec>,
    /// Who may do what.
    #[serde(skip_serializing_if = "is_zero")]
    pub authorization: Option<AuthorizationSpec>,
    /// How nodes prove who they are; no longer used.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_authorization: Option<NodeAuthorizationSpec>,
    /// Tags of everything in the cloud.
    #[serde(skip_serializing_if = "is_zero")]
    pub cloud_labels: BTreeMap<String, String>,
    /// Units that the user adds to nodes.
    #[serde(skip_serializing_if = "is_zero")]
    pub hooks: Vec<HookSpec>,
    /// Mirrors of images and files.
    #[serde(skip_serializing_if = "is_zero")]
    pub assets: Option<AssetsSpec>,
    /// Cloud identities of nodes and service accounts.
    #[serde(skip_serializing_if = "is_zero")]
    pub iam: Option<IAMSpec>,
    /// Whether etcd's content is encrypted by the secret `encryptionconfig`.
    #[serde(skip_serializing_if = "is_zero")]
    pub encryption_config: Option<bool>,
    /// Settings of what kOps writes to.
    #[serde(skip_serializing_if = "is_zero")]
    pub target: Option<TargetSpec>,
    /// Whether components trust what the machine trusts.
    #[serde(skip_serializing_if = "is_zero")]
    pub use_host_certificates: Option<bool>,
    /// Kernel parameters, each as `name=value`.
    #[serde(skip_serializing_if = "is_zero")]
    pub sysctl_parameters: Vec<String>,
    /// How nodes are replaced.
    #[serde(skip_serializing_if = "is_zero")]
    pub rolling_update: Option<RollingUpdate>,
    /// The cluster autoscaler.
    #[serde(skip_serializing_if = "is_zero")]
    pub cluster_autoscaler: Option<ClusterAutoscalerConfig>,
    /// Where others learn how to verify service account tokens.
    #[serde(skip_serializing_if = "is_zero")]
    pub service_account_issuer_discovery: Option<ServiceAccountIssuerDiscoveryConfig>,
    /// The controller of volume snapshots.
    #[serde(skip_serializing_if = "is_zero")]
    pub snapshot_controller: Option<SnapshotControllerConfig>,
    /// Karpenter.
    #[serde(skip_serializing_if = "is_zero")]
    pub karpenter: Option<KarpenterConfig>,
}

/// Where a cluster's files are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ConfigStoreSpec {
    /// The cluster's folder in the state store.
    #[serde(skip_serializing_if = "is_zero")]
    pub base: String,
    /// The folder of key sets.
    #[serde(skip_serializing_if = "is_zero")]
    pub keypairs: String,
    /// The folder of secrets.
    #[serde(skip_serializing_if = "is_zero")]
    pub secrets: String,
}

/// Mirrors of images and files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AssetsSpec {
    /// Registry that all images are copied to.
    #[serde(skip_serializing_if = "is_zero")]
    pub container_registry: Option<String>,
    /// Server that all files are copied to.
    #[serde(skip_serializing_if = "is_zero")]
    pub file_repository: Option<String>,
    /// Registry that images are pulled through.
    #[serde(skip_serializing_if = "is_zero")]
    pub container_proxy: Option<String>,
}

/// Settings of what kOps writes to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TargetSpec {
    /// Terraform.
    #[serde(skip_serializing_if = "is_zero")]
    pub terraform: Option<TerraformSpec>,
}

/// Settings of Terraform.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TerraformSpec {
    /// More settings of the provider.
    #[serde(skip_serializing_if = "is_zero")]
    pub provider_extra_config: BTreeMap<String, String>,
    /// More settings of the provider for files.
    #[serde(skip_serializing_if = "is_zero")]
    pub files_provider_extra_config: BTreeMap<String, String>,
}

/// How nodes are replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RollingUpdate {
    /// Whether nodes are drained before they end.
    #[serde(skip_serializing_if = "is_zero")]
    pub drain_and_terminate: Option<bool>,
    /// Most nodes that may be missing, as a number or a percentage.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_unavailable: Option<IntOrString>,
    /// Most nodes that may be too many, as a number or a percentage.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_surge: Option<IntOrString>,
}
