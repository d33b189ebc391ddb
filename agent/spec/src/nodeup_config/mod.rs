//! The configuration of one instance group's nodes.

mod read;
mod sides;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::api::APISpec;
use crate::authentication::AuthenticationSpec;
use crate::cluster::cluster_spec::ConfigStoreSpec;
use crate::cluster::iam::DiscoveryServiceOptions;
use crate::containerd::{ContainerdConfig, GVisorConfig, NvidiaGPUConfig};
use crate::customization::{FileAssetSpec, HookSpec, VolumeMountSpec};
use crate::kube_apiserver::KubeAPIServerConfig;
use crate::kube_controller_manager::KubeControllerManagerConfig;
use crate::kube_proxy::KubeProxyConfig;
use crate::kube_scheduler::KubeSchedulerConfig;
use crate::kubelet::KubeletConfigSpec;
use crate::networking::NetworkingSpec;
use crate::omit::is_zero;
use crate::openstack::OpenstackSpec;

pub use read::HashMismatch;

/// The configuration of an instance group's nodes, `nodeupconfig.yaml` (upstream:
/// `pkg/apis/nodeup/config.go`, `Config`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct NodeupConfig {
    /// Files to download, by architecture: each `hash@url`, more URLs with commas between them.
    #[serde(skip_serializing_if = "is_zero")]
    pub assets: BTreeMap<String, Vec<String>>,
    /// Container images to load before anything runs, by architecture.
    #[serde(rename = "images", skip_serializing_if = "is_zero")]
    pub images: BTreeMap<String, Vec<Image>>,
    /// The cluster's name.
    #[serde(skip_serializing_if = "is_zero")]
    pub cluster_name: String,
    /// More addresses in the API server's certificate.
    #[serde(rename = "ApiserverAdditionalIPs", skip_serializing_if = "is_zero")]
    pub apiserver_additional_ips: Vec<String>,
    /// Version of Kubernetes, or the URL of a build.
    pub kubernetes_version: String,
    /// Packages that the user adds.
    #[serde(rename = "packages", skip_serializing_if = "is_zero")]
    pub packages: Vec<String>,
    /// Where key sets and secrets are; only API servers have it.
    #[serde(rename = "configStore", skip_serializing_if = "is_zero")]
    pub config_store: Option<ConfigStoreSpec>,
    /// Names of the etcd clusters.
    #[serde(skip_serializing_if = "is_zero")]
    pub etcd_cluster_names: Vec<String>,
    /// URLs of the manifests of etcd's pods.
    #[serde(rename = "etcdManifests", skip_serializing_if = "is_zero")]
    pub etcd_manifests: Vec<String>,
    /// URL of the manifest of the pod that applies addons.
    #[serde(rename = "channelsManifest", skip_serializing_if = "is_zero")]
    pub channels_manifest: String,
    /// PEM certificates of each authority, by key set.
    #[serde(rename = "CAs")]
    pub cas: BTreeMap<String, String>,
    /// Id of the primary key, by key set.
    #[serde(rename = "KeypairIDs")]
    pub keypair_ids: BTreeMap<String, String>,
    /// The group's first machine type, for network plugins that count addresses.
    #[serde(skip_serializing_if = "is_zero")]
    pub default_machine_type: Option<String>,
    /// Whether the machine reports to its auto scaling group when it is ready.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_lifecycle_hook: bool,
    /// Manifests of more static pods.
    #[serde(rename = "staticManifests", skip_serializing_if = "is_zero")]
    pub static_manifests: Vec<StaticManifest>,
    /// The kubelet.
    pub kubelet_config: KubeletConfigSpec,
    /// kube-proxy; `None` where it does not run as a static pod.
    pub kube_proxy: Option<KubeProxyConfig>,
    /// As much of the network as a node needs to know.
    pub networking: NetworkingSpec,
    /// Whether the standard CNI plugins are installed.
    #[serde(rename = "InstallCNIAssets", skip_serializing_if = "is_zero")]
    pub install_cni_assets: bool,
    /// Whether Cilium has an etcd cluster.
    #[serde(skip_serializing_if = "is_zero")]
    pub use_cilium_etcd: bool,
    /// Whether the network is made of kubenet.
    #[serde(skip_serializing_if = "is_zero")]
    pub uses_kubenet: bool,
    /// Whether clocks are left alone.
    #[serde(rename = "NTPUnmanaged", skip_serializing_if = "is_zero")]
    pub ntp_unmanaged: bool,
    /// Ports of Services on nodes.
    #[serde(skip_serializing_if = "is_zero")]
    pub service_node_port_range: String,
    /// Lines of kernel parameters, comments among them.
    #[serde(skip_serializing_if = "is_zero")]
    pub sysctl_parameters: Vec<String>,
    /// Whether the machine updates itself: `automatic` or `external`.
    pub update_policy: String,
    /// Volumes to format and mount.
    #[serde(skip_serializing_if = "is_zero")]
    pub volume_mounts: Vec<VolumeMountSpec>,
    /// Files that the user adds.
    #[serde(skip_serializing_if = "is_zero")]
    pub file_assets: Vec<FileAssetSpec>,
    /// Units that the user adds: the group's, then the cluster's.
    #[serde(with = "sides")]
    pub hooks: Vec<Vec<HookSpec>>,
    /// containerd.
    #[serde(rename = "containerdConfig", skip_serializing_if = "is_zero")]
    pub containerd_config: Option<ContainerdConfig>,
    /// The API server, where one runs.
    #[serde(rename = "APIServerConfig", skip_serializing_if = "is_zero")]
    pub api_server_config: Option<APIServerConfig>,
    /// The rest of the control plane, where it runs.
    #[serde(skip_serializing_if = "is_zero")]
    pub control_plane_config: Option<ControlPlaneConfig>,
    /// The DNS zone of the cluster's names.
    #[serde(rename = "DNSZone", skip_serializing_if = "is_zero")]
    pub dns_zone: String,
    /// NVIDIA GPUs.
    #[serde(rename = "NvidiaGPU", skip_serializing_if = "is_zero")]
    pub nvidia_gpu: Option<NvidiaGPUConfig>,
    /// The sandboxed runtime gVisor, where the group has it.
    #[serde(rename = "GVisor", skip_serializing_if = "is_zero")]
    pub gvisor: Option<GVisorConfig>,
    /// Whether load balancers of Services leave the nodes' security group alone (AWS).
    #[serde(rename = "disableSecurityGroupIngress", skip_serializing_if = "is_zero")]
    pub disable_security_group_ingress: Option<bool>,
    /// Security group of all load balancers of Services (AWS).
    #[serde(rename = "elbSecurityGroup", skip_serializing_if = "is_zero")]
    pub elb_security_group: Option<String>,
    /// Whether network load balancers of Services get security groups (AWS).
    #[serde(rename = "nlbSecurityGroupMode", skip_serializing_if = "is_zero")]
    pub nlb_security_group_mode: Option<String>,
    /// IP families of a node's addresses, in order (AWS).
    #[serde(rename = "nodeIPFamilies", skip_serializing_if = "is_zero")]
    pub node_ip_families: Vec<String>,
    /// Whether nodes are named by their private DNS name (AWS).
    #[serde(rename = "useIPBasedNodeNames", skip_serializing_if = "is_zero")]
    pub use_ip_based_node_names: bool,
    /// Images to pull while the machine is in a warm pool (AWS).
    #[serde(rename = "warmPoolImages", skip_serializing_if = "is_zero")]
    pub warm_pool_images: Vec<String>,
    /// The administrator's name (Azure).
    #[serde(skip_serializing_if = "is_zero")]
    pub azure_admin_user: String,
    /// Whether the cluster spans zones (GCE).
    #[serde(rename = "multizone", skip_serializing_if = "is_zero")]
    pub multizone: Option<bool>,
    /// Tags of nodes, for firewall rules (GCE).
    #[serde(rename = "nodeTags", skip_serializing_if = "is_zero")]
    pub node_tags: Option<String>,
    /// Prefix of nodes' names (GCE).
    #[serde(rename = "nodeInstancePrefix", skip_serializing_if = "is_zero")]
    pub node_instance_prefix: Option<String>,
    /// OpenStack.
    #[serde(skip_serializing_if = "is_zero")]
    pub openstack: Option<OpenstackSpec>,
    /// Whether the cluster has no DNS, and nodes find the API by address.
    #[serde(rename = "usesNoneDNS")]
    pub uses_none_dns: bool,
    /// The service that tells others how to verify service account tokens.
    #[serde(rename = "discoveryServiceWithUniverse", skip_serializing_if = "is_zero")]
    pub discovery_service: Option<DiscoveryServiceOptions>,
}

