//! What kOps wants of kube-scheduler, and how control plane components elect a leader.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::duration::Duration;
use super::omit::is_zero;
use super::scalars::Quantity;

/// What kOps wants of kube-scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeSchedulerConfig {
    /// `--master`: address of the API server.
    #[serde(skip_serializing_if = "is_zero")]
    pub master: String,
    /// `--logging-format` (left out when `text`): format of the log: `text` or `json`.
    #[serde(skip_serializing_if = "is_zero")]
    pub log_format: String,
    /// `--v`: verbosity of the log.
    #[serde(skip_serializing_if = "is_zero")]
    pub log_level: i32,
    /// Container image.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: String,
    /// How one of several becomes the leader.
    #[serde(skip_serializing_if = "is_zero")]
    pub leader_election: Option<LeaderElectionConfiguration>,
    /// Whether a ConfigMap holds the policy; no longer used.
    #[serde(skip_serializing_if = "is_zero")]
    pub use_policy_config_map: Option<bool>,
    /// `--feature-gates`: features switched on or off, by name.
    #[serde(skip_serializing_if = "is_zero")]
    pub feature_gates: BTreeMap<String, String>,
    /// Most volumes of a kind on a node, for the environment variable `KUBE_MAX_PD_VOLS`.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_persistent_volumes: Option<i32>,
    /// Most requests to the API server a second: `clientConnection.qps` of its configuration file.
    #[serde(skip_serializing_if = "is_zero")]
    pub qps: Option<Quantity>,
    /// Most requests at once, above the rate: `clientConnection.burst` of its configuration file.
    #[serde(skip_serializing_if = "is_zero")]
    pub burst: i32,
    /// `--kube-api-qps`: most requests to the API server a second.
    #[serde(rename = "kubeAPIQPS", skip_serializing_if = "is_zero")]
    pub kube_api_qps: Option<Quantity>,
    /// `--kube-api-burst`: most requests to the API server at once, above the rate.
    #[serde(rename = "kubeAPIBurst", skip_serializing_if = "is_zero")]
    pub kube_api_burst: Option<i32>,
    /// `--authentication-kubeconfig`: kubeconfig by which clients' credentials are verified.
    #[serde(skip_serializing_if = "is_zero")]
    pub authentication_kubeconfig: String,
    /// `--authorization-kubeconfig`: kubeconfig by which clients' requests are authorized.
    #[serde(skip_serializing_if = "is_zero")]
    pub authorization_kubeconfig: String,
    /// `--authorization-always-allow-paths`: paths that need no authorization.
    #[serde(skip_serializing_if = "is_zero")]
    pub authorization_always_allow_paths: Vec<String>,
    /// `--profiling`: serve profiles.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_profiling: Option<bool>,
    /// `--contention-profiling`: profile waiting for locks.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_contention_profiling: Option<bool>,
    /// `--tls-cert-file`: file of the serving certificate.
    #[serde(skip_serializing_if = "is_zero")]
    pub tls_cert_file: Option<String>,
    /// `--tls-private-key-file`: file of the serving key.
    #[serde(skip_serializing_if = "is_zero")]
    pub tls_private_key_file: String,
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
}

/// How one of several instances becomes the one that acts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LeaderElectionConfiguration {
    /// `--leader-elect`: elect a leader at all.
    #[serde(skip_serializing_if = "is_zero")]
    pub leader_elect: Option<bool>,
    /// `--leader-elect-lease-duration`: silence of the leader after which others may take over.
    #[serde(skip_serializing_if = "is_zero")]
    pub leader_elect_lease_duration: Option<Duration>,
    /// `--leader-elect-renew-deadline`: time in which the leader must renew, or step down.
    #[serde(skip_serializing_if = "is_zero")]
    pub leader_elect_renew_deadline_duration: Option<Duration>,
    /// `--leader-elect-resource-lock`: kind of object that is the lock.
    #[serde(skip_serializing_if = "is_zero")]
    pub leader_elect_resource_lock: Option<String>,
    /// `--leader-elect-resource-name`: name of that object.
    #[serde(skip_serializing_if = "is_zero")]
    pub leader_elect_resource_name: Option<String>,
    /// `--leader-elect-resource-namespace`: namespace of that object.
    #[serde(skip_serializing_if = "is_zero")]
    pub leader_elect_resource_namespace: Option<String>,
    /// `--leader-elect-retry-period`: wait between two attempts.
    #[serde(skip_serializing_if = "is_zero")]
    pub leader_elect_retry_period: Option<Duration>,
}
