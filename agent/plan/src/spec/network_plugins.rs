//! Settings of the network plugins, except Calico's and Cilium's.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::omit::is_zero;
use super::scalars::Quantity;

/// `ClassicNetworkingSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassicNetworkingSpec {}

/// `KubenetNetworkingSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubenetNetworkingSpec {}

/// `ExternalNetworkingSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalNetworkingSpec {}

/// `CNINetworkingSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CNINetworkingSpec {
    /// Uses secondary IP.
    #[serde(rename = "usesSecondaryIP", skip_serializing_if = "is_zero")]
    pub uses_secondary_ip: bool,
}

/// `KopeioNetworkingSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KopeioNetworkingSpec {}

/// `WeaveNetworkingSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WeaveNetworkingSpec {
    /// Mtu.
    #[serde(skip_serializing_if = "is_zero")]
    pub mtu: Option<i32>,
    /// Conn limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub conn_limit: Option<i32>,
    /// No masq local.
    #[serde(skip_serializing_if = "is_zero")]
    pub no_masq_local: Option<i32>,
    /// Memory request.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_request: Option<Quantity>,
    /// Cpu request.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_request: Option<Quantity>,
    /// Memory limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_limit: Option<Quantity>,
    /// Cpu limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_limit: Option<Quantity>,
    /// Net extra args.
    #[serde(skip_serializing_if = "is_zero")]
    pub net_extra_args: String,
    /// Npc memory request.
    #[serde(skip_serializing_if = "is_zero")]
    pub npc_memory_request: Option<Quantity>,
    /// Npc CPU request.
    #[serde(rename = "npcCPURequest", skip_serializing_if = "is_zero")]
    pub npc_cpu_request: Option<Quantity>,
    /// Npc memory limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub npc_memory_limit: Option<Quantity>,
    /// Npc CPU limit.
    #[serde(rename = "npcCPULimit", skip_serializing_if = "is_zero")]
    pub npc_cpu_limit: Option<Quantity>,
    /// Npc extra args.
    #[serde(skip_serializing_if = "is_zero")]
    pub npc_extra_args: String,
    /// Version.
    #[serde(skip_serializing_if = "is_zero")]
    pub version: String,
}

/// `FlannelNetworkingSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FlannelNetworkingSpec {
    /// Backend.
    #[serde(skip_serializing_if = "is_zero")]
    pub backend: String,
    /// Iptables resync seconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub iptables_resync_seconds: Option<i32>,
}

/// `KuberouterNetworkingSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KuberouterNetworkingSpec {
    /// Use NF tables for netpol.
    #[serde(rename = "useNFTablesForNetpol", skip_serializing_if = "is_zero")]
    pub use_nftables_for_netpol: Option<bool>,
}

/// `RomanaNetworkingSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RomanaNetworkingSpec {
    /// Daemon service IP.
    #[serde(rename = "daemonServiceIP", skip_serializing_if = "is_zero")]
    pub daemon_service_ip: String,
    /// Etcd service IP.
    #[serde(rename = "etcdServiceIP", skip_serializing_if = "is_zero")]
    pub etcd_service_ip: String,
}

/// `AmazonVPCNetworkingSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AmazonVPCNetworkingSpec {
    /// Image.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: String,
    /// Init image.
    #[serde(skip_serializing_if = "is_zero")]
    pub init_image: String,
    /// Network policy agent image.
    #[serde(skip_serializing_if = "is_zero")]
    pub network_policy_agent_image: String,
    /// Env.
    #[serde(skip_serializing_if = "is_zero")]
    pub env: Vec<EnvVar>,
}

/// `LyftVPCNetworkingSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LyftVPCNetworkingSpec {
    /// Subnet tags.
    #[serde(skip_serializing_if = "is_zero")]
    pub subnet_tags: BTreeMap<String, String>,
}

/// `GCPNetworkingSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GCPNetworkingSpec {}

/// `KindnetNetworkingSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KindnetNetworkingSpec {
    /// Version.
    #[serde(skip_serializing_if = "is_zero")]
    pub version: String,
    /// Network policies.
    #[serde(skip_serializing_if = "is_zero")]
    pub network_policies: Option<bool>,
    /// Admin network policies.
    #[serde(skip_serializing_if = "is_zero")]
    pub admin_network_policies: Option<bool>,
    /// Baseline admin network policies.
    #[serde(skip_serializing_if = "is_zero")]
    pub baseline_admin_network_policies: Option<bool>,
    /// Dns caching.
    #[serde(skip_serializing_if = "is_zero")]
    pub dns_caching: Option<bool>,
    /// Nat64.
    #[serde(skip_serializing_if = "is_zero")]
    pub nat64: Option<bool>,
    /// Fast path threshold.
    #[serde(skip_serializing_if = "is_zero")]
    pub fast_path_threshold: Option<i32>,
    /// Masquerade.
    #[serde(skip_serializing_if = "is_zero")]
    pub masquerade: Option<KindnetMasqueradeSpec>,
    /// Log level.
    #[serde(skip_serializing_if = "is_zero")]
    pub log_level: Option<i32>,
}

/// `KindnetMasqueradeSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KindnetMasqueradeSpec {
    /// Enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: Option<bool>,
    /// Non masquerade cidrs.
    #[serde(rename = "nonMasqueradeCIDRs", skip_serializing_if = "is_zero")]
    pub non_masquerade_cidrs: Vec<String>,
}

/// `EnvVar`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EnvVar {
    /// Name.
    pub name: String,
    /// Value.
    #[serde(skip_serializing_if = "is_zero")]
    pub value: String,
}
