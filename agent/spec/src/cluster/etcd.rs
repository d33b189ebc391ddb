//! Settings of the etcd clusters, their members, backups and managers.

use serde::{Deserialize, Serialize};
use serde_with::apply;

use crate::duration::Duration;
use crate::go_yaml::is_zero;
use crate::network_plugins::EnvVar;
use crate::scalars::Quantity;

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EtcdClusterSpec {
    /// The etcd cluster's name: `main`, `events`, `leases` or `cilium`.
    pub name: String,
    /// The program that runs the etcd cluster: `Manager` means etcd-manager.
    pub provider: String,
    pub etcd_members: Vec<EtcdMemberSpec>,
    pub version: String,
    /// Time without a heartbeat after which the members elect a new leader.
    pub leader_election_timeout: Option<Duration>,
    pub heartbeat_interval: Option<Duration>,
    pub image: String,
    pub backups: Option<EtcdBackupSpec>,
    pub manager: Option<EtcdManagerSpec>,
    pub memory_request: Option<Quantity>,
    pub cpu_request: Option<Quantity>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EtcdMemberSpec {
    pub name: String,
    pub instance_group: Option<String>,
    pub volume_type: Option<String>,
    /// Provisioned I/O operations per second of the member's volume.
    #[serde(rename = "volumeIOPS")]
    pub volume_iops: Option<i32>,
    /// Provisioned throughput of the member's volume, in MB/s.
    pub volume_throughput: Option<i32>,
    /// Size of the member's volume, in GB.
    pub volume_size: Option<i32>,
    /// Key that encrypts the member's volume.
    #[serde(rename = "kmsKeyID")]
    pub kms_key_id: Option<String>,
    pub encrypted_volume: Option<bool>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EtcdBackupSpec {
    /// URL of the folder for the etcd cluster's backups.
    pub backup_store: String,
    /// Container image of the program that backs up the etcd cluster.
    pub image: String,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EtcdManagerSpec {
    pub image: String,
    pub env: Vec<EnvVar>,
    pub backup_interval: Option<Duration>,
    pub backup_retention_days: Option<u32>,
    /// How often the manager searches for members.
    pub discovery_poll_interval: Option<Duration>,
    #[serde(rename = "listenMetricsURLs")]
    pub listen_metrics_urls: Vec<String>,
    /// URLs at which etcd serves HTTP separately from gRPC.
    #[serde(rename = "listenClientHTTPURLs")]
    pub listen_client_http_urls: Vec<String>,
    pub log_level: Option<i32>,
}
