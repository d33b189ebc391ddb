//! What kOps wants of kube-scheduler, and how control plane components elect a leader.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::duration::Duration;
use super::omit::is_zero;
use super::scalars::Quantity;

/// `KubeSchedulerConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeSchedulerConfig {
    /// `--master`: Master.
    #[serde(skip_serializing_if = "is_zero")]
    pub master: String,
    /// `--logging-format`: Log format.
    #[serde(skip_serializing_if = "is_zero")]
    pub log_format: String,
    /// `--v`: Log level.
    #[serde(skip_serializing_if = "is_zero")]
    pub log_level: i32,
    /// Image.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: String,
    /// Leader election.
    #[serde(skip_serializing_if = "is_zero")]
    pub leader_election: Option<LeaderElectionConfiguration>,
    /// Use policy config map.
    #[serde(skip_serializing_if = "is_zero")]
    pub use_policy_config_map: Option<bool>,
    /// `--feature-gates`: Feature gates.
    #[serde(skip_serializing_if = "is_zero")]
    pub feature_gates: BTreeMap<String, String>,
    /// Max persistent volumes.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_persistent_volumes: Option<i32>,
    /// Qps.
    #[serde(skip_serializing_if = "is_zero")]
    pub qps: Option<Quantity>,
    /// Burst.
    #[serde(skip_serializing_if = "is_zero")]
    pub burst: i32,
    /// `--kube-api-qps`: Kube API QPS.
    #[serde(rename = "kubeAPIQPS", skip_serializing_if = "is_zero")]
    pub kube_api_qps: Option<Quantity>,
    /// `--kube-api-burst`: Kube API burst.
    #[serde(rename = "kubeAPIBurst", skip_serializing_if = "is_zero")]
    pub kube_api_burst: Option<i32>,
    /// `--authentication-kubeconfig`: Authentication kubeconfig.
    #[serde(skip_serializing_if = "is_zero")]
    pub authentication_kubeconfig: String,
    /// `--authorization-kubeconfig`: Authorization kubeconfig.
    #[serde(skip_serializing_if = "is_zero")]
    pub authorization_kubeconfig: String,
    /// `--authorization-always-allow-paths`: Authorization always allow paths.
    #[serde(skip_serializing_if = "is_zero")]
    pub authorization_always_allow_paths: Vec<String>,
    /// `--profiling`: Enable profiling.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_profiling: Option<bool>,
    /// `--contention-profiling`: Enable contention profiling.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_contention_profiling: Option<bool>,
    /// `--tls-cert-file`: Tls cert file.
    #[serde(skip_serializing_if = "is_zero")]
    pub tls_cert_file: Option<String>,
    /// `--tls-private-key-file`: Tls private key file.
    #[serde(skip_serializing_if = "is_zero")]
    pub tls_private_key_file: String,
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
}

/// `LeaderElectionConfiguration`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LeaderElectionConfiguration {
    /// `--leader-elect`: Leader elect.
    #[serde(skip_serializing_if = "is_zero")]
    pub leader_elect: Option<bool>,
    /// `--leader-elect-lease-duration`: Leader elect lease duration.
    #[serde(skip_serializing_if = "is_zero")]
    pub leader_elect_lease_duration: Option<Duration>,
    /// `--leader-elect-renew-deadline`: Leader elect renew deadline duration.
    #[serde(skip_serializing_if = "is_zero")]
    pub leader_elect_renew_deadline_duration: Option<Duration>,
    /// `--leader-elect-resource-lock`: Leader elect resource lock.
    #[serde(skip_serializing_if = "is_zero")]
    pub leader_elect_resource_lock: Option<String>,
    /// `--leader-elect-resource-name`: Leader elect resource name.
    #[serde(skip_serializing_if = "is_zero")]
    pub leader_elect_resource_name: Option<String>,
    /// `--leader-elect-resource-namespace`: Leader elect resource namespace.
    #[serde(skip_serializing_if = "is_zero")]
    pub leader_elect_resource_namespace: Option<String>,
    /// `--leader-elect-retry-period`: Leader elect retry period.
    #[serde(skip_serializing_if = "is_zero")]
    pub leader_elect_retry_period: Option<Duration>,
}
