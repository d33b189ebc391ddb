//! The etcd clusters, their members, backups and managers.

use serde::{Deserialize, Serialize};

use crate::spec::duration::Duration;
use crate::spec::network_plugins::EnvVar;
use crate::spec::omit::is_zero;
use crate::spec::scalars::Quantity;

/// `EtcdClusterSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EtcdClusterSpec {
    /// Name.
    #[serde(skip_serializing_if = "is_zero")]
    pub name: String,
    /// Provider.
    #[serde(skip_serializing_if = "is_zero")]
    pub provider: String,
    /// Etcd members.
    #[serde(skip_serializing_if = "is_zero")]
    pub etcd_members: Vec<EtcdMemberSpec>,
    /// Version.
    #[serde(skip_serializing_if = "is_zero")]
    pub version: String,
    /// Leader election timeout.
    #[serde(skip_serializing_if = "is_zero")]
    pub leader_election_timeout: Option<Duration>,
    /// Heartbeat interval.
    #[serde(skip_serializing_if = "is_zero")]
    pub heartbeat_interval: Option<Duration>,
    /// Image.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: String,
    /// Backups.
    #[serde(skip_serializing_if = "is_zero")]
    pub backups: Option<EtcdBackupSpec>,
    /// Manager.
    #[serde(skip_serializing_if = "is_zero")]
    pub manager: Option<EtcdManagerSpec>,
    /// Memory request.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_request: Option<Quantity>,
    /// Cpu request.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_request: Option<Quantity>,
}

/// `EtcdMemberSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EtcdMemberSpec {
    /// Name.
    #[serde(skip_serializing_if = "is_zero")]
    pub name: String,
    /// Instance group.
    #[serde(skip_serializing_if = "is_zero")]
    pub instance_group: Option<String>,
    /// Volume type.
    #[serde(skip_serializing_if = "is_zero")]
    pub volume_type: Option<String>,
    /// Volume IOPS.
    #[serde(rename = "volumeIOPS", skip_serializing_if = "is_zero")]
    pub volume_iops: Option<i32>,
    /// Volume throughput.
    #[serde(skip_serializing_if = "is_zero")]
    pub volume_throughput: Option<i32>,
    /// Volume size.
    #[serde(skip_serializing_if = "is_zero")]
    pub volume_size: Option<i32>,
    /// Kms key ID.
    #[serde(rename = "kmsKeyID", skip_serializing_if = "is_zero")]
    pub kms_key_id: Option<String>,
    /// Encrypted volume.
    #[serde(skip_serializing_if = "is_zero")]
    pub encrypted_volume: Option<bool>,
}

/// `EtcdBackupSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EtcdBackupSpec {
    /// Backup store.
    #[serde(skip_serializing_if = "is_zero")]
    pub backup_store: String,
    /// Image.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: String,
}

/// `EtcdManagerSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EtcdManagerSpec {
    /// Image.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: String,
    /// Env.
    #[serde(skip_serializing_if = "is_zero")]
    pub env: Vec<EnvVar>,
    /// Backup interval.
    #[serde(skip_serializing_if = "is_zero")]
    pub backup_interval: Option<Duration>,
    /// Backup retention days.
    #[serde(skip_serializing_if = "is_zero")]
    pub backup_retention_days: Option<u32>,
    /// Discovery poll interval.
    #[serde(skip_serializing_if = "is_zero")]
    pub discovery_poll_interval: Option<Duration>,
    /// Listen metrics urls.
    #[serde(rename = "listenMetricsURLs", skip_serializing_if = "is_zero")]
    pub listen_metrics_urls: Vec<String>,
    /// Listen client HTTP urls.
    #[serde(rename = "listenClientHTTPURLs", skip_serializing_if = "is_zero")]
    pub listen_client_http_urls: Vec<String>,
    /// Log level.
    #[serde(skip_serializing_if = "is_zero")]
    pub log_level: Option<i32>,
}
