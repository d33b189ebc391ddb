//! The configuration of one instance group's nodes.

mod read;
mod sides;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::spec::api::APISpec;
use crate::spec::authentication::AuthenticationSpec;
use crate::spec::cluster::cluster_spec::ConfigStoreSpec;
use crate::spec::cluster::iam::DiscoveryServiceOptions;
use crate::spec::containerd::{ContainerdConfig, GVisorConfig, NvidiaGPUConfig};
use crate::spec::customization::{FileAssetSpec, HookSpec, VolumeMountSpec};
use crate::spec::kube_apiserver::KubeAPIServerConfig;
use crate::spec::kube_controller_manager::KubeControllerManagerConfig;
use crate::spec::kube_proxy::KubeProxyConfig;
use crate::spec::kube_scheduler::KubeSchedulerConfig;
use crate::spec::kubelet::KubeletConfigSpec;
use crate::spec::networking::NetworkingSpec;
use crate::spec::omit::is_zero;
use crate::spec::openstack::OpenstackSpec;

pub use read::HashMismatch;

/// `Config`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct NodeupConfig {
    /// Assets.
    #[serde(skip_serializing_if = "is_zero")]
    pub assets: BTreeMap<String, Vec<String>>,
    /// Images.
    #[serde(rename = "images", skip_serializing_if = "is_zero")]
    pub images: BTreeMap<String, Vec<Image>>,
    /// Cluster name.
    #[serde(skip_serializing_if = "is_zero")]
    pub cluster_name: String,
    /// Apiserver additional ips.
    #[serde(rename = "ApiserverAdditionalIPs", skip_serializing_if = "is_zero")]
    pub apiserver_additional_ips: Vec<String>,
    /// Kubernetes version.
    pub kubernetes_version: String,
    /// Packages.
    #[serde(rename = "packages", skip_serializing_if = "is_zero")]
    pub packages: Vec<String>,
    /// Config store.
    #[serde(rename = "configStore", skip_serializing_if = "is_zero")]
    pub config_store: Option<ConfigStoreSpec>,
    /// Etcd cluster names.
    #[serde(skip_serializing_if = "is_zero")]
    pub etcd_cluster_names: Vec<String>,
    /// Etcd manifests.
    #[serde(rename = "etcdManifests", skip_serializing_if = "is_zero")]
    pub etcd_manifests: Vec<String>,
    /// Channels manifest.
    #[serde(rename = "channelsManifest", skip_serializing_if = "is_zero")]
    pub channels_manifest: String,
    /// Cas.
    #[serde(rename = "CAs")]
    pub cas: BTreeMap<String, String>,
    /// Keypair ids.
    #[serde(rename = "KeypairIDs")]
    pub keypair_ids: BTreeMap<String, String>,
    /// Default machine type.
    #[serde(skip_serializing_if = "is_zero")]
    pub default_machine_type: Option<String>,
    /// Enable lifecycle hook.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_lifecycle_hook: bool,
    /// Static manifests.
    #[serde(rename = "staticManifests", skip_serializing_if = "is_zero")]
    pub static_manifests: Vec<StaticManifest>,
    /// Kubelet config.
    pub kubelet_config: KubeletConfigSpec,
    /// Kube proxy.
    pub kube_proxy: Option<KubeProxyConfig>,
    /// Networking.
    pub networking: NetworkingSpec,
    /// Install CNI assets.
    #[serde(rename = "InstallCNIAssets", skip_serializing_if = "is_zero")]
    pub install_cni_assets: bool,
    /// Use cilium etcd.
    #[serde(skip_serializing_if = "is_zero")]
    pub use_cilium_etcd: bool,
    /// Uses kubenet.
    #[serde(skip_serializing_if = "is_zero")]
    pub uses_kubenet: bool,
    /// NTP unmanaged.
    #[serde(rename = "NTPUnmanaged", skip_serializing_if = "is_zero")]
    pub ntp_unmanaged: bool,
    /// Service node port range.
    #[serde(skip_serializing_if = "is_zero")]
    pub service_node_port_range: String,
    /// Sysctl parameters.
    #[serde(skip_serializing_if = "is_zero")]
    pub sysctl_parameters: Vec<String>,
    /// Update policy.
    pub update_policy: String,
    /// Volume mounts.
    #[serde(skip_serializing_if = "is_zero")]
    pub volume_mounts: Vec<VolumeMountSpec>,
    /// File assets.
    #[serde(skip_serializing_if = "is_zero")]
    pub file_assets: Vec<FileAssetSpec>,
    /// Hooks.
    #[serde(with = "sides")]
    pub hooks: Vec<Vec<HookSpec>>,
    /// Containerd config.
    #[serde(rename = "containerdConfig", skip_serializing_if = "is_zero")]
    pub containerd_config: Option<ContainerdConfig>,
    /// API server config.
    #[serde(rename = "APIServerConfig", skip_serializing_if = "is_zero")]
    pub api_server_config: Option<APIServerConfig>,
    /// Control plane config.
    #[serde(skip_serializing_if = "is_zero")]
    pub control_plane_config: Option<ControlPlaneConfig>,
    /// DNS zone.
    #[serde(rename = "DNSZone", skip_serializing_if = "is_zero")]
    pub dns_zone: String,
    /// Nvidia GPU.
    #[serde(rename = "NvidiaGPU", skip_serializing_if = "is_zero")]
    pub nvidia_gpu: Option<NvidiaGPUConfig>,
    /// G visor.
    #[serde(rename = "GVisor", skip_serializing_if = "is_zero")]
    pub gvisor: Option<GVisorConfig>,
    /// Disable security group ingress.
    #[serde(rename = "disableSecurityGroupIngress", skip_serializing_if = "is_zero")]
    pub disable_security_group_ingress: Option<bool>,
    /// Elb security group.
    #[serde(rename = "elbSecurityGroup", skip_serializing_if = "is_zero")]
    pub elb_security_group: Option<String>,
    /// Nlb security group mode.
    #[serde(rename = "nlbSecurityGroupMode", skip_serializing_if = "is_zero")]
    pub nlb_security_group_mode: Option<String>,
    /// Node IP families.
    #[serde(rename = "nodeIPFamilies", skip_serializing_if = "is_zero")]
    pub node_ip_families: Vec<String>,
    /// Use IP based node names.
    #[serde(rename = "useIPBasedNodeNames", skip_serializing_if = "is_zero")]
    pub use_ip_based_node_names: bool,
    /// Warm pool images.
    #[serde(rename = "warmPoolImages", skip_serializing_if = "is_zero")]
    pub warm_pool_images: Vec<String>,
    /// Azure admin user.
    #[serde(skip_serializing_if = "is_zero")]
    pub azure_admin_user: String,
    /// Multizone.
    #[serde(rename = "multizone", skip_serializing_if = "is_zero")]
    pub multizone: Option<bool>,
    /// Node tags.
    #[serde(rename = "nodeTags", skip_serializing_if = "is_zero")]
    pub node_tags: Option<String>,
    /// Node instance prefix.
    #[serde(rename = "nodeInstancePrefix", skip_serializing_if = "is_zero")]
    pub node_instance_prefix: Option<String>,
    /// Openstack.
    #[serde(skip_serializing_if = "is_zero")]
    pub openstack: Option<OpenstackSpec>,
    /// Uses none DNS.
    #[serde(rename = "usesNoneDNS")]
    pub uses_none_dns: bool,
    /// Discovery service with universe.
    #[serde(rename = "discoveryServiceWithUniverse", skip_serializing_if = "is_zero")]
    pub discovery_service: Option<DiscoveryServiceOptions>,
}

