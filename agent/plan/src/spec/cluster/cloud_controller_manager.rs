//! What kOps wants of the cloud-controller-manager.

use serde::{Deserialize, Serialize};

use crate::spec::duration::Duration;
use crate::spec::kube_scheduler::LeaderElectionConfiguration;
use crate::spec::omit::is_zero;
use crate::spec::scalars::Quantity;

/// `CloudControllerManagerConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CloudControllerManagerConfig {
    /// `--master`: Master.
    #[serde(skip_serializing_if = "is_zero")]
    pub master: String,
    /// `--v`: Log level.
    #[serde(skip_serializing_if = "is_zero")]
    pub log_level: i32,
    /// Image.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: String,
    /// `--cloud-provider`: Cloud provider.
    #[serde(skip_serializing_if = "is_zero")]
    pub cloud_provider: String,
    /// `--cluster-name`: Cluster name.
    #[serde(skip_serializing_if = "is_zero")]
    pub cluster_name: String,
    /// `--allow-untagged-cloud`: Allow untagged cloud.
    #[serde(skip_serializing_if = "is_zero")]
    pub allow_untagged_cloud: Option<bool>,
    /// `--cluster-cidr`: Cluster CIDR.
    #[serde(rename = "clusterCIDR", skip_serializing_if = "is_zero")]
    pub cluster_cidr: String,
    /// `--allocate-node-cidrs`: Allocate node cidrs.
    #[serde(rename = "allocateNodeCIDRs", skip_serializing_if = "is_zero")]
    pub allocate_node_cidrs: Option<bool>,
    /// `--configure-cloud-routes`: Configure cloud routes.
    #[serde(skip_serializing_if = "is_zero")]
    pub configure_cloud_routes: Option<bool>,
    /// `--controllers`: Controllers.
    #[serde(skip_serializing_if = "is_zero")]
    pub controllers: Vec<String>,
    /// `--cidr-allocator-type`: Cidr allocator type.
    #[serde(skip_serializing_if = "is_zero")]
    pub cidr_allocator_type: Option<String>,
    /// Leader election.
    #[serde(skip_serializing_if = "is_zero")]
    pub leader_election: Option<LeaderElectionConfiguration>,
    /// `--use-service-account-credentials`: Use service account credentials.
    #[serde(skip_serializing_if = "is_zero")]
    pub use_service_account_credentials: Option<bool>,
    /// `--enable-leader-migration`: Enable leader migration.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_leader_migration: Option<bool>,
    /// Cpu request.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_request: Option<Quantity>,
    /// `--node-status-update-frequency`: Node status update frequency.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_status_update_frequency: Option<Duration>,
    /// `--concurrent-node-syncs`: Concurrent node syncs.
    #[serde(skip_serializing_if = "is_zero")]
    pub concurrent_node_syncs: Option<i32>,
    /// Azure node manager image.
    #[serde(skip_serializing_if = "is_zero")]
    pub azure_node_manager_image: String,
}
