//! Settings of Cilium and Hubble.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::apply;

use super::go_yaml::is_zero;
use super::scalars::Quantity;

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CiliumNetworkingSpec {
    pub registry: String,
    pub version: String,
    /// Memory request of the containers of Cilium's agent and operator.
    pub memory_request: Option<Quantity>,
    /// CPU request of the containers of Cilium's agent and operator.
    pub cpu_request: Option<Quantity>,
    pub agent_prometheus_port: i64,
    /// Metrics to add (`+name`) or leave out (`-name`).
    pub metrics: Vec<String>,
    /// The CNI plugin that Cilium is chained to: `none`, `aws-cni`, `flannel`, `generic-veth`, `portmap`.
    pub chaining_mode: String,
    pub debug: bool,
    /// Whether Cilium works without CiliumEndpoint objects.
    #[serde(rename = "disableEndpointCRD")]
    pub disable_endpoint_crd: bool,
    /// When policies are enforced: `default`, `always` or `never`.
    pub enable_policy: String,
    /// Whether policies may have rules for HTTP and other protocols of layer 7.
    pub enable_l7_proxy: Option<bool>,
    pub enable_local_redirect_policy: Option<bool>,
    #[serde(rename = "enableBPFMasquerade")]
    pub enable_bpf_masquerade: Option<bool>,
    pub enable_endpoint_health_checking: Option<bool>,
    pub enable_host_firewall: Option<bool>,
    pub enable_prometheus_metrics: bool,
    /// Whether traffic between nodes is encrypted.
    pub enable_encryption: bool,
    /// How traffic is encrypted: `ipsec` or `wireguard`.
    pub encryption_type: String,
    /// Whether Cilium also encrypts the nodes' own traffic, in addition to the traffic of pods.
    pub node_encryption: bool,
    /// Where Cilium keeps the identities of endpoints: `crd` or `kvstore`.
    pub identity_allocation_mode: String,
    /// Time before an endpoint uses its new identity.
    pub identity_change_grace_period: String,
    /// Whether traffic that leaves the cluster is masqueraded.
    pub masquerade: Option<bool>,
    pub agent_pod_annotations: BTreeMap<String, String>,
    pub operator_pod_annotations: BTreeMap<String, String>,
    /// How packets between nodes are encapsulated: `vxlan`, `geneve` or `disabled`.
    pub tunnel: String,
    /// The level of aggregation of Cilium's tracing events.
    pub monitor_aggregation: String,
    /// Maximum number of tracked TCP connections.
    #[serde(rename = "bpfCTGlobalTCPMax")]
    pub bpf_ct_global_tcp_max: i64,
    /// Maximum number of tracked connections that are not TCP.
    #[serde(rename = "bpfCTGlobalAnyMax")]
    pub bpf_ct_global_any_max: i64,
    /// How a backend of a Service is chosen: `random` or `maglev`.
    #[serde(rename = "bpfLBAlgorithm")]
    pub bpf_lb_algorithm: String,
    #[serde(rename = "bpfLBMaglevTableSize")]
    pub bpf_lb_maglev_table_size: String,
    /// Maximum number of entries in the NAT table.
    #[serde(rename = "bpfNATGlobalMax")]
    pub bpf_nat_global_max: i64,
    /// Maximum number of entries in the neighbour table.
    pub bpf_neigh_global_max: i64,
    /// Maximum number of entries in an endpoint's policy map.
    pub bpf_policy_map_max: i64,
    #[serde(rename = "bpfLBMapMax")]
    pub bpf_lb_map_max: i64,
    /// Whether Cilium balances the connections to Services at the socket.
    #[serde(rename = "bpfLBSock")]
    pub bpf_lb_sock: bool,
    /// Whether Cilium balances only the node's own connections at the socket, and not the connections of
    /// pods.
    #[serde(rename = "bpfLBSockHostNSOnly")]
    pub bpf_lb_sock_host_ns_only: bool,
    /// Whether eBPF maps get all their memory when they are created.
    #[serde(rename = "preallocateBPFMaps")]
    pub preallocate_bpf_maps: bool,
    /// Image of Istio's sidecar, by which Cilium recognizes sidecars.
    pub sidecar_istio_proxy_image: String,
    /// Name of this cluster among the connected Cilium clusters (ClusterMesh).
    pub cluster_name: String,
    /// Number of this cluster among the connected Cilium clusters (ClusterMesh).
    #[serde(rename = "clusterID")]
    pub cluster_id: u8,
    /// The response to a refused DNS query: `refused` or `nameError`.
    #[serde(rename = "toFQDNsDNSRejectResponseCode")]
    pub to_fqdns_dns_reject_response_code: String,
    /// Whether Cilium looks up the DNS names in policies at intervals.
    #[serde(rename = "toFQDNsEnablePoller")]
    pub to_fqdns_enable_poller: bool,
    /// How pods get their addresses: `crd`, `kubernetes`, `hostscope` or `eni`.
    pub ipam: String,
    pub install_iptables_rules: Option<bool>,
    /// Whether nodes of one network route pod packets to each other directly, without a tunnel.
    pub auto_direct_node_routes: bool,
    /// Whether nodes reach Services by eBPF.
    pub enable_host_reachable_services: bool,
    /// Whether Cilium replaces kube-proxy.
    pub enable_node_port: bool,
    /// Whether Cilium has its own etcd cluster.
    pub etcd_managed: bool,
    pub enable_remote_node_identity: Option<bool>,
    /// Whether the node answers packets to a deleted pod's address with "unreachable".
    pub enable_unreachable_routes: Option<bool>,
    /// Whether Cilium disables the CNI configuration files of other plugins.
    pub cni_exclusive: Option<bool>,
    pub hubble: Option<HubbleSpec>,
    #[serde(rename = "disableCNPStatusUpdates")]
    pub disable_cnp_status_updates: Option<bool>,
    /// Whether Cilium follows the topology hints of Services, which prefer endpoints in the client's zone.
    pub enable_service_topology: bool,
    pub ingress: Option<CiliumIngressSpec>,
    #[serde(rename = "gatewayAPI")]
    pub gateway_api: Option<CiliumGatewayAPISpec>,
    /// Additional entries of Cilium's ConfigMap.
    pub extra_config: BTreeMap<String, String>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CiliumIngressSpec {
    pub enabled: Option<bool>,
    /// Whether HTTP is redirected to HTTPS.
    pub enforce_https: Option<bool>,
    /// Whether Cilium copies the TLS secrets of Ingresses into one namespace.
    pub enable_secrets_sync: Option<bool>,
    /// Prefixes of the annotations that are copied to the Services of Ingresses.
    pub load_balancer_annotation_prefixes: String,
    /// Whether Ingresses share a load balancer: `shared` or `dedicated`.
    pub default_load_balancer_mode: String,
    pub shared_load_balancer_service_name: String,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CiliumGatewayAPISpec {
    pub enabled: Option<bool>,
    /// Whether Cilium copies the TLS secrets of Gateways into one namespace.
    pub enable_secrets_sync: Option<bool>,
}

/// Hubble, which shows the network traffic that Cilium handles.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HubbleSpec {
    pub enabled: Option<bool>,
    pub metrics: Vec<String>,
}
