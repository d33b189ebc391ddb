//! DNS inside the cluster, and the controllers that publish names outside of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::spec::omit::is_zero;
use crate::spec::scalars::Quantity;

/// `KubeDNSConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeDNSConfig {
    /// Cache max size.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_max_size: i64,
    /// Cache max concurrent.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_max_concurrent: i64,
    /// Tolerations.
    #[serde(skip_serializing_if = "is_zero")]
    pub tolerations: Vec<Toleration>,
    /// Affinity.
    #[serde(skip_serializing_if = "is_zero")]
    pub affinity: Option<serde_json::Value>,
    /// Core DNS image.
    #[serde(rename = "coreDNSImage", skip_serializing_if = "is_zero")]
    pub core_dns_image: String,
    /// Cpa image.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpa_image: String,
    /// Domain.
    #[serde(skip_serializing_if = "is_zero")]
    pub domain: String,
    /// External core file.
    #[serde(skip_serializing_if = "is_zero")]
    pub external_core_file: String,
    /// Provider.
    #[serde(skip_serializing_if = "is_zero")]
    pub provider: String,
    /// Server IP.
    #[serde(rename = "serverIP", skip_serializing_if = "is_zero")]
    pub server_ip: String,
    /// Stub domains.
    #[serde(skip_serializing_if = "is_zero")]
    pub stub_domains: BTreeMap<String, Vec<String>>,
    /// Upstream nameservers.
    #[serde(skip_serializing_if = "is_zero")]
    pub upstream_nameservers: Vec<String>,
    /// Memory request.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_request: Option<Quantity>,
    /// Cpu request.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_request: Option<Quantity>,
    /// Memory limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_limit: Option<Quantity>,
    /// Node local DNS.
    #[serde(rename = "nodeLocalDNS", skip_serializing_if = "is_zero")]
    pub node_local_dns: Option<NodeLocalDNSConfig>,
    /// Pod annotations.
    #[serde(skip_serializing_if = "is_zero")]
    pub pod_annotations: BTreeMap<String, String>,
}

/// `NodeLocalDNSConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeLocalDNSConfig {
    /// Enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: Option<bool>,
    /// External core file.
    #[serde(skip_serializing_if = "is_zero")]
    pub external_core_file: String,
    /// Additional config.
    #[serde(skip_serializing_if = "is_zero")]
    pub additional_config: String,
    /// Image.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: Option<String>,
    /// Local IP.
    #[serde(rename = "localIP", skip_serializing_if = "is_zero")]
    pub local_ip: String,
    /// Forward to kube DNS.
    #[serde(rename = "forwardToKubeDNS", skip_serializing_if = "is_zero")]
    pub forward_to_kube_dns: Option<bool>,
    /// Memory request.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_request: Option<Quantity>,
    /// Cpu request.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_request: Option<Quantity>,
    /// Pod annotations.
    #[serde(skip_serializing_if = "is_zero")]
    pub pod_annotations: BTreeMap<String, String>,
}

/// `Toleration`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Toleration {
    /// Key.
    #[serde(skip_serializing_if = "is_zero")]
    pub key: String,
    /// Operator.
    #[serde(skip_serializing_if = "is_zero")]
    pub operator: String,
    /// Value.
    #[serde(skip_serializing_if = "is_zero")]
    pub value: String,
    /// Effect.
    #[serde(skip_serializing_if = "is_zero")]
    pub effect: String,
    /// Toleration seconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub toleration_seconds: Option<i64>,
}

/// `ExternalDNSConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ExternalDNSConfig {
    /// Watch ingress.
    #[serde(skip_serializing_if = "is_zero")]
    pub watch_ingress: Option<bool>,
    /// Watch namespace.
    #[serde(skip_serializing_if = "is_zero")]
    pub watch_namespace: String,
    /// Provider.
    #[serde(skip_serializing_if = "is_zero")]
    pub provider: String,
    /// Priority class name.
    #[serde(skip_serializing_if = "is_zero")]
    pub priority_class_name: Option<String>,
}

/// `GossipConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GossipConfig {
    /// Protocol.
    #[serde(skip_serializing_if = "is_zero")]
    pub protocol: Option<String>,
    /// Listen.
    #[serde(skip_serializing_if = "is_zero")]
    pub listen: Option<String>,
    /// Secret.
    #[serde(skip_serializing_if = "is_zero")]
    pub secret: Option<String>,
    /// Secondary.
    #[serde(skip_serializing_if = "is_zero")]
    pub secondary: Option<GossipConfigSecondary>,
}

/// `GossipConfigSecondary`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GossipConfigSecondary {
    /// Protocol.
    #[serde(skip_serializing_if = "is_zero")]
    pub protocol: Option<String>,
    /// Listen.
    #[serde(skip_serializing_if = "is_zero")]
    pub listen: Option<String>,
    /// Secret.
    #[serde(skip_serializing_if = "is_zero")]
    pub secret: Option<String>,
}

/// `DNSControllerGossipConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DNSControllerGossipConfig {
    /// Protocol.
    #[serde(skip_serializing_if = "is_zero")]
    pub protocol: Option<String>,
    /// Listen.
    #[serde(skip_serializing_if = "is_zero")]
    pub listen: Option<String>,
    /// Secret.
    #[serde(skip_serializing_if = "is_zero")]
    pub secret: Option<String>,
    /// Secondary.
    #[serde(skip_serializing_if = "is_zero")]
    pub secondary: Option<DNSControllerGossipConfigSecondary>,
    /// Seed.
    #[serde(skip_serializing_if = "is_zero")]
    pub seed: Option<String>,
}

/// `DNSControllerGossipConfigSecondary`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DNSControllerGossipConfigSecondary {
    /// Protocol.
    #[serde(skip_serializing_if = "is_zero")]
    pub protocol: Option<String>,
    /// Listen.
    #[serde(skip_serializing_if = "is_zero")]
    pub listen: Option<String>,
    /// Secret.
    #[serde(skip_serializing_if = "is_zero")]
    pub secret: Option<String>,
    /// Seed.
    #[serde(skip_serializing_if = "is_zero")]
    pub seed: Option<String>,
}
