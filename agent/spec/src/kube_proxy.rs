//! kOps' settings of kube-proxy.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::apply;

use super::duration::Duration;
use super::go_yaml::is_zero;
use super::scalars::Quantity;

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeProxyConfig {
    pub image: String,
    pub cpu_request: Option<Quantity>,
    pub cpu_limit: Option<Quantity>,
    pub memory_request: Option<Quantity>,
    pub memory_limit: Option<Quantity>,
    /// `--v`: verbosity of the log.
    pub log_level: i32,
    /// `--cluster-cidr`: addresses of pods.
    #[serde(rename = "clusterCIDR")]
    pub cluster_cidr: Option<String>,
    /// `--hostname-override`: name of the Node, if it is not the host's name.
    pub hostname_override: String,
    /// `--bind-address`: address at which kube-proxy serves requests.
    pub bind_address: String,
    /// `--master`: address of the API server.
    pub master: String,
    /// `--metrics-bind-address`: address and port of the metrics.
    pub metrics_bind_address: Option<String>,
    /// Whether kube-proxy runs. The default is yes.
    pub enabled: Option<bool>,
    /// `--proxy-mode`: `iptables`, `ipvs` or `nftables`.
    pub proxy_mode: String,
    /// `--ipvs-exclude-cidrs`: address ranges whose IPVS rules kube-proxy keeps.
    #[serde(rename = "ipvsExcludeCIDRs")]
    pub ipvs_exclude_cidrs: Vec<String>,
    /// `--ipvs-min-sync-period`: minimum time between two updates of IPVS rules.
    pub ipvs_min_sync_period: Option<Duration>,
    /// `--ipvs-scheduler`: IPVS scheduling algorithm.
    pub ipvs_scheduler: Option<String>,
    /// `--ipvs-sync-period`: maximum time between two updates of IPVS rules.
    pub ipvs_sync_period: Option<Duration>,
    pub feature_gates: BTreeMap<String, String>,
    /// `--conntrack-max-per-core`: maximum number of tracked connections per CPU. 0 keeps the kernel's limit.
    pub conntrack_max_per_core: Option<i32>,
    /// `--conntrack-min`: minimum limit of tracked connections, whatever the number of CPUs.
    pub conntrack_min: Option<i32>,
}
