//! The specification of a cluster, in kOps' internal names.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::spec::api::APISpec;
use crate::spec::authentication::{AuthenticationSpec, AuthorizationSpec, NodeAuthorizationSpec};
use crate::spec::cluster::addons::{
    AddonSpec, CertManagerConfig, ClusterAutoscalerConfig, KarpenterConfig, MetricsServerConfig, NTPConfig,
    NodeProblemDetectorConfig, SnapshotControllerConfig,
};
use crate::spec::cluster::cloud::{CloudConfiguration, CloudProviderSpec};
use crate::spec::cluster::cloud_controller_manager::CloudControllerManagerConfig;
use crate::spec::cluster::dns::{DNSControllerGossipConfig, ExternalDNSConfig, GossipConfig, KubeDNSConfig};
use crate::spec::cluster::etcd::EtcdClusterSpec;
use crate::spec::cluster::iam::{IAMSpec, ServiceAccountIssuerDiscoveryConfig};
use crate::spec::containerd::ContainerdConfig;
use crate::spec::customization::{FileAssetSpec, HookSpec};
use crate::spec::kube_apiserver::KubeAPIServerConfig;
use crate::spec::kube_controller_manager::KubeControllerManagerConfig;
use crate::spec::kube_proxy::KubeProxyConfig;
use crate::spec::kube_scheduler::KubeSchedulerConfig;
use crate::spec::kubelet::KubeletConfigSpec;
use crate::spec::networking::NetworkingSpec;
use crate::spec::omit::is_zero;
use crate::spec::scalars::IntOrString;

/// `ClusterSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterSpec {
    /// Channel.
    #[serde(skip_serializing_if = "is_zero")]
    pub channel: String,
    /// Addons.
    #[serde(skip_serializing_if = "is_zero")]
    pub addons: Vec<AddonSpec>,
    /// Config store.
    pub config_store: ConfigStoreSpec,
    /// Cloud provider.
    pub cloud_provider: CloudProviderSpec,
    /// Gossip config.
    #[serde(skip_serializing_if = "is_zero")]
    pub gossip_config: Option<GossipConfig>,
    /// Kubernetes version.
    #[serde(skip_serializing_if = "is_zero")]
    pub kubernetes_version: String,
    /// Dns zone.
    #[serde(skip_serializing_if = "is_zero")]
    pub dns_zone: String,
    /// Dns controller gossip config.
    #[serde(skip_serializing_if = "is_zero")]
    pub dns_controller_gossip_config: Option<DNSControllerGossipConfig>,
    /// Cluster DNS domain.
    #[serde(rename = "clusterDNSDomain", skip_serializing_if = "is_zero")]
    pub cluster_dns_domain: String,
    /// Ssh access.
    #[serde(skip_serializing_if = "is_zero")]
    pub ssh_access: Vec<String>,
    /// Node port access.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_port_access: Vec<String>,
    /// Ssh key name.
    #[serde(skip_serializing_if = "is_zero")]
    pub ssh_key_name: Option<String>,
    /// Update policy.
    #[serde(skip_serializing_if = "is_zero")]
    pub update_policy: Option<String>,
    /// External policies.
    #[serde(skip_serializing_if = "is_zero")]
    pub external_policies: BTreeMap<String, Vec<String>>,
    /// Additional policies.
    #[serde(skip_serializing_if = "is_zero")]
    pub additional_policies: BTreeMap<String, String>,
    /// File assets.
    #[serde(skip_serializing_if = "is_zero")]
    pub file_assets: Vec<FileAssetSpec>,
    /// Etcd clusters.
    #[serde(skip_serializing_if = "is_zero")]
    pub etcd_clusters: Vec<EtcdClusterSpec>,
    /// Containerd.
    #[serde(skip_serializing_if = "is_zero")]
    pub containerd: Option<ContainerdConfig>,
    /// Kube DNS.
    #[serde(rename = "kubeDNS", skip_serializing_if = "is_zero")]
    pub kube_dns: Option<KubeDNSConfig>,
    /// Kube API server.
    #[serde(rename = "kubeAPIServer", skip_serializing_if = "is_zero")]
    pub kube_api_server: Option<KubeAPIServerConfig>,
    /// Kube controller manager.
    #[serde(skip_serializing_if = "is_zero")]
    pub kube_controller_manager: Option<KubeControllerManagerConfig>,
    /// Cloud controller manager.
    #[serde(skip_serializing_if = "is_zero")]
    pub cloud_controller_manager: Option<CloudControllerManagerConfig>,
    /// Kube scheduler.
    #[serde(skip_serializing_if = "is_zero")]
    pub kube_scheduler: Option<KubeSchedulerConfig>,
    /// Kube proxy.
    #[serde(skip_serializing_if = "is_zero")]
    pub kube_proxy: Option<KubeProxyConfig>,
    /// Kubelet.
    #[serde(skip_serializing_if = "is_zero")]
    pub kubelet: Option<KubeletConfigSpec>,
    /// Control plane kubelet.
    #[serde(skip_serializing_if = "is_zero")]
    pub control_plane_kubelet: Option<KubeletConfigSpec>,
    /// Cloud config.
    #[serde(skip_serializing_if = "is_zero")]
    pub cloud_config: Option<CloudConfiguration>,
    /// External DNS.
    #[serde(rename = "externalDNS", skip_serializing_if = "is_zero")]
    pub external_dns: Option<ExternalDNSConfig>,
    /// Ntp.
    #[serde(skip_serializing_if = "is_zero")]
    pub ntp: Option<NTPConfig>,
    /// Packages.
    #[serde(skip_serializing_if = "is_zero")]
    pub packages: Vec<String>,
    /// Node problem detector.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_problem_detector: Option<NodeProblemDetectorConfig>,
    /// Metrics server.
    #[serde(skip_serializing_if = "is_zero")]
    pub metrics_server: Option<MetricsServerConfig>,
    /// Cert manager.
    #[serde(skip_serializing_if = "is_zero")]
    pub cert_manager: Option<CertManagerConfig>,
    /// Networking.
    pub networking: NetworkingSpec,
    /// Api.
    pub api: APISpec,
    /// Authentication.
    #[serde(skip_serializing_if = "is_zero")]
    pub authentication: Option<AuthenticationSpec>,
    /// Authorization.
    #[serde(skip_serializing_if = "is_zero")]
    pub authorization: Option<AuthorizationSpec>,
    /// Node authorization.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_authorization: Option<NodeAuthorizationSpec>,
    /// Cloud labels.
    #[serde(skip_serializing_if = "is_zero")]
    pub cloud_labels: BTreeMap<String, String>,
    /// Hooks.
    #[serde(skip_serializing_if = "is_zero")]
    pub hooks: Vec<HookSpec>,
    /// Assets.
    #[serde(skip_serializing_if = "is_zero")]
    pub assets: Option<AssetsSpec>,
    /// Iam.
    #[serde(skip_serializing_if = "is_zero")]
    pub iam: Option<IAMSpec>,
    /// Encryption config.
    #[serde(skip_serializing_if = "is_zero")]
    pub encryption_config: Option<bool>,
    /// Target.
    #[serde(skip_serializing_if = "is_zero")]
    pub target: Option<TargetSpec>,
    /// Use host certificates.
    #[serde(skip_serializing_if = "is_zero")]
    pub use_host_certificates: Option<bool>,
    /// Sysctl parameters.
    #[serde(skip_serializing_if = "is_zero")]
    pub sysctl_parameters: Vec<String>,
    /// Rolling update.
    #[serde(skip_serializing_if = "is_zero")]
    pub rolling_update: Option<RollingUpdate>,
    /// Cluster autoscaler.
    #[serde(skip_serializing_if = "is_zero")]
    pub cluster_autoscaler: Option<ClusterAutoscalerConfig>,
    /// Service account issuer discovery.
    #[serde(skip_serializing_if = "is_zero")]
    pub service_account_issuer_discovery: Option<ServiceAccountIssuerDiscoveryConfig>,
    /// Snapshot controller.
    #[serde(skip_serializing_if = "is_zero")]
    pub snapshot_controller: Option<SnapshotControllerConfig>,
    /// Karpenter.
    #[serde(skip_serializing_if = "is_zero")]
    pub karpenter: Option<KarpenterConfig>,
}

