//! Settings of DNS inside the cluster, and of the controllers that publish names outside of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::apply;

use crate::go_yaml::is_zero;
use crate::scalars::Quantity;

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeDNSConfig {
    pub cache_max_size: i64,
    pub cache_max_concurrent: i64,
    pub tolerations: Vec<Toleration>,
    /// Affinity of the DNS pods (`corev1.Affinity`).
    pub affinity: Option<serde_json::Value>,
    #[serde(rename = "coreDNSImage")]
    pub core_dns_image: String,
    /// Image of the autoscaler that sets the number of DNS pods.
    pub cpa_image: String,
    pub domain: String,
    /// The complete Corefile, in place of kOps' Corefile.
    pub external_core_file: String,
    /// The DNS server: `CoreDNS` or `KubeDNS`.
    pub provider: String,
    #[serde(rename = "serverIP")]
    pub server_ip: String,
    pub stub_domains: BTreeMap<String, Vec<String>>,
    /// Name servers for all names outside of the cluster.
    pub upstream_nameservers: Vec<String>,
    pub memory_request: Option<Quantity>,
    pub cpu_request: Option<Quantity>,
    pub memory_limit: Option<Quantity>,
    /// The DNS cache on each node.
    #[serde(rename = "nodeLocalDNS")]
    pub node_local_dns: Option<NodeLocalDNSConfig>,
    pub pod_annotations: BTreeMap<String, String>,
}

/// The DNS cache on each node.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeLocalDNSConfig {
    pub enabled: Option<bool>,
    /// The complete Corefile, in place of kOps' Corefile.
    pub external_core_file: String,
    pub additional_config: String,
    pub image: Option<String>,
    /// The address that the cache listens on.
    #[serde(rename = "localIP")]
    pub local_ip: String,
    /// Whether the cache forwards all queries to the cluster's DNS server.
    #[serde(rename = "forwardToKubeDNS")]
    pub forward_to_kube_dns: Option<bool>,
    pub memory_request: Option<Quantity>,
    pub cpu_request: Option<Quantity>,
    pub pod_annotations: BTreeMap<String, String>,
}

/// A taint that a pod tolerates (`corev1.Toleration`).
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Toleration {
    /// The taint's key. An empty key matches every key.
    pub key: String,
    /// How the taint's value is compared: `Exists` accepts any value, and `Equal` accepts only `value`.
    pub operator: String,
    pub value: String,
    /// The taint's effect. An empty effect matches every effect.
    pub effect: String,
    /// Seconds that the pod may stay on a node with the taint.
    pub toleration_seconds: Option<i64>,
}

/// The controller that publishes the cluster's names in external DNS.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ExternalDNSConfig {
    pub watch_ingress: Option<bool>,
    /// The only namespace that the controller watches.
    pub watch_namespace: String,
    /// The program that publishes the cluster's DNS names: `dns-controller`, `external-dns` or `none`.
    pub provider: String,
    pub priority_class_name: Option<String>,
}

/// Whether a cluster with this name publishes its names by gossip (`IsGossipClusterName` in pkg/dns/gossip.go). The function is not for
/// clusters without DNS, which never use gossip.
pub fn is_gossip_name(cluster: &str) -> bool {
    cluster.ends_with(".k8s.local")
}

/// Settings of gossip, which distributes the cluster's names without DNS. kOps 1.37 removes them.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GossipConfig {
    pub protocol: Option<String>,
    pub listen: Option<String>,
    pub secret: Option<String>,
    /// A second gossip protocol during a migration.
    pub secondary: Option<GossipConfigSecondary>,
}

/// The second gossip protocol. kOps 1.37 removes it.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GossipConfigSecondary {
    pub protocol: Option<String>,
    pub listen: Option<String>,
    pub secret: Option<String>,
}

/// Gossip settings of dns-controller. kOps 1.37 removes them.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DNSControllerGossipConfig {
    pub protocol: Option<String>,
    pub listen: Option<String>,
    pub secret: Option<String>,
    /// A second gossip protocol during a migration.
    pub secondary: Option<DNSControllerGossipConfigSecondary>,
    /// The first peers to contact.
    pub seed: Option<String>,
}

/// The second gossip protocol of dns-controller. kOps 1.37 removes it.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DNSControllerGossipConfigSecondary {
    pub protocol: Option<String>,
    pub listen: Option<String>,
    pub secret: Option<String>,
    /// The first peers to contact.
    pub seed: Option<String>,
}
