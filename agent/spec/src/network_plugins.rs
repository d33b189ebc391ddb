//! Settings of the network plugins, except Calico's and Cilium's.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::apply;

use super::go_yaml::is_zero;
use super::scalars::Quantity;

/// The classic network of Kubernetes before 1.4. It has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassicNetworkingSpec {}

/// kubenet. It has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubenetNetworkingSpec {}

/// A network that the user installs on top of kubenet. It has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalNetworkingSpec {}

/// A CNI plugin that the user installs.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CNINetworkingSpec {
    /// Whether pods have addresses from the machine's network.
    #[serde(rename = "usesSecondaryIP")]
    pub uses_secondary_ip: bool,
}

/// Kopeio. It has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KopeioNetworkingSpec {}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WeaveNetworkingSpec {
    pub mtu: Option<i32>,
    /// Maximum number of peers of a node.
    pub conn_limit: Option<i32>,
    /// Whether packets to local pods keep the client's address.
    pub no_masq_local: Option<i32>,
    pub memory_request: Option<Quantity>,
    pub cpu_request: Option<Quantity>,
    pub memory_limit: Option<Quantity>,
    pub cpu_limit: Option<Quantity>,
    pub net_extra_args: String,
    pub npc_memory_request: Option<Quantity>,
    #[serde(rename = "npcCPURequest")]
    pub npc_cpu_request: Option<Quantity>,
    /// Memory limit of weave-npc.
    pub npc_memory_limit: Option<Quantity>,
    /// CPU limit of weave-npc.
    #[serde(rename = "npcCPULimit")]
    pub npc_cpu_limit: Option<Quantity>,
    pub npc_extra_args: String,
    pub version: String,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FlannelNetworkingSpec {
    /// How Flannel carries packets between nodes: `vxlan` or `udp`.
    pub backend: String,
    /// Interval between updates of iptables rules, in seconds.
    pub iptables_resync_seconds: Option<i32>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KuberouterNetworkingSpec {
    /// Whether kube-router implements network policies with nftables.
    #[serde(rename = "useNFTablesForNetpol")]
    pub use_nftables_for_netpol: Option<bool>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RomanaNetworkingSpec {
    #[serde(rename = "daemonServiceIP")]
    pub daemon_service_ip: String,
    #[serde(rename = "etcdServiceIP")]
    pub etcd_service_ip: String,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AmazonVPCNetworkingSpec {
    pub image: String,
    pub init_image: String,
    pub network_policy_agent_image: String,
    pub env: Vec<EnvVar>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LyftVPCNetworkingSpec {
    /// Tags of the subnets for pods.
    pub subnet_tags: BTreeMap<String, String>,
}

/// Alias IPs of Google Cloud. They have no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GCPNetworkingSpec {}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KindnetNetworkingSpec {
    pub version: String,
    /// Whether kindnet enforces network policies.
    pub network_policies: Option<bool>,
    pub admin_network_policies: Option<bool>,
    pub baseline_admin_network_policies: Option<bool>,
    pub dns_caching: Option<bool>,
    /// Whether IPv6 pods can reach IPv4 hosts.
    pub nat64: Option<bool>,
    /// Number of packets of a connection after which kindnet uses the fast path.
    pub fast_path_threshold: Option<i32>,
    /// How traffic that leaves the cluster is masqueraded.
    pub masquerade: Option<KindnetMasqueradeSpec>,
    pub log_level: Option<i32>,
}

/// How kindnet masquerades traffic that leaves the cluster.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KindnetMasqueradeSpec {
    pub enabled: Option<bool>,
    /// Destination ranges to which traffic is not masqueraded.
    #[serde(rename = "nonMasqueradeCIDRs")]
    pub non_masquerade_cidrs: Vec<String>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EnvVar {
    #[serde_with(skip_apply)]
    pub name: String,
    pub value: String,
}
