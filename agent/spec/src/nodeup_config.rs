//! The configuration of one instance group's nodes.

mod read;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_with::apply;

use crate::api::APISpec;
use crate::authentication::AuthenticationSpec;
use crate::cluster::cluster_spec::ConfigStoreSpec;
use crate::cluster::dns::GossipConfig;
use crate::cluster::iam::DiscoveryServiceOptions;
use crate::containerd::{ContainerdConfig, GVisorConfig, NvidiaGPUConfig};
use crate::customization::{FileAssetSpec, HookSpec, VolumeMountSpec};
use crate::go_yaml::is_zero;
use crate::kube_apiserver::KubeAPIServerConfig;
use crate::kube_controller_manager::KubeControllerManagerConfig;
use crate::kube_proxy::KubeProxyConfig;
use crate::kube_scheduler::KubeSchedulerConfig;
use crate::kubelet::KubeletConfigSpec;
use crate::networking::NetworkingSpec;
use crate::openstack::OpenstackSpec;

/// The configuration of an instance group's nodes, `nodeupconfig.yaml` (upstream:
/// `pkg/apis/nodeup/config.go`, `Config`).
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct NodeupConfig {
    /// Files to download, by architecture. Each text is `hash@url`. It may have additional URLs, separated by commas.
    pub assets: BTreeMap<String, Vec<String>>,
    /// Container images to load before pods start, by architecture.
    #[serde(rename = "images")]
    pub images: BTreeMap<String, Vec<Image>>,
    pub cluster_name: String,
    /// URLs of the channels whose add-ons protokube applies (kOps up to 1.35).
    #[serde(rename = "channels")]
    pub channels: Vec<String>,
    /// Additional addresses for the API server's certificate.
    #[serde(rename = "ApiserverAdditionalIPs")]
    pub apiserver_additional_ips: Vec<String>,
    /// Version of Kubernetes, or the URL of a build.
    #[serde_with(skip_apply)]
    pub kubernetes_version: String,
    /// Packages that the user adds to nodes.
    #[serde(rename = "packages")]
    pub packages: Vec<String>,
    /// Locations of keysets and secrets. Only machines with an API server have this field.
    #[serde(rename = "configStore")]
    pub config_store: Option<ConfigStoreSpec>,
    pub etcd_cluster_names: Vec<String>,
    /// URLs of the manifests of etcd's pods.
    #[serde(rename = "etcdManifests")]
    pub etcd_manifests: Vec<String>,
    /// URL of the manifest of the pod that applies add-ons.
    #[serde(rename = "channelsManifest")]
    pub channels_manifest: String,
    /// PEM certificates of each authority, by keyset.
    #[serde(rename = "CAs")]
    #[serde_with(skip_apply)]
    pub cas: BTreeMap<String, String>,
    /// Id of the primary key, by keyset.
    #[serde(rename = "KeypairIDs")]
    #[serde_with(skip_apply)]
    pub keypair_ids: BTreeMap<String, String>,
    /// The group's first machine type. kOps sets it only if the maximum number of pods depends on the machine type.
    pub default_machine_type: Option<String>,
    /// Whether the machine tells its auto scaling group when it is ready.
    pub enable_lifecycle_hook: bool,
    /// Manifests of additional static pods.
    #[serde(rename = "staticManifests")]
    pub static_manifests: Vec<StaticManifest>,
    #[serde_with(skip_apply)]
    pub kubelet_config: KubeletConfigSpec,
    /// kube-proxy's settings. `None` if kube-proxy does not run as a static pod.
    #[serde_with(skip_apply)]
    pub kube_proxy: Option<KubeProxyConfig>,
    /// The part of the network settings that nodes need.
    #[serde_with(skip_apply)]
    pub networking: NetworkingSpec,
    /// Whether the node installs the standard CNI plugins.
    #[serde(rename = "InstallCNIAssets")]
    pub install_cni_assets: bool,
    /// Whether Cilium has its own etcd cluster.
    pub use_cilium_etcd: bool,
    pub uses_kubenet: bool,
    /// Whether the user configures time synchronization, so that kOps does not.
    #[serde(rename = "NTPUnmanaged")]
    pub ntp_unmanaged: bool,
    pub service_node_port_range: String,
    /// Lines of a sysctl file: kernel parameters and comments.
    pub sysctl_parameters: Vec<String>,
    /// Whether the machine installs operating system updates: `automatic` or `external` (it does not).
    #[serde_with(skip_apply)]
    pub update_policy: String,
    /// Volumes to format and mount.
    pub volume_mounts: Vec<VolumeMountSpec>,
    /// Files that the user adds to nodes.
    pub file_assets: Vec<FileAssetSpec>,
    /// Units that the user adds to nodes: the group's list, then the cluster's list.
    #[serde(serialize_with = "serialize_hooks", deserialize_with = "deserialize_hooks")]
    #[serde_with(skip_apply)]
    pub hooks: Vec<Vec<HookSpec>>,
    #[serde(rename = "containerdConfig")]
    pub containerd_config: Option<ContainerdConfig>,
    /// Settings of the API server, on machines that run one.
    #[serde(rename = "APIServerConfig")]
    pub api_server_config: Option<APIServerConfig>,
    /// Settings of kube-controller-manager and kube-scheduler, on control-plane machines.
    pub control_plane_config: Option<ControlPlaneConfig>,
    /// Settings of gossip, which distributes the cluster's names without DNS (kOps up to 1.36).
    pub gossip_config: Option<GossipConfig>,
    /// The name or id of the DNS zone that contains the cluster's names.
    #[serde(rename = "DNSZone")]
    pub dns_zone: String,
    #[serde(rename = "NvidiaGPU")]
    pub nvidia_gpu: Option<NvidiaGPUConfig>,
    /// The sandboxed runtime gVisor, if the group uses it.
    #[serde(rename = "GVisor")]
    pub gvisor: Option<GVisorConfig>,
    /// Whether load balancers of Services leave the nodes' security group unchanged (AWS).
    #[serde(rename = "disableSecurityGroupIngress")]
    pub disable_security_group_ingress: Option<bool>,
    /// Security group for all load balancers of Services (AWS).
    #[serde(rename = "elbSecurityGroup")]
    pub elb_security_group: Option<String>,
    /// If `Managed`, network load balancers of Services get security groups (AWS).
    #[serde(rename = "nlbSecurityGroupMode")]
    pub nlb_security_group_mode: Option<String>,
    /// IP families of a node's addresses, in order (AWS).
    #[serde(rename = "nodeIPFamilies")]
    pub node_ip_families: Vec<String>,
    /// Whether nodes are named by their private DNS name (AWS).
    #[serde(rename = "useIPBasedNodeNames")]
    pub use_ip_based_node_names: bool,
    /// Images to pull while the machine is in a warm pool (AWS).
    #[serde(rename = "warmPoolImages")]
    pub warm_pool_images: Vec<String>,
    pub azure_admin_user: String,
    /// The location of the cluster's resource group (Azure, kOps up to 1.35).
    pub azure_location: String,
    /// The cluster's subscription (Azure, kOps up to 1.35).
    #[serde(rename = "AzureSubscriptionID")]
    pub azure_subscription_id: String,
    /// The cluster's tenant (Azure, kOps up to 1.35).
    #[serde(rename = "AzureTenantID")]
    pub azure_tenant_id: String,
    /// The cluster's resource group (Azure, kOps up to 1.35).
    pub azure_resource_group: String,
    /// The cluster's route table (Azure, kOps up to 1.35).
    pub azure_route_table_name: String,
    /// Whether the cluster spans several zones (GCE).
    #[serde(rename = "multizone")]
    pub multizone: Option<bool>,
    /// Network tags of nodes, to which firewall rules apply (GCE).
    #[serde(rename = "nodeTags")]
    pub node_tags: Option<String>,
    /// Prefix of nodes' names (GCE).
    #[serde(rename = "nodeInstancePrefix")]
    pub node_instance_prefix: Option<String>,
    pub openstack: Option<OpenstackSpec>,
    /// Whether the cluster's names are distributed by gossip. kOps up to 1.36 always writes this field. Later releases never write it.
    #[serde(rename = "usesLegacyGossip")]
    pub uses_legacy_gossip: Option<bool>,
    /// Whether the cluster has no DNS. If so, nodes reach the API by address.
    #[serde(rename = "usesNoneDNS")]
    #[serde_with(skip_apply)]
    pub uses_none_dns: bool,
    /// The hosted service that publishes the public keys that verify service account tokens.
    #[serde(rename = "discoveryServiceWithUniverse")]
    pub discovery_service: Option<DiscoveryServiceOptions>,
}

