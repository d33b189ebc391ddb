//! DNS inside the cluster, and the controllers that publish names outside of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::omit::is_zero;
use crate::scalars::Quantity;

/// DNS inside the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeDNSConfig {
    /// Answers that are cached.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_max_size: i64,
    /// Queries at a time.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_max_concurrent: i64,
    /// Taints that its pods tolerate.
    #[serde(skip_serializing_if = "is_zero")]
    pub tolerations: Vec<Toleration>,
    /// Where its pods are placed, as Kubernetes has it.
    #[serde(skip_serializing_if = "is_zero")]
    pub affinity: Option<serde_json::Value>,
    /// Image of CoreDNS.
    #[serde(rename = "coreDNSImage", skip_serializing_if = "is_zero")]
    pub core_dns_image: String,
    /// Image of the autoscaler of its pods.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpa_image: String,
    /// The cluster's domain.
    #[serde(skip_serializing_if = "is_zero")]
    pub domain: String,
    /// The whole Corefile, in place of what kOps makes.
    #[serde(skip_serializing_if = "is_zero")]
    pub external_core_file: String,
    /// `CoreDNS` or `KubeDNS`.
    #[serde(skip_serializing_if = "is_zero")]
    pub provider: String,
    /// Address of its Service.
    #[serde(rename = "serverIP", skip_serializing_if = "is_zero")]
    pub server_ip: String,
    /// Servers for some domains.
    #[serde(skip_serializing_if = "is_zero")]
    pub stub_domains: BTreeMap<String, Vec<String>>,
    /// Servers for everything outside of the cluster.
    #[serde(skip_serializing_if = "is_zero")]
    pub upstream_nameservers: Vec<String>,
    /// Memory that its pods request.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_request: Option<Quantity>,
    /// CPU that its pods request.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_request: Option<Quantity>,
    /// Memory that its pods are limited to.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_limit: Option<Quantity>,
    /// A cache on each node.
    #[serde(rename = "nodeLocalDNS", skip_serializing_if = "is_zero")]
    pub node_local_dns: Option<NodeLocalDNSConfig>,
    /// Annotations of its pods.
    #[serde(skip_serializing_if = "is_zero")]
    pub pod_annotations: BTreeMap<String, String>,
}

/// A cache of DNS on each node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeLocalDNSConfig {
    /// Whether it is installed.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: Option<bool>,
    /// The whole Corefile, in place of what kOps makes.
    #[serde(skip_serializing_if = "is_zero")]
    pub external_core_file: String,
    /// More of the Corefile.
    #[serde(skip_serializing_if = "is_zero")]
    pub additional_config: String,
    /// Its image.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: Option<String>,
    /// The address it answers at.
    #[serde(rename = "localIP", skip_serializing_if = "is_zero")]
    pub local_ip: String,
    /// Whether it asks the cluster's DNS about everything.
    #[serde(rename = "forwardToKubeDNS", skip_serializing_if = "is_zero")]
    pub forward_to_kube_dns: Option<bool>,
    /// Memory that its pods request.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_request: Option<Quantity>,
    /// CPU that its pods request.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_request: Option<Quantity>,
    /// Annotations of its pods.
    #[serde(skip_serializing_if = "is_zero")]
    pub pod_annotations: BTreeMap<String, String>,
}

/// A taint that a pod tolerates (`corev1.Toleration`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Toleration {
    /// The taint's key; empty for any.
    #[serde(skip_serializing_if = "is_zero")]
    pub key: String,
    /// `Exists` or `Equal`.
    #[serde(skip_serializing_if = "is_zero")]
    pub operator: String,
    /// The taint's value.
    #[serde(skip_serializing_if = "is_zero")]
    pub value: String,
    /// The taint's effect; empty for any.
    #[serde(skip_serializing_if = "is_zero")]
    pub effect: String,
    /// Seconds for which the pod stays.
    #[serde(skip_serializing_if = "is_zero")]
    pub toleration_seconds: Option<i64>,
}

/// The controller that publishes names outside of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ExternalDNSConfig {
    /// Whether it publishes ingresses.
    #[serde(skip_serializing_if = "is_zero")]
    pub watch_ingress: Option<bool>,
    /// The one namespace it looks at.
    #[serde(skip_serializing_if = "is_zero")]
    pub watch_namespace: String,
    /// Which controller: `dns-controller`, `external-dns` or `none`.
    #[serde(skip_serializing_if = "is_zero")]
    pub provider: String,
    /// Priority class of its pods.
    #[serde(skip_serializing_if = "is_zero")]
    pub priority_class_name: Option<String>,
}

/// Gossip in place of DNS; removed in kOps 1.37.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GossipConfig {
    /// How nodes talk.
    #[serde(skip_serializing_if = "is_zero")]
    pub protocol: Option<String>,
    /// Address to listen on.
    #[serde(skip_serializing_if = "is_zero")]
    pub listen: Option<String>,
    /// The shared secret.
    #[serde(skip_serializing_if = "is_zero")]
    pub secret: Option<String>,
    /// A second gossip, while changing from one to another.
    #[serde(skip_serializing_if = "is_zero")]
    pub secondary: Option<GossipConfigSecondary>,
}

/// The second gossip; removed in kOps 1.37.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GossipConfigSecondary {
    /// How nodes talk.
    #[serde(skip_serializing_if = "is_zero")]
    pub protocol: Option<String>,
    /// Address to listen on.
    #[serde(skip_serializing_if = "is_zero")]
    pub listen: Option<String>,
    /// The shared secret.
    #[serde(skip_serializing_if = "is_zero")]
    pub secret: Option<String>,
}

/// Gossip of the dns-controller; removed in kOps 1.37.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DNSControllerGossipConfig {
    /// How it talks.
    #[serde(skip_serializing_if = "is_zero")]
    pub protocol: Option<String>,
    /// Address to listen on.
    #[serde(skip_serializing_if = "is_zero")]
    pub listen: Option<String>,
    /// The shared secret.
    #[serde(skip_serializing_if = "is_zero")]
    pub secret: Option<String>,
    /// A second gossip, while changing from one to another.
    #[serde(skip_serializing_if = "is_zero")]
    pub secondary: Option<DNSControllerGossipConfigSecondary>,
    /// Whom to talk to first.
    #[serde(skip_serializing_if = "is_zero")]
    pub seed: Option<String>,
}

/// The second gossip of the dns-controller; removed in kOps 1.37.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DNSControllerGossipConfigSecondary {
    /// How it talks.
    #[serde(skip_serializing_if = "is_zero")]
    pub protocol: Option<String>,
    /// Address to listen on.
    #[serde(skip_serializing_if = "is_zero")]
    pub listen: Option<String>,
    /// The shared secret.
    #[serde(skip_serializing_if = "is_zero")]
    pub secret: Option<String>,
    /// Whom to talk to first.
    #[serde(skip_serializing_if = "is_zero")]
    pub seed: Option<String>,
}
