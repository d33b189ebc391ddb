//! Settings of Cilium and Hubble.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::omit::is_zero;
use super::scalars::Quantity;

/// Cilium.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CiliumNetworkingSpec {
    /// Registry of its images.
    #[serde(skip_serializing_if = "is_zero")]
    pub registry: String,
    /// Tag of its images.
    #[serde(skip_serializing_if = "is_zero")]
    pub version: String,
    /// Memory that the agent requests.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_request: Option<Quantity>,
    /// CPU that the agent requests.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_request: Option<Quantity>,
    /// Port of the agent's metrics.
    #[serde(skip_serializing_if = "is_zero")]
    pub agent_prometheus_port: i64,
    /// Metrics to add (`+name`) or leave out (`-name`).
    #[serde(skip_serializing_if = "is_zero")]
    pub metrics: Vec<String>,
    /// The plugin it is chained to: `none`, `aws-cni`, `flannel`, `generic-veth`, `portmap`.
    #[serde(skip_serializing_if = "is_zero")]
    pub chaining_mode: String,
    /// Whether it logs for debugging.
    #[serde(skip_serializing_if = "is_zero")]
    pub debug: bool,
    /// Whether to do without objects for endpoints.
    #[serde(rename = "disableEndpointCRD", skip_serializing_if = "is_zero")]
    pub disable_endpoint_crd: bool,
    /// When policies are enforced: `default`, `always` or `never`.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_policy: String,
    /// Whether policies may speak of HTTP and the like.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_l7_proxy: Option<bool>,
    /// Whether traffic may be redirected to local pods.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_local_redirect_policy: Option<bool>,
    /// Whether eBPF masquerades.
    #[serde(rename = "enableBPFMasquerade", skip_serializing_if = "is_zero")]
    pub enable_bpf_masquerade: Option<bool>,
    /// Whether connectivity between endpoints is checked.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_endpoint_health_checking: Option<bool>,
    /// Whether policies cover nodes.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_host_firewall: Option<bool>,
    /// Whether metrics are served.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_prometheus_metrics: bool,
    /// Whether traffic between nodes is encrypted.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_encryption: bool,
    /// By what: `ipsec` or `wireguard`.
    #[serde(skip_serializing_if = "is_zero")]
    pub encryption_type: String,
    /// Whether traffic of nodes themselves is encrypted too.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_encryption: bool,
    /// Where identities are kept: `crd` or `kvstore`.
    #[serde(skip_serializing_if = "is_zero")]
    pub identity_allocation_mode: String,
    /// Time before an endpoint's new identity counts.
    #[serde(skip_serializing_if = "is_zero")]
    pub identity_change_grace_period: String,
    /// Whether traffic that leaves the cluster is masqueraded.
    #[serde(skip_serializing_if = "is_zero")]
    pub masquerade: Option<bool>,
    /// Annotations of the agents' pods.
    #[serde(skip_serializing_if = "is_zero")]
    pub agent_pod_annotations: BTreeMap<String, String>,
    /// Annotations of the operator's pods.
    #[serde(skip_serializing_if = "is_zero")]
    pub operator_pod_annotations: BTreeMap<String, String>,
    /// How packets are wrapped: `vxlan`, `geneve` or `disabled`.
    #[serde(skip_serializing_if = "is_zero")]
    pub tunnel: String,
    /// How far tracing events are summed up.
    #[serde(skip_serializing_if = "is_zero")]
    pub monitor_aggregation: String,
    /// Most TCP connections that are tracked.
    #[serde(rename = "bpfCTGlobalTCPMax", skip_serializing_if = "is_zero")]
    pub bpf_ct_global_tcp_max: i64,
    /// Most other connections that are tracked.
    #[serde(rename = "bpfCTGlobalAnyMax", skip_serializing_if = "is_zero")]
    pub bpf_ct_global_any_max: i64,
    /// How backends are chosen: `random` or `maglev`.
    #[serde(rename = "bpfLBAlgorithm", skip_serializing_if = "is_zero")]
    pub bpf_lb_algorithm: String,
    /// Size of the table for `maglev`.
    #[serde(rename = "bpfLBMaglevTableSize", skip_serializing_if = "is_zero")]
    pub bpf_lb_maglev_table_size: String,
    /// Most entries of the NAT table.
    #[serde(rename = "bpfNATGlobalMax", skip_serializing_if = "is_zero")]
    pub bpf_nat_global_max: i64,
    /// Most entries of the neighbour table.
    #[serde(skip_serializing_if = "is_zero")]
    pub bpf_neigh_global_max: i64,
    /// Most entries of an endpoint's policy.
    #[serde(skip_serializing_if = "is_zero")]
    pub bpf_policy_map_max: i64,
    /// Most entries of the load balancing maps.
    #[serde(rename = "bpfLBMapMax", skip_serializing_if = "is_zero")]
    pub bpf_lb_map_max: i64,
    /// Whether connections are balanced at the socket.
    #[serde(rename = "bpfLBSock", skip_serializing_if = "is_zero")]
    pub bpf_lb_sock: bool,
    /// Whether that is so for nodes only, and not in pods.
    #[serde(rename = "bpfLBSockHostNSOnly", skip_serializing_if = "is_zero")]
    pub bpf_lb_sock_host_ns_only: bool,
    /// Whether eBPF maps take their memory at once.
    #[serde(rename = "preallocateBPFMaps", skip_serializing_if = "is_zero")]
    pub preallocate_bpf_maps: bool,
    /// Image by which Istio's sidecar is known.
    #[serde(skip_serializing_if = "is_zero")]
    pub sidecar_istio_proxy_image: String,
    /// Name of this cluster among connected ones.
    #[serde(skip_serializing_if = "is_zero")]
    pub cluster_name: String,
    /// Number of this cluster among connected ones.
    #[serde(rename = "clusterID", skip_serializing_if = "is_zero")]
    pub cluster_id: u8,
    /// What a refused DNS query is answered: `refused` or `nameError`.
    #[serde(rename = "toFQDNsDNSRejectResponseCode", skip_serializing_if = "is_zero")]
    pub to_fqdns_dns_reject_response_code: String,
    /// Whether names in policies are looked up regularly.
    #[serde(rename = "toFQDNsEnablePoller", skip_serializing_if = "is_zero")]
    pub to_fqdns_enable_poller: bool,
    /// Who assigns pod addresses: `crd`, `kubernetes`, `hostscope` or `eni`.
    #[serde(skip_serializing_if = "is_zero")]
    pub ipam: String,
    /// Whether it writes iptables rules.
    #[serde(skip_serializing_if = "is_zero")]
    pub install_iptables_rules: Option<bool>,
    /// Whether nodes of one network route to each other directly.
    #[serde(skip_serializing_if = "is_zero")]
    pub auto_direct_node_routes: bool,
    /// Whether nodes reach Services by eBPF.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_host_reachable_services: bool,
    /// Whether it does kube-proxy's work.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_node_port: bool,
    /// Whether it has an etcd cluster of its own.
    #[serde(skip_serializing_if = "is_zero")]
    pub etcd_managed: bool,
    /// Whether other nodes have an identity of their own.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_remote_node_identity: Option<bool>,
    /// Whether a deleted pod's address is answered as unreachable.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_unreachable_routes: Option<bool>,
    /// Whether other plugins' configurations are moved away.
    #[serde(skip_serializing_if = "is_zero")]
    pub cni_exclusive: Option<bool>,
    /// Hubble.
    #[serde(skip_serializing_if = "is_zero")]
    pub hubble: Option<HubbleSpec>,
    /// Whether policies are not told how they fare.
    #[serde(rename = "disableCNPStatusUpdates", skip_serializing_if = "is_zero")]
    pub disable_cnp_status_updates: Option<bool>,
    /// Whether near endpoints of a Service are preferred.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_service_topology: bool,
    /// Its ingress controller.
    #[serde(skip_serializing_if = "is_zero")]
    pub ingress: Option<CiliumIngressSpec>,
    /// Its implementation of the Gateway API.
    #[serde(rename = "gatewayAPI", skip_serializing_if = "is_zero")]
    pub gateway_api: Option<CiliumGatewayAPISpec>,
    /// More entries of its ConfigMap.
    #[serde(skip_serializing_if = "is_zero")]
    pub extra_config: BTreeMap<String, String>,
}

