//! Settings of Cilium and Hubble.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::omit::is_zero;
use super::scalars::Quantity;

/// `CiliumNetworkingSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CiliumNetworkingSpec {
    /// Registry.
    #[serde(skip_serializing_if = "is_zero")]
    pub registry: String,
    /// Version.
    #[serde(skip_serializing_if = "is_zero")]
    pub version: String,
    /// Memory request.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_request: Option<Quantity>,
    /// Cpu request.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_request: Option<Quantity>,
    /// Agent prometheus port.
    #[serde(skip_serializing_if = "is_zero")]
    pub agent_prometheus_port: i64,
    /// Metrics.
    #[serde(skip_serializing_if = "is_zero")]
    pub metrics: Vec<String>,
    /// Chaining mode.
    #[serde(skip_serializing_if = "is_zero")]
    pub chaining_mode: String,
    /// Debug.
    #[serde(skip_serializing_if = "is_zero")]
    pub debug: bool,
    /// Disable endpoint CRD.
    #[serde(rename = "disableEndpointCRD", skip_serializing_if = "is_zero")]
    pub disable_endpoint_crd: bool,
    /// Enable policy.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_policy: String,
    /// Enable L7 proxy.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_l7_proxy: Option<bool>,
    /// Enable local redirect policy.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_local_redirect_policy: Option<bool>,
    /// Enable BPF masquerade.
    #[serde(rename = "enableBPFMasquerade", skip_serializing_if = "is_zero")]
    pub enable_bpf_masquerade: Option<bool>,
    /// Enable endpoint health checking.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_endpoint_health_checking: Option<bool>,
    /// Enable host firewall.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_host_firewall: Option<bool>,
    /// Enable prometheus metrics.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_prometheus_metrics: bool,
    /// Enable encryption.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_encryption: bool,
    /// Encryption type.
    #[serde(skip_serializing_if = "is_zero")]
    pub encryption_type: String,
    /// Node encryption.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_encryption: bool,
    /// Identity allocation mode.
    #[serde(skip_serializing_if = "is_zero")]
    pub identity_allocation_mode: String,
    /// Identity change grace period.
    #[serde(skip_serializing_if = "is_zero")]
    pub identity_change_grace_period: String,
    /// Masquerade.
    #[serde(skip_serializing_if = "is_zero")]
    pub masquerade: Option<bool>,
    /// Agent pod annotations.
    #[serde(skip_serializing_if = "is_zero")]
    pub agent_pod_annotations: BTreeMap<String, String>,
    /// Operator pod annotations.
    #[serde(skip_serializing_if = "is_zero")]
    pub operator_pod_annotations: BTreeMap<String, String>,
    /// Tunnel.
    #[serde(skip_serializing_if = "is_zero")]
    pub tunnel: String,
    /// Monitor aggregation.
    #[serde(skip_serializing_if = "is_zero")]
    pub monitor_aggregation: String,
    /// Bpf CT global TCP max.
    #[serde(rename = "bpfCTGlobalTCPMax", skip_serializing_if = "is_zero")]
    pub bpf_ct_global_tcp_max: i64,
    /// Bpf CT global any max.
    #[serde(rename = "bpfCTGlobalAnyMax", skip_serializing_if = "is_zero")]
    pub bpf_ct_global_any_max: i64,
    /// Bpf LB algorithm.
    #[serde(rename = "bpfLBAlgorithm", skip_serializing_if = "is_zero")]
    pub bpf_lb_algorithm: String,
    /// Bpf LB maglev table size.
    #[serde(rename = "bpfLBMaglevTableSize", skip_serializing_if = "is_zero")]
    pub bpf_lb_maglev_table_size: String,
    /// Bpf NAT global max.
    #[serde(rename = "bpfNATGlobalMax", skip_serializing_if = "is_zero")]
    pub bpf_nat_global_max: i64,
    /// Bpf neigh global max.
    #[serde(skip_serializing_if = "is_zero")]
    pub bpf_neigh_global_max: i64,
    /// Bpf policy map max.
    #[serde(skip_serializing_if = "is_zero")]
    pub bpf_policy_map_max: i64,
    /// Bpf LB map max.
    #[serde(rename = "bpfLBMapMax", skip_serializing_if = "is_zero")]
    pub bpf_lb_map_max: i64,
    /// Bpf LB sock.
    #[serde(rename = "bpfLBSock", skip_serializing_if = "is_zero")]
    pub bpf_lb_sock: bool,
    /// Bpf LB sock host NS only.
    #[serde(rename = "bpfLBSockHostNSOnly", skip_serializing_if = "is_zero")]
    pub bpf_lb_sock_host_ns_only: bool,
    /// Preallocate BPF maps.
    #[serde(rename = "preallocateBPFMaps", skip_serializing_if = "is_zero")]
    pub preallocate_bpf_maps: bool,
    /// Sidecar istio proxy image.
    #[serde(skip_serializing_if = "is_zero")]
    pub sidecar_istio_proxy_image: String,
    /// Cluster name.
    #[serde(skip_serializing_if = "is_zero")]
    pub cluster_name: String,
    /// Cluster ID.
    #[serde(rename = "clusterID", skip_serializing_if = "is_zero")]
    pub cluster_id: u8,
    /// To fqdns DNS reject response code.
    #[serde(rename = "toFQDNsDNSRejectResponseCode", skip_serializing_if = "is_zero")]
    pub to_fqdns_dns_reject_response_code: String,
    /// To fqdns enable poller.
    #[serde(rename = "toFQDNsEnablePoller", skip_serializing_if = "is_zero")]
    pub to_fqdns_enable_poller: bool,
    /// Ipam.
    #[serde(skip_serializing_if = "is_zero")]
    pub ipam: String,
    /// Install iptables rules.
    #[serde(skip_serializing_if = "is_zero")]
    pub install_iptables_rules: Option<bool>,
    /// Auto direct node routes.
    #[serde(skip_serializing_if = "is_zero")]
    pub auto_direct_node_routes: bool,
    /// Enable host reachable services.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_host_reachable_services: bool,
    /// Enable node port.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_node_port: bool,
    /// Etcd managed.
    #[serde(skip_serializing_if = "is_zero")]
    pub etcd_managed: bool,
    /// Enable remote node identity.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_remote_node_identity: Option<bool>,
    /// Enable unreachable routes.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_unreachable_routes: Option<bool>,
    /// Cni exclusive.
    #[serde(skip_serializing_if = "is_zero")]
    pub cni_exclusive: Option<bool>,
    /// Hubble.
    #[serde(skip_serializing_if = "is_zero")]
    pub hubble: Option<HubbleSpec>,
    /// Disable CNP status updates.
    #[serde(rename = "disableCNPStatusUpdates", skip_serializing_if = "is_zero")]
    pub disable_cnp_status_updates: Option<bool>,
    /// Enable service topology.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_service_topology: bool,
    /// Ingress.
    #[serde(skip_serializing_if = "is_zero")]
    pub ingress: Option<CiliumIngressSpec>,
    /// Gateway API.
    #[serde(rename = "gatewayAPI", skip_serializing_if = "is_zero")]
    pub gateway_api: Option<CiliumGatewayAPISpec>,
    /// Extra config.
    #[serde(skip_serializing_if = "is_zero")]
    pub extra_config: BTreeMap<String, String>,
}

/// `CiliumIngressSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CiliumIngressSpec {
    /// Enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: Option<bool>,
    /// Enforce https.
    #[serde(skip_serializing_if = "is_zero")]
    pub enforce_https: Option<bool>,
    /// Enable secrets sync.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_secrets_sync: Option<bool>,
    /// Load balancer annotation prefixes.
    #[serde(skip_serializing_if = "is_zero")]
    pub load_balancer_annotation_prefixes: String,
    /// Default load balancer mode.
    #[serde(skip_serializing_if = "is_zero")]
    pub default_load_balancer_mode: String,
    /// Shared load balancer service name.
    #[serde(skip_serializing_if = "is_zero")]
    pub shared_load_balancer_service_name: String,
}

/// `CiliumGatewayAPISpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CiliumGatewayAPISpec {
    /// Enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: Option<bool>,
    /// Enable secrets sync.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_secrets_sync: Option<bool>,
}

/// `HubbleSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HubbleSpec {
    /// Enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: Option<bool>,
    /// Metrics.
    #[serde(skip_serializing_if = "is_zero")]
    pub metrics: Vec<String>,
}
