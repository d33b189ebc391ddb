//! What kOps wants of kube-proxy.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::duration::Duration;
use super::omit::is_zero;
use super::scalars::Quantity;

/// What kOps wants of kube-proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeProxyConfig {
    /// Container image.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: String,
    /// CPU that its pod requests.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_request: Option<Quantity>,
    /// CPU that its pod is limited to.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_limit: Option<Quantity>,
    /// Memory that its pod requests.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_request: Option<Quantity>,
    /// Memory that its pod is limited to.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_limit: Option<Quantity>,
    /// `--v`: verbosity of the log.
    #[serde(skip_serializing_if = "is_zero")]
    pub log_level: i32,
    /// `--cluster-cidr`: addresses of pods.
    #[serde(rename = "clusterCIDR", skip_serializing_if = "is_zero")]
    pub cluster_cidr: Option<String>,
    /// `--hostname-override`: node name in place of the host's name.
    #[serde(skip_serializing_if = "is_zero")]
    pub hostname_override: String,
    /// `--bind-address`: address to serve on.
    #[serde(skip_serializing_if = "is_zero")]
    pub bind_address: String,
    /// `--master`: address of the API server.
    #[serde(skip_serializing_if = "is_zero")]
    pub master: String,
    /// `--metrics-bind-address`: address and port of the metrics.
    #[serde(skip_serializing_if = "is_zero")]
    pub metrics_bind_address: Option<String>,
    /// Whether kube-proxy runs; unset means that it does.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: Option<bool>,
    /// `--proxy-mode`: `iptables`, `ipvs` or `nftables`.
    #[serde(skip_serializing_if = "is_zero")]
    pub proxy_mode: String,
    /// `--ipvs-exclude-cidrs`: addresses that IPVS leaves alone.
    #[serde(rename = "ipvsExcludeCIDRs", skip_serializing_if = "is_zero")]
    pub ipvs_exclude_cidrs: Vec<String>,
    /// `--ipvs-min-sync-period`: least time between two refreshes of IPVS.
    #[serde(skip_serializing_if = "is_zero")]
    pub ipvs_min_sync_period: Option<Duration>,
    /// `--ipvs-scheduler`: IPVS scheduler.
    #[serde(skip_serializing_if = "is_zero")]
    pub ipvs_scheduler: Option<String>,
    /// `--ipvs-sync-period`: most time between two refreshes of IPVS.
    #[serde(skip_serializing_if = "is_zero")]
    pub ipvs_sync_period: Option<Duration>,
    /// `--feature-gates`: features switched on or off, by name.
    #[serde(skip_serializing_if = "is_zero")]
    pub feature_gates: BTreeMap<String, String>,
    /// `--conntrack-max-per-core`: tracked connections for each CPU; 0 leaves the kernel's limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub conntrack_max_per_core: Option<i32>,
    /// `--conntrack-min`: least number of tracked connections.
    #[serde(skip_serializing_if = "is_zero")]
    pub conntrack_min: Option<i32>,
}
