//! The etcd clusters, their members, backups and managers.

use serde::{Deserialize, Serialize};
use serde_with::apply;

use crate::duration::Duration;
use crate::network_plugins::EnvVar;
use crate::omit::is_zero;
use crate::scalars::Quantity;

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EtcdClusterSpec {
    /// Its name: `main`, `events`, `leases` or `cilium`.
    pub name: String,
    /// What runs it: `Manager`.
    pub provider: String,
    pub etcd_members: Vec<EtcdMemberSpec>,
    pub version: String,
    /// Silence of the leader after which another is elected.
    pub leader_election_timeout: Option<Duration>,
    /// How often the leader is heard.
    pub heartbeat_interval: Option<Duration>,
    pub image: String,
    pub backups: Option<EtcdBackupSpec>,
    pub manager: Option<EtcdManagerSpec>,
    /// Memory that a member requests.
    pub memory_request: Option<Quantity>,
    /// CPU that a member requests.
    pub cpu_request: Option<Quantity>,
}

/// A member of an etcd cluster.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EtcdMemberSpec {
    pub name: String,
    /// The instance group it runs in.
    pub instance_group: Option<String>,
    pub volume_type: Option<String>,
    /// Provisioned operations a second of its volume.
    #[serde(rename = "volumeIOPS")]
    pub volume_iops: Option<i32>,
    /// Provisioned throughput of its volume, in MB/s.
    pub volume_throughput: Option<i32>,
    /// Size of its volume, in GB.
    pub volume_size: Option<i32>,
    /// Key that encrypts its volume.
    #[serde(rename = "kmsKeyID")]
    pub kms_key_id: Option<String>,
    /// Whether its volume is encrypted.
    pub encrypted_volume: Option<bool>,
}

/// Backups of an etcd cluster.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EtcdBackupSpec {
    /// Where they go.
    pub backup_store: String,
    /// Image of what makes them.
    pub image: String,
}

/// The manager of an etcd cluster.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EtcdManagerSpec {
    pub image: String,
    /// Environment variables of its container.
    pub env: Vec<EnvVar>,
    pub backup_interval: Option<Duration>,
    /// Days for which backups are kept.
    pub backup_retention_days: Option<u32>,
    /// How often members are looked for.
    pub discovery_poll_interval: Option<Duration>,
    /// URLs at which etcd serves metrics.
    #[serde(rename = "listenMetricsURLs")]
    pub listen_metrics_urls: Vec<String>,
    /// URLs at which etcd serves HTTP apart from gRPC.
    #[serde(rename = "listenClientHTTPURLs")]
    pub listen_client_http_urls: Vec<String>,
    pub log_level: Option<i32>,
}
