//! What kOps wants of kube-proxy.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::apply;

use super::duration::Duration;
use super::omit::is_zero;
use super::scalars::Quantity;

/// What kOps wants of kube-proxy.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeProxyConfig {
    pub image: String,
    /// CPU that its pod requests.
    pub cpu_request: Option<Quantity>,
    /// CPU that its pod is limited to.
    pub cpu_limit: Option<Quantity>,
    /// Memory that its pod requests.
    pub memory_request: Option<Quantity>,
    /// Memory that its pod is limited to.
    pub memory_limit: Option<Quantity>,
    /// `--v`: verbosity of the log.
    pub log_level: i32,
    /// `--cluster-cidr`: addresses of pods.
    #[serde(rename = "clusterCIDR")]
    pub cluster_cidr: Option<String>,
    /// `--hostname-override`: node name in place of the host's name.
    pub hostname_override: String,
    /// `--bind-address`: address to serve on.
    pub bind_address: String,
    /// `--master`: address of the API server.
    pub master: String,
    /// `--metrics-bind-address`: address and port of the metrics.
    pub metrics_bind_address: Option<String>,
    /// Whether kube-proxy runs; unset means that it does.
    pub enabled: Option<bool>,
    /// `--proxy-mode`: `iptables`, `ipvs` or `nftables`.
    pub proxy_mode: String,
    /// `--ipvs-exclude-cidrs`: addresses that IPVS leaves alone.
    #[serde(rename = "ipvsExcludeCIDRs")]
    pub ipvs_exclude_cidrs: Vec<String>,
    /// `--ipvs-min-sync-period`: least time between two refreshes of IPVS.
    pub ipvs_min_sync_period: Option<Duration>,
    /// `--ipvs-scheduler`: IPVS scheduler.
    pub ipvs_scheduler: Option<String>,
    /// `--ipvs-sync-period`: most time between two refreshes of IPVS.
    pub ipvs_sync_period: Option<Duration>,
    /// `--feature-gates`: features switched on or off, by name.
    pub feature_gates: BTreeMap<String, String>,
    /// `--conntrack-max-per-core`: tracked connections for each CPU; 0 leaves the kernel's limit.
    pub conntrack_max_per_core: Option<i32>,
    /// `--conntrack-min`: least number of tracked connections.
    pub conntrack_min: Option<i32>,
}