/// `ConfigStoreSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ConfigStoreSpec {
    /// Base.
    #[serde(skip_serializing_if = "is_zero")]
    pub base: String,
    /// Keypairs.
    #[serde(skip_serializing_if = "is_zero")]
    pub keypairs: String,
    /// Secrets.
    #[serde(skip_serializing_if = "is_zero")]
    pub secrets: String,
}

/// `AssetsSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AssetsSpec {
    /// Container registry.
    #[serde(skip_serializing_if = "is_zero")]
    pub container_registry: Option<String>,
    /// File repository.
    #[serde(skip_serializing_if = "is_zero")]
    pub file_repository: Option<String>,
    /// Container proxy.
    #[serde(skip_serializing_if = "is_zero")]
    pub container_proxy: Option<String>,
}

/// `TargetSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TargetSpec {
    /// Terraform.
    #[serde(skip_serializing_if = "is_zero")]
    pub terraform: Option<TerraformSpec>,
}

/// `TerraformSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TerraformSpec {
    /// Provider extra config.
    #[serde(skip_serializing_if = "is_zero")]
    pub provider_extra_config: BTreeMap<String, String>,
    /// Files provider extra config.
    #[serde(skip_serializing_if = "is_zero")]
    pub files_provider_extra_config: BTreeMap<String, String>,
}

/// `RollingUpdate`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RollingUpdate {
    /// Drain and terminate.
    #[serde(skip_serializing_if = "is_zero")]
    pub drain_and_terminate: Option<bool>,
    /// Max unavailable.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_unavailable: Option<IntOrString>,
    /// Max surge.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_surge: Option<IntOrString>,
}