/// A container image to load before anything runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Image {
    /// The name by which pods refer to it.
    #[serde(skip_serializing_if = "is_zero")]
    pub name: String,
    /// URLs of its archive.
    #[serde(skip_serializing_if = "is_zero")]
    pub sources: Vec<String>,
    /// SHA-256 of its archive.
    #[serde(skip_serializing_if = "is_zero")]
    pub hash: String,
}

/// The manifest of a static pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StaticManifest {
    /// What it is called.
    #[serde(skip_serializing_if = "is_zero")]
    pub key: String,
    /// Where it is, below the cluster's folder in the state store.
    #[serde(skip_serializing_if = "is_zero")]
    pub path: String,
}

/// What a machine with an API server needs to know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct APIServerConfig {
    /// Domain of names inside the cluster.
    #[serde(rename = "ClusterDNSDomain")]
    pub cluster_dns_domain: String,
    /// kube-apiserver.
    #[serde(rename = "KubeAPIServer")]
    pub kube_api_server: Option<KubeAPIServerConfig>,
    /// How the Kubernetes API is reached.
    #[serde(rename = "API")]
    pub api: APISpec,
    /// Whom the API server believes.
    #[serde(skip_serializing_if = "is_zero")]
    pub authentication: Option<AuthenticationSpec>,
    /// Hash of the secret `encryptionconfig`: URL-safe base64 of its SHA-256.
    #[serde(skip_serializing_if = "is_zero")]
    pub encryption_config_secret_hash: String,
    /// PEM public keys that verify service account tokens.
    pub service_account_public_keys: String,
}

/// What a machine with the rest of the control plane needs to know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct ControlPlaneConfig {
    /// kube-controller-manager.
    pub kube_controller_manager: KubeControllerManagerConfig,
    /// kube-scheduler.
    pub kube_scheduler: KubeSchedulerConfig,
}
