//! Settings of Calico, and of Canal, which was made of Calico and Flannel.

use serde::{Deserialize, Serialize};

use super::omit::is_zero;
use super::scalars::Quantity;

/// `CalicoNetworkingSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CalicoNetworkingSpec {
    /// Registry.
    #[serde(skip_serializing_if = "is_zero")]
    pub registry: String,
    /// Version.
    #[serde(skip_serializing_if = "is_zero")]
    pub version: String,
    /// Allow IP forwarding.
    #[serde(rename = "allowIPForwarding", skip_serializing_if = "is_zero")]
    pub allow_ip_forwarding: bool,
    /// Aws src dst check.
    #[serde(skip_serializing_if = "is_zero")]
    pub aws_src_dst_check: String,
    /// Bpf enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub bpf_enabled: bool,
    /// Bpf external service mode.
    #[serde(skip_serializing_if = "is_zero")]
    pub bpf_external_service_mode: String,
    /// Bpf kube proxy iptables cleanup enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub bpf_kube_proxy_iptables_cleanup_enabled: bool,
    /// Bpf log level.
    #[serde(skip_serializing_if = "is_zero")]
    pub bpf_log_level: String,
    /// Chain insert mode.
    #[serde(skip_serializing_if = "is_zero")]
    pub chain_insert_mode: String,
    /// Cpu request.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_request: Option<Quantity>,
    /// Cross subnet.
    #[serde(skip_serializing_if = "is_zero")]
    pub cross_subnet: Option<bool>,
    /// Encapsulation mode.
    #[serde(skip_serializing_if = "is_zero")]
    pub encapsulation_mode: String,
    /// Ipip mode.
    #[serde(skip_serializing_if = "is_zero")]
    pub ipip_mode: String,
    /// Ipv4 auto detection method.
    #[serde(skip_serializing_if = "is_zero")]
    pub ipv4_auto_detection_method: String,
    /// Ipv6 auto detection method.
    #[serde(skip_serializing_if = "is_zero")]
    pub ipv6_auto_detection_method: String,
    /// Iptables backend.
    #[serde(skip_serializing_if = "is_zero")]
    pub iptables_backend: String,
    /// Log severity screen.
    #[serde(skip_serializing_if = "is_zero")]
    pub log_severity_screen: String,
    /// Mtu.
    #[serde(skip_serializing_if = "is_zero")]
    pub mtu: Option<i32>,
    /// Nftables mode.
    #[serde(skip_serializing_if = "is_zero")]
    pub nftables_mode: String,
    /// Prometheus metrics enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub prometheus_metrics_enabled: bool,
    /// Prometheus metrics port.
    #[serde(skip_serializing_if = "is_zero")]
    pub prometheus_metrics_port: i32,
    /// Prometheus go metrics enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub prometheus_go_metrics_enabled: bool,
    /// Prometheus process metrics enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub prometheus_process_metrics_enabled: bool,
    /// Typha prometheus metrics enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub typha_prometheus_metrics_enabled: bool,
    /// Typha prometheus metrics port.
    #[serde(skip_serializing_if = "is_zero")]
    pub typha_prometheus_metrics_port: i32,
    /// Typha replicas.
    #[serde(skip_serializing_if = "is_zero")]
    pub typha_replicas: i32,
    /// Vxlan mode.
    #[serde(skip_serializing_if = "is_zero")]
    pub vxlan_mode: String,
    /// Wireguard enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub wireguard_enabled: Option<bool>,
}

/// `CanalNetworkingSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CanalNetworkingSpec {
    /// Chain insert mode.
    #[serde(skip_serializing_if = "is_zero")]
    pub chain_insert_mode: String,
    /// Cpu request.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_request: Option<Quantity>,
    /// Default endpoint to host action.
    #[serde(skip_serializing_if = "is_zero")]
    pub default_endpoint_to_host_action: String,
    /// Flanneld iptables forward rules.
    #[serde(skip_serializing_if = "is_zero")]
    pub flanneld_iptables_forward_rules: Option<bool>,
    /// Iptables backend.
    #[serde(skip_serializing_if = "is_zero")]
    pub iptables_backend: String,
    /// Log severity sys.
    #[serde(skip_serializing_if = "is_zero")]
    pub log_severity_sys: String,
    /// Mtu.
    #[serde(skip_serializing_if = "is_zero")]
    pub mtu: Option<i32>,
    /// Prometheus go metrics enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub prometheus_go_metrics_enabled: bool,
    /// Prometheus metrics enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub prometheus_metrics_enabled: bool,
    /// Prometheus metrics port.
    #[serde(skip_serializing_if = "is_zero")]
    pub prometheus_metrics_port: i32,
    /// Prometheus process metrics enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub prometheus_process_metrics_enabled: bool,
    /// Typha prometheus metrics enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub typha_prometheus_metrics_enabled: bool,
    /// Typha prometheus metrics port.
    #[serde(skip_serializing_if = "is_zero")]
    pub typha_prometheus_metrics_port: i32,
    /// Typha replicas.
    #[serde(skip_serializing_if = "is_zero")]
    pub typha_replicas: i32,
}
