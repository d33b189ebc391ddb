//! Settings of the addons that kOps manages.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::apply;

use crate::go_yaml::is_zero;
use crate::scalars::Quantity;

/// An addon of the user.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AddonSpec {
    /// The location of the addon's manifest.
    pub manifest: String,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterAutoscalerConfig {
    pub enabled: Option<bool>,
    /// How the cluster autoscaler chooses the group to enlarge.
    pub expander: String,
    /// Whether the cluster autoscaler keeps similar groups at the same size.
    pub balance_similar_node_groups: Option<bool>,
    /// Whether the cluster autoscaler exports metrics for each group.
    pub emit_per_nodegroup_metrics: Option<bool>,
    /// Whether the cluster autoscaler uses its built-in list of EC2 types.
    pub aws_use_static_instance_list: Option<bool>,
    /// Whether the cluster autoscaler ignores the pods of DaemonSets in a node's utilization.
    pub ignore_daemon_sets_utilization: Option<bool>,
    /// The cluster autoscaler may remove a node below this utilization.
    pub scale_down_utilization_threshold: Option<String>,
    /// Whether the cluster autoscaler never removes nodes that have pods of custom controllers.
    pub skip_nodes_with_custom_controller_pods: Option<bool>,
    /// Whether the cluster autoscaler never removes nodes that have pods of kube-system.
    pub skip_nodes_with_system_pods: Option<bool>,
    /// Whether the cluster autoscaler never removes nodes that have pods with local storage.
    pub skip_nodes_with_local_storage: Option<bool>,
    /// Minimum age of a pending pod that causes a scale-up.
    pub new_pod_scale_up_delay: Option<String>,
    /// Wait between a scale-up and the next scale-down.
    pub scale_down_delay_after_add: Option<String>,
    /// Time for which a node must be unneeded before it is removed.
    pub scale_down_unneeded_time: Option<String>,
    /// Time for which a node that is not ready must be unneeded before it is removed.
    pub scale_down_unready_time: Option<String>,
    /// Whether nodes are cordoned before they are terminated.
    pub cordon_node_before_terminating: Option<bool>,
    pub image: Option<String>,
    pub memory_request: Option<Quantity>,
    pub cpu_request: Option<Quantity>,
    /// Maximum time until a new node is ready.
    pub max_node_provision_time: String,
    pub pod_annotations: BTreeMap<String, String>,
    /// Whether kOps writes the priorities of the expander `priority`.
    pub create_priority_expander_config: Option<bool>,
    /// Priorities for the expander `priority`. They replace kOps' priorities.
    pub custom_priority_expander_config: BTreeMap<String, Vec<String>>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MetricsServerConfig {
    pub enabled: Option<bool>,
    pub image: Option<String>,
    /// Whether the API server accepts any certificate of the metrics server.
    pub insecure: Option<bool>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CertManagerConfig {
    pub enabled: Option<bool>,
    pub managed: Option<bool>,
    pub image: Option<String>,
    /// The issuer of certificates that name no issuer.
    pub default_issuer: Option<String>,
    pub nameservers: Vec<String>,
    /// Route 53 zones that cert-manager may change.
    #[serde(rename = "hostedZoneIDs")]
    pub hosted_zone_ids: Vec<String>,
    /// Feature gates, each on or off.
    pub feature_gates: BTreeMap<String, bool>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeProblemDetectorConfig {
    pub enabled: Option<bool>,
    pub image: Option<String>,
    pub memory_request: Option<Quantity>,
    pub cpu_request: Option<Quantity>,
    pub memory_limit: Option<Quantity>,
    pub cpu_limit: Option<Quantity>,
}

/// The controller of volume snapshots.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SnapshotControllerConfig {
    pub enabled: Option<bool>,
    /// Whether kOps creates a default class of snapshots.
    pub install_default_class: bool,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KarpenterConfig {
    pub enabled: bool,
    pub log_format: String,
    pub log_level: String,
    pub image: String,
    /// Feature gates in the form of a flag, separated by commas.
    pub feature_gates: String,
    pub memory_limit: Option<Quantity>,
    pub memory_request: Option<Quantity>,
    pub cpu_request: Option<Quantity>,
}

/// Time synchronization of machines.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NTPConfig {
    /// Whether kOps configures time synchronization. Unset means yes.
    pub managed: Option<bool>,
}
