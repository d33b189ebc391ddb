//! What kOps wants of the cloud-controller-manager.

use serde::{Deserialize, Serialize};

use crate::duration::Duration;
use crate::kube_scheduler::LeaderElectionConfiguration;
use crate::omit::is_zero;
use crate::scalars::Quantity;

/// What kOps wants of the cloud-controller-manager.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CloudControllerManagerConfig {
    /// `--master`: address of the API server.
    #[serde(skip_serializing_if = "is_zero")]
    pub master: String,
    /// `--v` (left out when `0`): verbosity of the log.
    #[serde(skip_serializing_if = "is_zero")]
    pub log_level: i32,
    /// Container image, before any remapping of registries.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: String,
    /// `--cloud-provider`: the cloud, by kOps' id.
    #[serde(skip_serializing_if = "is_zero")]
    pub cloud_provider: String,
    /// `--cluster-name`: prefix of the names of cloud resources.
    #[serde(skip_serializing_if = "is_zero")]
    pub cluster_name: String,
    /// `--allow-untagged-cloud`: run where resources bear no cluster's tag.
    #[serde(skip_serializing_if = "is_zero")]
    pub allow_untagged_cloud: Option<bool>,
    /// `--cluster-cidr`: addresses of pods.
    #[serde(rename = "clusterCIDR", skip_serializing_if = "is_zero")]
    pub cluster_cidr: String,
    /// `--allocate-node-cidrs`: assign each node addresses for its pods.
    #[serde(rename = "allocateNodeCIDRs", skip_serializing_if = "is_zero")]
    pub allocate_node_cidrs: Option<bool>,
    /// `--configure-cloud-routes`: have the cloud route to pods.
    #[serde(skip_serializing_if = "is_zero")]
    pub configure_cloud_routes: Option<bool>,
    /// `--controllers`: controllers to run; `*` for the usual, `-name` for none of that name.
    #[serde(skip_serializing_if = "is_zero")]
    pub controllers: Vec<String>,
    /// `--cidr-allocator-type`: who assigns pod addresses.
    #[serde(skip_serializing_if = "is_zero")]
    pub cidr_allocator_type: Option<String>,
    /// How one of several becomes the leader.
    #[serde(skip_serializing_if = "is_zero")]
    pub leader_election: Option<LeaderElectionConfiguration>,
    /// `--use-service-account-credentials`: give each controller its own service account.
    #[serde(skip_serializing_if = "is_zero")]
    pub use_service_account_credentials: Option<bool>,
    /// `--enable-leader-migration`: share leadership with kube-controller-manager while moving from it.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_leader_migration: Option<bool>,
    /// CPU that its pod requests.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_request: Option<Quantity>,
    /// `--node-status-update-frequency`: how often nodes' addresses are refreshed.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_status_update_frequency: Option<Duration>,
    /// `--concurrent-node-syncs`: nodes handled at a time.
    #[serde(skip_serializing_if = "is_zero")]
    pub concurrent_node_syncs: Option<i32>,
    /// Image of Azure's cloud-node-manager.
    #[serde(skip_serializing_if = "is_zero")]
    pub azure_node_manager_image: String,
}
