//! Settings of Calico, and of Canal, which was made of Calico and Flannel.

use serde::{Deserialize, Serialize};

use super::omit::is_zero;
use super::scalars::Quantity;

/// Calico.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CalicoNetworkingSpec {
    /// Registry of its images.
    #[serde(skip_serializing_if = "is_zero")]
    pub registry: String,
    /// Tag of its images.
    #[serde(skip_serializing_if = "is_zero")]
    pub version: String,
    /// Whether containers may forward packets.
    #[serde(rename = "allowIPForwarding", skip_serializing_if = "is_zero")]
    pub allow_ip_forwarding: bool,
    /// What to do about EC2's check of addresses: `Disable`, `Enable` or `DoNothing`.
    #[serde(skip_serializing_if = "is_zero")]
    pub aws_src_dst_check: String,
    /// Whether eBPF carries packets; kube-proxy must be off then.
    #[serde(skip_serializing_if = "is_zero")]
    pub bpf_enabled: bool,
    /// How replies from other nodes go out with eBPF: `Tunnel` or `DSR`.
    #[serde(skip_serializing_if = "is_zero")]
    pub bpf_external_service_mode: String,
    /// Whether rules that kube-proxy left are removed.
    #[serde(skip_serializing_if = "is_zero")]
    pub bpf_kube_proxy_iptables_cleanup_enabled: bool,
    /// Log level of the eBPF programs: `Off`, `Info` or `Debug`.
    #[serde(skip_serializing_if = "is_zero")]
    pub bpf_log_level: String,
    /// Where rules go into iptables chains: `insert` or `append`.
    #[serde(skip_serializing_if = "is_zero")]
    pub chain_insert_mode: String,
    /// CPU that its container requests.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_request: Option<Quantity>,
    /// No longer used.
    #[serde(skip_serializing_if = "is_zero")]
    pub cross_subnet: Option<bool>,
    /// How packets are wrapped: `ipip`, `vxlan` or `none`.
    #[serde(skip_serializing_if = "is_zero")]
    pub encapsulation_mode: String,
    /// When packets are wrapped with IP-in-IP: `CrossSubnet`, `Always` or `Never`.
    #[serde(skip_serializing_if = "is_zero")]
    pub ipip_mode: String,
    /// How a node's IPv4 address is found.
    #[serde(skip_serializing_if = "is_zero")]
    pub ipv4_auto_detection_method: String,
    /// How a node's IPv6 address is found.
    #[serde(skip_serializing_if = "is_zero")]
    pub ipv6_auto_detection_method: String,
    /// Kind of iptables: `Auto`, `Legacy` or `NFT`.
    #[serde(skip_serializing_if = "is_zero")]
    pub iptables_backend: String,
    /// Log level.
    #[serde(skip_serializing_if = "is_zero")]
    pub log_severity_screen: String,
    /// MTU of its network; unset to have it found out.
    #[serde(skip_serializing_if = "is_zero")]
    pub mtu: Option<i32>,
    /// Whether nftables are used: `Disabled`, `Enabled` or `Auto`.
    #[serde(skip_serializing_if = "is_zero")]
    pub nftables_mode: String,
    /// Whether Felix serves metrics.
    #[serde(skip_serializing_if = "is_zero")]
    pub prometheus_metrics_enabled: bool,
    /// Port of those metrics.
    #[serde(skip_serializing_if = "is_zero")]
    pub prometheus_metrics_port: i32,
    /// Whether they tell of Felix' Go runtime.
    #[serde(skip_serializing_if = "is_zero")]
    pub prometheus_go_metrics_enabled: bool,
    /// Whether they tell of Felix' process.
    #[serde(skip_serializing_if = "is_zero")]
    pub prometheus_process_metrics_enabled: bool,
    /// Whether Typha serves metrics.
    #[serde(skip_serializing_if = "is_zero")]
    pub typha_prometheus_metrics_enabled: bool,
    /// Port of those metrics.
    #[serde(skip_serializing_if = "is_zero")]
    pub typha_prometheus_metrics_port: i32,
    /// Number of Typhas.
    #[serde(skip_serializing_if = "is_zero")]
    pub typha_replicas: i32,
    /// When packets are wrapped with VXLAN: `CrossSubnet`, `Always` or `Never`.
    #[serde(skip_serializing_if = "is_zero")]
    pub vxlan_mode: String,
    /// Whether traffic between nodes is encrypted with WireGuard.
    #[serde(skip_serializing_if = "is_zero")]
    pub wireguard_enabled: Option<bool>,
}

/// Canal: policies by Calico, packets by Flannel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CanalNetworkingSpec {
    /// Where rules go into iptables chains: `insert` or `append`.
    #[serde(skip_serializing_if = "is_zero")]
    pub chain_insert_mode: String,
    /// CPU that its container requests.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_request: Option<Quantity>,
    /// What becomes of packets from pods to their node: `ACCEPT`, `DROP` or `RETURN`.
    #[serde(skip_serializing_if = "is_zero")]
    pub default_endpoint_to_host_action: String,
    /// Whether Flannel adds rules that let packets pass.
    #[serde(skip_serializing_if = "is_zero")]
    pub flanneld_iptables_forward_rules: Option<bool>,
    /// Kind of iptables: `Auto`, `Legacy` or `NFT`.
    #[serde(skip_serializing_if = "is_zero")]
    pub iptables_backend: String,
    /// Log level of the system log.
    #[serde(skip_serializing_if = "is_zero")]
    pub log_severity_sys: String,
    /// MTU of its network.
    #[serde(skip_serializing_if = "is_zero")]
    pub mtu: Option<i32>,
    /// Whether metrics tell of Felix' Go runtime.
    #[serde(skip_serializing_if = "is_zero")]
    pub prometheus_go_metrics_enabled: bool,
    /// Whether Felix serves metrics.
    #[serde(skip_serializing_if = "is_zero")]
    pub prometheus_metrics_enabled: bool,
    /// Port of those metrics.
    #[serde(skip_serializing_if = "is_zero")]
    pub prometheus_metrics_port: i32,
    /// Whether they tell of Felix' process.
    #[serde(skip_serializing_if = "is_zero")]
    pub prometheus_process_metrics_enabled: bool,
    /// Whether Typha serves metrics.
    #[serde(skip_serializing_if = "is_zero")]
    pub typha_prometheus_metrics_enabled: bool,
    /// Port of those metrics.
    #[serde(skip_serializing_if = "is_zero")]
    pub typha_prometheus_metrics_port: i32,
    /// Number of Typhas.
    #[serde(skip_serializing_if = "is_zero")]
    pub typha_replicas: i32,
}
