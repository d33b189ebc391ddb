//! Settings of the network plugins, except Calico's and Cilium's.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::omit::is_zero;
use super::scalars::Quantity;

/// The classic network of Kubernetes before 1.4; it has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassicNetworkingSpec {}

/// kubenet; it has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubenetNetworkingSpec {}

/// A plugin of the user's on top of kubenet; it has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalNetworkingSpec {}

/// A plugin of the user's, by CNI.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CNINetworkingSpec {
    /// Whether it takes addresses of the machine's network for pods.
    #[serde(rename = "usesSecondaryIP", skip_serializing_if = "is_zero")]
    pub uses_secondary_ip: bool,
}

/// Kopeio; it has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KopeioNetworkingSpec {}

/// Weave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WeaveNetworkingSpec {
    /// MTU of its network.
    #[serde(skip_serializing_if = "is_zero")]
    pub mtu: Option<i32>,
    /// Most peers of a node.
    #[serde(skip_serializing_if = "is_zero")]
    pub conn_limit: Option<i32>,
    /// Whether to keep clients' addresses where traffic is local.
    #[serde(skip_serializing_if = "is_zero")]
    pub no_masq_local: Option<i32>,
    /// Memory that weave requests.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_request: Option<Quantity>,
    /// CPU that weave requests.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_request: Option<Quantity>,
    /// Memory that weave is limited to.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_limit: Option<Quantity>,
    /// CPU that weave is limited to.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_limit: Option<Quantity>,
    /// More arguments of weave-kube.
    #[serde(skip_serializing_if = "is_zero")]
    pub net_extra_args: String,
    /// Memory that weave-npc requests.
    #[serde(skip_serializing_if = "is_zero")]
    pub npc_memory_request: Option<Quantity>,
    /// CPU that weave-npc requests.
    #[serde(rename = "npcCPURequest", skip_serializing_if = "is_zero")]
    pub npc_cpu_request: Option<Quantity>,
    /// Memory that weave-npc is limited to.
    #[serde(skip_serializing_if = "is_zero")]
    pub npc_memory_limit: Option<Quantity>,
    /// CPU that weave-npc is limited to.
    #[serde(rename = "npcCPULimit", skip_serializing_if = "is_zero")]
    pub npc_cpu_limit: Option<Quantity>,
    /// More arguments of weave-npc.
    #[serde(skip_serializing_if = "is_zero")]
    pub npc_extra_args: String,
    /// Tag of its images.
    #[serde(skip_serializing_if = "is_zero")]
    pub version: String,
}

/// Flannel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FlannelNetworkingSpec {
    /// How packets are carried: `vxlan` or `udp`.
    #[serde(skip_serializing_if = "is_zero")]
    pub backend: String,
    /// Seconds between two refreshes of iptables rules.
    #[serde(skip_serializing_if = "is_zero")]
    pub iptables_resync_seconds: Option<i32>,
}

/// kube-router.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KuberouterNetworkingSpec {
    /// Whether network policies are made with nftables.
    #[serde(rename = "useNFTablesForNetpol", skip_serializing_if = "is_zero")]
    pub use_nftables_for_netpol: Option<bool>,
}

/// Romana.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RomanaNetworkingSpec {
    /// Address of its daemon's Service.
    #[serde(rename = "daemonServiceIP", skip_serializing_if = "is_zero")]
    pub daemon_service_ip: String,
    /// Address of its etcd's Service.
    #[serde(rename = "etcdServiceIP", skip_serializing_if = "is_zero")]
    pub etcd_service_ip: String,
}

/// The Amazon VPC CNI.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AmazonVPCNetworkingSpec {
    /// Its image.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: String,
    /// Image of its init container.
    #[serde(skip_serializing_if = "is_zero")]
    pub init_image: String,
    /// Image of its agent for network policies.
    #[serde(skip_serializing_if = "is_zero")]
    pub network_policy_agent_image: String,
    /// Environment variables of its container.
    #[serde(skip_serializing_if = "is_zero")]
    pub env: Vec<EnvVar>,
}

/// Lyft's CNI for VPCs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LyftVPCNetworkingSpec {
    /// Tags of the subnets that pods are in.
    #[serde(skip_serializing_if = "is_zero")]
    pub subnet_tags: BTreeMap<String, String>,
}

/// Alias IPs of Google Cloud; they have no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GCPNetworkingSpec {}

/// kindnet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KindnetNetworkingSpec {
    /// Tag of its image.
    #[serde(skip_serializing_if = "is_zero")]
    pub version: String,
    /// Whether network policies are enforced.
    #[serde(skip_serializing_if = "is_zero")]
    pub network_policies: Option<bool>,
    /// Whether admin network policies are enforced.
    #[serde(skip_serializing_if = "is_zero")]
    pub admin_network_policies: Option<bool>,
    /// Whether the baseline admin network policy is enforced.
    #[serde(skip_serializing_if = "is_zero")]
    pub baseline_admin_network_policies: Option<bool>,
    /// Whether answers of DNS are cached on nodes.
    #[serde(skip_serializing_if = "is_zero")]
    pub dns_caching: Option<bool>,
    /// Whether IPv6 pods reach IPv4 hosts.
    #[serde(skip_serializing_if = "is_zero")]
    pub nat64: Option<bool>,
    /// Packets after which a connection takes the fast path.
    #[serde(skip_serializing_if = "is_zero")]
    pub fast_path_threshold: Option<i32>,
    /// How traffic that leaves the cluster is masqueraded.
    #[serde(skip_serializing_if = "is_zero")]
    pub masquerade: Option<KindnetMasqueradeSpec>,
    /// Verbosity of its log.
    #[serde(skip_serializing_if = "is_zero")]
    pub log_level: Option<i32>,
}

/// How kindnet masquerades traffic that leaves the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KindnetMasqueradeSpec {
    /// Whether it does.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: Option<bool>,
    /// Destinations that traffic is not masqueraded to.
    #[serde(rename = "nonMasqueradeCIDRs", skip_serializing_if = "is_zero")]
    pub non_masquerade_cidrs: Vec<String>,
}

/// An environment variable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EnvVar {
    /// Its name.
    pub name: String,
    /// Its value.
    #[serde(skip_serializing_if = "is_zero")]
    pub value: String,
}
