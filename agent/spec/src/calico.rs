//! Settings of Calico, and of Canal, which combines Calico and Flannel.

use serde::{Deserialize, Serialize};
use serde_with::apply;

use super::go_yaml::is_zero;
use super::scalars::Quantity;

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CalicoNetworkingSpec {
    pub registry: String,
    pub version: String,
    #[serde(rename = "allowIPForwarding")]
    pub allow_ip_forwarding: bool,
    /// How Calico changes EC2's source/destination check: `Disable`, `Enable` or `DoNothing`.
    pub aws_src_dst_check: String,
    /// Whether Calico uses its eBPF dataplane. If so, kube-proxy must be off.
    pub bpf_enabled: bool,
    /// With eBPF, how pods on other nodes reply to clients outside the cluster: `Tunnel` (through the node
    /// that the client called) or `DSR` (directly).
    pub bpf_external_service_mode: String,
    /// Whether Calico removes the iptables rules that an earlier kube-proxy created.
    pub bpf_kube_proxy_iptables_cleanup_enabled: bool,
    /// Log level of the eBPF programs: `Off`, `Info` or `Debug`.
    pub bpf_log_level: String,
    /// Whether Calico inserts its rules at the start of iptables chains or appends them: `insert` or
    /// `append`.
    pub chain_insert_mode: String,
    pub cpu_request: Option<Quantity>,
    /// Whether packets are encapsulated only between subnets. kOps no longer uses this field.
    pub cross_subnet: Option<bool>,
    /// How packets between nodes are encapsulated: `ipip`, `vxlan` or `none`.
    pub encapsulation_mode: String,
    /// When packets are encapsulated with IP-in-IP: `CrossSubnet`, `Always` or `Never`.
    pub ipip_mode: String,
    pub ipv4_auto_detection_method: String,
    pub ipv6_auto_detection_method: String,
    /// The variant of iptables that Calico uses: `Auto`, `Legacy` or `NFT`.
    pub iptables_backend: String,
    pub log_severity_screen: String,
    /// MTU of the pod network. Unset means that Calico detects it.
    pub mtu: Option<i32>,
    /// Whether Calico uses nftables: `Disabled`, `Enabled` or `Auto`.
    pub nftables_mode: String,
    pub prometheus_metrics_enabled: bool,
    pub prometheus_metrics_port: i32,
    /// Whether Felix (Calico's agent) exports metrics of its Go runtime.
    pub prometheus_go_metrics_enabled: bool,
    /// Whether Felix (Calico's agent) exports metrics of its process.
    pub prometheus_process_metrics_enabled: bool,
    pub typha_prometheus_metrics_enabled: bool,
    pub typha_prometheus_metrics_port: i32,
    pub typha_replicas: i32,
    /// When packets are encapsulated with VXLAN: `CrossSubnet`, `Always` or `Never`.
    pub vxlan_mode: String,
    /// Whether traffic between nodes is encrypted with WireGuard.
    pub wireguard_enabled: Option<bool>,
}

/// Canal: Calico enforces policies, and Flannel carries packets.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CanalNetworkingSpec {
    /// Whether Calico inserts its rules at the start of iptables chains or appends them: `insert` or
    /// `append`.
    pub chain_insert_mode: String,
    pub cpu_request: Option<Quantity>,
    /// What happens to packets from pods to their node: `ACCEPT`, `DROP` or `RETURN`.
    pub default_endpoint_to_host_action: String,
    /// Whether Flannel adds iptables rules that accept forwarded packets.
    pub flanneld_iptables_forward_rules: Option<bool>,
    /// The variant of iptables that Calico uses: `Auto`, `Legacy` or `NFT`.
    pub iptables_backend: String,
    /// Log level of Calico's messages in the system log.
    pub log_severity_sys: String,
    pub mtu: Option<i32>,
    /// Whether Felix (Calico's agent) exports metrics of its Go runtime.
    pub prometheus_go_metrics_enabled: bool,
    pub prometheus_metrics_enabled: bool,
    pub prometheus_metrics_port: i32,
    /// Whether Felix (Calico's agent) exports metrics of its process.
    pub prometheus_process_metrics_enabled: bool,
    pub typha_prometheus_metrics_enabled: bool,
    pub typha_prometheus_metrics_port: i32,
    pub typha_replicas: i32,
}