impl NodeupConfig {
    /// The DNS name by which nodes reach the API server.
    pub fn api_internal_name(&self) -> String {
        format!("api.internal.{}", self.cluster_name)
    }

    /// Whether the node accepts any certificate of OpenStack's API without verification.
    pub fn takes_any_certificate_of_openstack(&self) -> bool {
        self.openstack.as_ref().is_some_and(|openstack| openstack.insecure_skip_verify == Some(true))
    }
}

/// Writes the group's and the cluster's hooks. Like kOps, writes an empty list as null.
fn serialize_hooks<S: Serializer>(hooks: &[Vec<HookSpec>], serializer: S) -> Result<S::Ok, S::Error> {
    let lists: Vec<Option<&Vec<HookSpec>>> =
        hooks.iter().map(|list| Some(list).filter(|list| !list.is_empty())).collect();
    Some(lists).filter(|lists| !lists.is_empty()).serialize(serializer)
}

/// Reads the group's and the cluster's hooks. Null means an empty list.
fn deserialize_hooks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Vec<HookSpec>>, D::Error> {
    let lists: Option<Vec<Option<Vec<HookSpec>>>> = Deserialize::deserialize(deserializer)?;
    Ok(lists.unwrap_or_default().into_iter().map(Option::unwrap_or_default).collect())
}

/// A container image to load before pods start.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Image {
    /// The name by which pods refer to the image.
    pub name: String,
    pub sources: Vec<String>,
    /// SHA-256 of the image's archive.
    pub hash: String,
}

/// A manifest of a static pod, which kOps stores in the state store.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StaticManifest {
    pub key: String,
    /// The manifest's path below the cluster's folder in the state store.
    pub path: String,
}

/// Settings for a machine with an API server.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct APIServerConfig {
    #[serde(rename = "ClusterDNSDomain")]
    #[serde_with(skip_apply)]
    pub cluster_dns_domain: String,
    #[serde(rename = "KubeAPIServer")]
    #[serde_with(skip_apply)]
    pub kube_api_server: Option<KubeAPIServerConfig>,
    /// How clients reach the Kubernetes API.
    #[serde(rename = "API")]
    #[serde_with(skip_apply)]
    pub api: APISpec,
    pub authentication: Option<AuthenticationSpec>,
    /// Hash of the secret `encryptionconfig`: URL-safe base64 of the SHA-256 of the secret.
    pub encryption_config_secret_hash: String,
    /// PEM public keys that verify service account tokens.
    #[serde_with(skip_apply)]
    pub service_account_public_keys: String,
}

/// Settings for a control-plane machine, in addition to the API server's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct ControlPlaneConfig {
    pub kube_controller_manager: KubeControllerManagerConfig,
    pub kube_scheduler: KubeSchedulerConfig,
}
