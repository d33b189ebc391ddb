//! kOps' settings of the cloud-controller-manager.

use serde::{Deserialize, Serialize};
use serde_with::apply;

use crate::duration::Duration;
use crate::go_yaml::is_zero;
use crate::kube_scheduler::LeaderElectionConfiguration;
use crate::scalars::Quantity;

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CloudControllerManagerConfig {
    /// `--master`: address of the API server.
    pub master: String,
    /// `--v`: verbosity of the log. kOps omits the flag if the value is `0`.
    pub log_level: i32,
    /// Container image. The name does not yet contain the registry or proxy of `spec.assets`.
    pub image: String,
    /// `--cloud-provider`: the cloud, by kOps' id.
    pub cloud_provider: String,
    /// `--cluster-name`: prefix of the names of cloud resources.
    pub cluster_name: String,
    /// `--allow-untagged-cloud`: run even if cloud resources have no cluster tag.
    pub allow_untagged_cloud: Option<bool>,
    /// `--cluster-cidr`: addresses of pods.
    #[serde(rename = "clusterCIDR")]
    pub cluster_cidr: String,
    /// `--allocate-node-cidrs`: assign a range of pod addresses to each node.
    #[serde(rename = "allocateNodeCIDRs")]
    pub allocate_node_cidrs: Option<bool>,
    /// `--configure-cloud-routes`: configure routes to pods in the cloud.
    pub configure_cloud_routes: Option<bool>,
    /// `--controllers`: controllers to run. `*` means the default controllers, and `-name` disables the
    /// controller `name`.
    pub controllers: Vec<String>,
    /// `--cidr-allocator-type`: how nodes get their ranges of pod addresses.
    pub cidr_allocator_type: Option<String>,
    pub leader_election: Option<LeaderElectionConfiguration>,
    /// `--use-service-account-credentials`: give each controller its own service account.
    pub use_service_account_credentials: Option<bool>,
    /// `--enable-leader-migration`: share the leader lock with kube-controller-manager while controllers move from it.
    pub enable_leader_migration: Option<bool>,
    pub cpu_request: Option<Quantity>,
    /// `--node-status-update-frequency`: interval between refreshes of nodes' addresses.
    pub node_status_update_frequency: Option<Duration>,
    /// `--concurrent-node-syncs`: number of nodes that are handled at the same time.
    pub concurrent_node_syncs: Option<i32>,
    pub azure_node_manager_image: String,
}
