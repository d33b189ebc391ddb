//! kOps' settings of the cloud-controller-manager.

use serde::{Deserialize, Serialize};
use serde_with::apply;

use crate::duration::Duration;
use crate::go_yaml::is_zero;
use crate::kube_scheduler::LeaderElectionConfiguration;
use crate::scalars::Quantity;

/// kOps' settings of the cloud-controller-manager.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CloudControllerManagerConfig {
    /// `--master`: address of the API server.
    pub master: String,
    /// `--v` (left out when `0`): verbosity of the log.
    pub log_level: i32,
    /// Container image, before kOps applies the registry and the proxy of `spec.assets` to its name.
    pub image: String,
    /// `--cloud-provider`: the cloud, by kOps' id.
    pub cloud_provider: String,
    /// `--cluster-name`: prefix of the names of cloud resources.
    pub cluster_name: String,
    /// `--allow-untagged-cloud`: run even if cloud resources have no tag of a cluster.
    pub allow_untagged_cloud: Option<bool>,
    /// `--cluster-cidr`: addresses of pods.
    #[serde(rename = "clusterCIDR")]
    pub cluster_cidr: String,
    /// `--allocate-node-cidrs`: assign each node addresses for its pods.
    #[serde(rename = "allocateNodeCIDRs")]
    pub allocate_node_cidrs: Option<bool>,
    /// `--configure-cloud-routes`: configure routes to pods in the cloud.
    pub configure_cloud_routes: Option<bool>,
    /// `--controllers`: controllers to run. `*` means the default controllers, and `-name` disables the
    /// controller `name`.
    pub controllers: Vec<String>,
    /// `--cidr-allocator-type`: how pod addresses are assigned.
    pub cidr_allocator_type: Option<String>,
    /// Leader election among the instances of the cloud-controller-manager.
    pub leader_election: Option<LeaderElectionConfiguration>,
    /// `--use-service-account-credentials`: give each controller its own service account.
    pub use_service_account_credentials: Option<bool>,
    /// `--enable-leader-migration`: share leadership with kube-controller-manager during a migration from it.
    pub enable_leader_migration: Option<bool>,
    pub cpu_request: Option<Quantity>,
    /// `--node-status-update-frequency`: how often nodes' addresses are refreshed.
    pub node_status_update_frequency: Option<Duration>,
    /// `--concurrent-node-syncs`: number of nodes that are handled at the same time.
    pub concurrent_node_syncs: Option<i32>,
    pub azure_node_manager_image: String,
}