/// `Image`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Image {
    /// Name.
    #[serde(skip_serializing_if = "is_zero")]
    pub name: String,
    /// Sources.
    #[serde(skip_serializing_if = "is_zero")]
    pub sources: Vec<String>,
    /// Hash.
    #[serde(skip_serializing_if = "is_zero")]
    pub hash: String,
}

/// `StaticManifest`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StaticManifest {
    /// Key.
    #[serde(skip_serializing_if = "is_zero")]
    pub key: String,
    /// Path.
    #[serde(skip_serializing_if = "is_zero")]
    pub path: String,
}

/// `APIServerConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct APIServerConfig {
    /// Cluster DNS domain.
    #[serde(rename = "ClusterDNSDomain")]
    pub cluster_dns_domain: String,
    /// Kube API server.
    #[serde(rename = "KubeAPIServer")]
    pub kube_api_server: Option<KubeAPIServerConfig>,
    /// API.
    #[serde(rename = "API")]
    pub api: APISpec,
    /// Authentication.
    #[serde(skip_serializing_if = "is_zero")]
    pub authentication: Option<AuthenticationSpec>,
    /// Encryption config secret hash.
    #[serde(skip_serializing_if = "is_zero")]
    pub encryption_config_secret_hash: String,
    /// Service account public keys.
    pub service_account_public_keys: String,
}

/// `ControlPlaneConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct ControlPlaneConfig {
    /// Kube controller manager.
    pub kube_controller_manager: KubeControllerManagerConfig,
    /// Kube scheduler.
    pub kube_scheduler: KubeSchedulerConfig,
}
