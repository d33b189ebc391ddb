//! kOps' settings of kube-scheduler, and of leader election for the components of the control plane.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::apply;

use super::duration::Duration;
use super::go_yaml::is_zero;
use super::scalars::Quantity;

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeSchedulerConfig {
    /// `--master`: address of the API server.
    pub master: String,
    /// `--logging-format` (left out when `text`): format of the log: `text` or `json`.
    pub log_format: String,
    /// `--v`: verbosity of the log.
    pub log_level: i32,
    pub image: String,
    pub leader_election: Option<LeaderElectionConfiguration>,
    /// Whether the scheduler's policy is in a ConfigMap. kOps no longer uses this field.
    pub use_policy_config_map: Option<bool>,
    pub feature_gates: BTreeMap<String, String>,
    /// Maximum number of volumes of one type on a node, for the environment variable `KUBE_MAX_PD_VOLS`.
    pub max_persistent_volumes: Option<i32>,
    /// Maximum number of requests per second to the API server: `clientConnection.qps` of the scheduler's
    /// configuration file.
    pub qps: Option<Quantity>,
    /// Maximum number of requests to the API server in a short burst, which may exceed `qps`: `clientConnection.burst` of the scheduler's
    /// configuration file.
    pub burst: i32,
    /// `--kube-api-qps`: maximum number of requests per second to the API server.
    #[serde(rename = "kubeAPIQPS")]
    pub kube_api_qps: Option<Quantity>,
    /// `--kube-api-burst`: maximum number of requests to the API server in a short burst, which may exceed `kube_api_qps`.
    #[serde(rename = "kubeAPIBurst")]
    pub kube_api_burst: Option<i32>,
    /// `--authentication-kubeconfig`: kubeconfig for asking the API server to verify clients' credentials.
    pub authentication_kubeconfig: String,
    /// `--authorization-kubeconfig`: kubeconfig for asking the API server whether a client's request is allowed.
    pub authorization_kubeconfig: String,
    /// `--authorization-always-allow-paths`: paths that need no authorization.
    pub authorization_always_allow_paths: Vec<String>,
    /// `--profiling`: serve profiling data.
    pub enable_profiling: Option<bool>,
    /// `--contention-profiling`: collect profiles of lock contention.
    pub enable_contention_profiling: Option<bool>,
    /// `--tls-cert-file`: file of the serving certificate.
    pub tls_cert_file: Option<String>,
    /// `--tls-private-key-file`: file of the serving key.
    pub tls_private_key_file: String,
    pub cpu_request: Option<Quantity>,
    pub cpu_limit: Option<Quantity>,
    pub memory_request: Option<Quantity>,
    pub memory_limit: Option<Quantity>,
}

/// Leader election: only one of several instances of a component is active.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LeaderElectionConfiguration {
    pub leader_elect: Option<bool>,
    /// `--leader-elect-lease-duration`: time without a renewal after which a different instance may become the leader.
    pub leader_elect_lease_duration: Option<Duration>,
    /// `--leader-elect-renew-deadline`: time after which a leader that cannot renew its lease steps down.
    pub leader_elect_renew_deadline_duration: Option<Duration>,
    /// `--leader-elect-resource-lock`: kind of the object that the instances use as a lock.
    pub leader_elect_resource_lock: Option<String>,
    /// `--leader-elect-resource-name`: name of the object that the instances use as a lock.
    pub leader_elect_resource_name: Option<String>,
    /// `--leader-elect-resource-namespace`: namespace of the object that the instances use as a lock.
    pub leader_elect_resource_namespace: Option<String>,
    /// `--leader-elect-retry-period`: time between two attempts to acquire or renew the lease.
    pub leader_elect_retry_period: Option<Duration>,
}
