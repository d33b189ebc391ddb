//! Settings of the addons that kOps manages.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::apply;

use crate::go_yaml::is_zero;
use crate::scalars::Quantity;

/// An add-on that the user provides.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AddonSpec {
    /// The location of the add-on's manifest.
    pub manifest: String,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterAutoscalerConfig {
    pub enabled: Option<bool>,
    /// The strategy by which the cluster autoscaler chooses the group to enlarge.
    pub expander: String,
    /// Whether the cluster autoscaler keeps similar groups at the same size.
    pub balance_similar_node_groups: Option<bool>,
    pub emit_per_nodegroup_metrics: Option<bool>,
    /// Whether the cluster autoscaler uses its built-in list of EC2 types.
    pub aws_use_static_instance_list: Option<bool>,
    /// Whether the cluster autoscaler excludes the pods of DaemonSets when it computes a node's utilization.
    pub ignore_daemon_sets_utilization: Option<bool>,
    /// The utilization below which the cluster autoscaler may remove a node.
    pub scale_down_utilization_threshold: Option<String>,
    /// Whether the cluster autoscaler keeps every node that has pods of custom controllers.
    pub skip_nodes_with_custom_controller_pods: Option<bool>,
    /// Whether the cluster autoscaler keeps every node that has pods of kube-system.
    pub skip_nodes_with_system_pods: Option<bool>,
    /// Whether the cluster autoscaler keeps every node that has pods with local storage.
    pub skip_nodes_with_local_storage: Option<bool>,
    /// Minimum age at which a pending pod can cause a scale-up.
    pub new_pod_scale_up_delay: Option<String>,
    /// Time between a scale-up and the next scale-down.
    pub scale_down_delay_after_add: Option<String>,
    /// Time that a node must be unneeded before the cluster autoscaler removes it.
    pub scale_down_unneeded_time: Option<String>,
    /// Like `scale_down_unneeded_time`, for a node that is not ready.
    pub scale_down_unready_time: Option<String>,
    pub cordon_node_before_terminating: Option<bool>,
    pub image: Option<String>,
    pub memory_request: Option<Quantity>,
    pub cpu_request: Option<Quantity>,
    /// Maximum time that a new node may take to become ready.
    pub max_node_provision_time: String,
    pub pod_annotations: BTreeMap<String, String>,
    pub create_priority_expander_config: Option<bool>,
    /// Priorities for the expander `priority`, in place of kOps' priorities.
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
    /// The issuer for certificates that name no issuer.
    pub default_issuer: Option<String>,
    pub nameservers: Vec<String>,
    /// Route 53 zones that cert-manager may change.
    #[serde(rename = "hostedZoneIDs")]
    pub hosted_zone_ids: Vec<String>,
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

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SnapshotControllerConfig {
    pub enabled: Option<bool>,
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
    /// Feature gates, each as `name=true` or `name=false`, separated by commas.
    pub feature_gates: String,
    pub memory_limit: Option<Quantity>,
    pub memory_request: Option<Quantity>,
    pub cpu_request: Option<Quantity>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NTPConfig {
    /// Whether kOps configures time synchronization. The default is yes.
    pub managed: Option<bool>,
}