/// Cilium's ingress controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CiliumIngressSpec {
    /// Whether it runs.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: Option<bool>,
    /// Whether HTTP is redirected to HTTPS.
    #[serde(skip_serializing_if = "is_zero")]
    pub enforce_https: Option<bool>,
    /// Whether secrets are copied into one namespace for it.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_secrets_sync: Option<bool>,
    /// Prefixes of annotations that its Services take over.
    #[serde(skip_serializing_if = "is_zero")]
    pub load_balancer_annotation_prefixes: String,
    /// Whether ingresses share a load balancer: `shared` or `dedicated`.
    #[serde(skip_serializing_if = "is_zero")]
    pub default_load_balancer_mode: String,
    /// Name of the shared load balancer's Service.
    #[serde(skip_serializing_if = "is_zero")]
    pub shared_load_balancer_service_name: String,
}

/// Cilium's implementation of the Gateway API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CiliumGatewayAPISpec {
    /// Whether it runs.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: Option<bool>,
    /// Whether secrets are copied into one namespace for it.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_secrets_sync: Option<bool>,
}

/// Hubble, which shows Cilium's traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HubbleSpec {
    /// Whether it runs.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: Option<bool>,
    /// Metrics to collect.
    #[serde(skip_serializing_if = "is_zero")]
    pub metrics: Vec<String>,
}
