//! What kOps wants of kube-proxy.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::duration::Duration;
use super::omit::is_zero;
use super::scalars::Quantity;

/// `KubeProxyConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeProxyConfig {
    /// Image.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: String,
    /// Cpu request.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_request: Option<Quantity>,
    /// Cpu limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_limit: Option<Quantity>,
    /// Memory request.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_request: Option<Quantity>,
    /// Memory limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_limit: Option<Quantity>,
    /// `--v`: Log level.
    #[serde(skip_serializing_if = "is_zero")]
    pub log_level: i32,
    /// `--cluster-cidr`: Cluster CIDR.
    #[serde(rename = "clusterCIDR", skip_serializing_if = "is_zero")]
    pub cluster_cidr: Option<String>,
    /// `--hostname-override`: Hostname override.
    #[serde(skip_serializing_if = "is_zero")]
    pub hostname_override: String,
    /// `--bind-address`: Bind address.
    #[serde(skip_serializing_if = "is_zero")]
    pub bind_address: String,
    /// `--master`: Master.
    #[serde(skip_serializing_if = "is_zero")]
    pub master: String,
    /// `--metrics-bind-address`: Metrics bind address.
    #[serde(skip_serializing_if = "is_zero")]
    pub metrics_bind_address: Option<String>,
    /// Enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: Option<bool>,
    /// `--proxy-mode`: Proxy mode.
    #[serde(skip_serializing_if = "is_zero")]
    pub proxy_mode: String,
    /// `--ipvs-exclude-cidrs`: Ipvs exclude cidrs.
    #[serde(rename = "ipvsExcludeCIDRs", skip_serializing_if = "is_zero")]
    pub ipvs_exclude_cidrs: Vec<String>,
    /// `--ipvs-min-sync-period`: Ipvs min sync period.
    #[serde(skip_serializing_if = "is_zero")]
    pub ipvs_min_sync_period: Option<Duration>,
    /// `--ipvs-scheduler`: Ipvs scheduler.
    #[serde(skip_serializing_if = "is_zero")]
    pub ipvs_scheduler: Option<String>,
    /// `--ipvs-sync-period`: Ipvs sync period.
    #[serde(skip_serializing_if = "is_zero")]
    pub ipvs_sync_period: Option<Duration>,
    /// `--feature-gates`: Feature gates.
    #[serde(skip_serializing_if = "is_zero")]
    pub feature_gates: BTreeMap<String, String>,
    /// `--conntrack-max-per-core`: Conntrack max per core.
    #[serde(skip_serializing_if = "is_zero")]
    pub conntrack_max_per_core: Option<i32>,
    /// `--conntrack-min`: Conntrack min.
    #[serde(skip_serializing_if = "is_zero")]
    pub conntrack_min: Option<i32>,
}
