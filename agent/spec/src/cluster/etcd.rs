//! The etcd clusters, their members, backups and managers.

use serde::{Deserialize, Serialize};

use crate::duration::Duration;
use crate::network_plugins::EnvVar;
use crate::omit::is_zero;
use crate::scalars::Quantity;

/// An etcd cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EtcdClusterSpec {
    /// Its name: `main`, `events`, `leases` or `cilium`.
    #[serde(skip_serializing_if = "is_zero")]
    pub name: String,
    /// Who runs it: `Manager`.
    #[serde(skip_serializing_if = "is_zero")]
    pub provider: String,
    /// Its members.
    #[serde(skip_serializing_if = "is_zero")]
    pub etcd_members: Vec<EtcdMemberSpec>,
    /// Its version.
    #[serde(skip_serializing_if = "is_zero")]
    pub version: String,
    /// Silence of the leader after which another is elected.
    #[serde(skip_serializing_if = "is_zero")]
    pub leader_election_timeout: Option<Duration>,
    /// How often the leader is heard.
    #[serde(skip_serializing_if = "is_zero")]
    pub heartbeat_interval: Option<Duration>,
    /// Its image.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: String,
    /// Its backups.
    #[serde(skip_serializing_if = "is_zero")]
    pub backups: Option<EtcdBackupSpec>,
    /// Its manager.
    #[serde(skip_serializing_if = "is_zero")]
    pub manager: Option<EtcdManagerSpec>,
    /// Memory that a member requests.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_request: Option<Quantity>,
    /// CPU that a member requests.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_request: Option<Quantity>,
}

/// A member of an etcd cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EtcdMemberSpec {
    /// Its name.
    #[serde(skip_serializing_if = "is_zero")]
    pub name: String,
    /// The instance group it runs in.
    #[serde(skip_serializing_if = "is_zero")]
    pub instance_group: Option<String>,
    /// Kind of its volume.
    #[serde(skip_serializing_if = "is_zero")]
    pub volume_type: Option<String>,
    /// Provisioned operations a second of its volume.
    #[serde(rename = "volumeIOPS", skip_serializing_if = "is_zero")]
    pub volume_iops: Option<i32>,
    /// Provisioned throughput of its volume, in MB/s.
    #[serde(skip_serializing_if = "is_zero")]
    pub volume_throughput: Option<i32>,
    /// Size of its volume, in GB.
    #[serde(skip_serializing_if = "is_zero")]
    pub volume_size: Option<i32>,
    /// Key that encrypts its volume.
    #[serde(rename = "kmsKeyID", skip_serializing_if = "is_zero")]
    pub kms_key_id: Option<String>,
    /// Whether its volume is encrypted.
    #[serde(skip_serializing_if = "is_zero")]
    pub encrypted_volume: Option<bool>,
}

/// Backups of an etcd cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EtcdBackupSpec {
    /// Where they go.
    #[serde(skip_serializing_if = "is_zero")]
    pub backup_store: String,
    /// Image of what makes them.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: String,
}

/// The manager of an etcd cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EtcdManagerSpec {
    /// Its image.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: String,
    /// Environment variables of its container.
    #[serde(skip_serializing_if = "is_zero")]
    pub env: Vec<EnvVar>,
    /// Time between two backups.
    #[serde(skip_serializing_if = "is_zero")]
    pub backup_interval: Option<Duration>,
    /// Days for which backups are kept.
    #[serde(skip_serializing_if = "is_zero")]
    pub backup_retention_days: Option<u32>,
    /// How often members are looked for.
    #[serde(skip_serializing_if = "is_zero")]
    pub discovery_poll_interval: Option<Duration>,
    /// URLs at which etcd serves metrics.
    #[serde(rename = "listenMetricsURLs", skip_serializing_if = "is_zero")]
    pub listen_metrics_urls: Vec<String>,
    /// URLs at which etcd serves HTTP apart from gRPC.
    #[serde(rename = "listenClientHTTPURLs", skip_serializing_if = "is_zero")]
    pub listen_client_http_urls: Vec<String>,
    /// Verbosity of its log.
    #[serde(skip_serializing_if = "is_zero")]
    pub log_level: Option<i32>,
}
