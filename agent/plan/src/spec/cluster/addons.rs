//! Settings of the addons that kOps manages.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::spec::omit::is_zero;
use crate::spec::scalars::Quantity;

/// `AddonSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AddonSpec {
    /// Manifest.
    #[serde(skip_serializing_if = "is_zero")]
    pub manifest: String,
}

/// `ClusterAutoscalerConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterAutoscalerConfig {
    /// Enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: Option<bool>,
    /// Expander.
    #[serde(skip_serializing_if = "is_zero")]
    pub expander: String,
    /// Balance similar node groups.
    #[serde(skip_serializing_if = "is_zero")]
    pub balance_similar_node_groups: Option<bool>,
    /// Emit per nodegroup metrics.
    #[serde(skip_serializing_if = "is_zero")]
    pub emit_per_nodegroup_metrics: Option<bool>,
    /// Aws use static instance list.
    #[serde(skip_serializing_if = "is_zero")]
    pub aws_use_static_instance_list: Option<bool>,
    /// Ignore daemon sets utilization.
    #[serde(skip_serializing_if = "is_zero")]
    pub ignore_daemon_sets_utilization: Option<bool>,
    /// Scale down utilization threshold.
    #[serde(skip_serializing_if = "is_zero")]
    pub scale_down_utilization_threshold: Option<String>,
    /// Skip nodes with custom controller pods.
    #[serde(skip_serializing_if = "is_zero")]
    pub skip_nodes_with_custom_controller_pods: Option<bool>,
    /// Skip nodes with system pods.
    #[serde(skip_serializing_if = "is_zero")]
    pub skip_nodes_with_system_pods: Option<bool>,
    /// Skip nodes with local storage.
    #[serde(skip_serializing_if = "is_zero")]
    pub skip_nodes_with_local_storage: Option<bool>,
    /// New pod scale up delay.
    #[serde(skip_serializing_if = "is_zero")]
    pub new_pod_scale_up_delay: Option<String>,
    /// Scale down delay after add.
    #[serde(skip_serializing_if = "is_zero")]
    pub scale_down_delay_after_add: Option<String>,
    /// Scale down unneeded time.
    #[serde(skip_serializing_if = "is_zero")]
    pub scale_down_unneeded_time: Option<String>,
    /// Scale down unready time.
    #[serde(skip_serializing_if = "is_zero")]
    pub scale_down_unready_time: Option<String>,
    /// Cordon node before terminating.
    #[serde(skip_serializing_if = "is_zero")]
    pub cordon_node_before_terminating: Option<bool>,
    /// Image.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: Option<String>,
    /// Memory request.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_request: Option<Quantity>,
    /// Cpu request.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_request: Option<Quantity>,
    /// Max node provision time.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_node_provision_time: String,
    /// Pod annotations.
    #[serde(skip_serializing_if = "is_zero")]
    pub pod_annotations: BTreeMap<String, String>,
    /// Create priority expander config.
    #[serde(skip_serializing_if = "is_zero")]
    pub create_priority_expander_config: Option<bool>,
    /// Custom priority expander config.
    #[serde(skip_serializing_if = "is_zero")]
    pub custom_priority_expander_config: BTreeMap<String, Vec<String>>,
}

/// `MetricsServerConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MetricsServerConfig {
    /// Enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: Option<bool>,
    /// Image.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: Option<String>,
    /// Insecure.
    #[serde(skip_serializing_if = "is_zero")]
    pub insecure: Option<bool>,
}

/// `CertManagerConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CertManagerConfig {
    /// Enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: Option<bool>,
    /// Managed.
    #[serde(skip_serializing_if = "is_zero")]
    pub managed: Option<bool>,
    /// Image.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: Option<String>,
    /// Default issuer.
    #[serde(skip_serializing_if = "is_zero")]
    pub default_issuer: Option<String>,
    /// Nameservers.
    #[serde(skip_serializing_if = "is_zero")]
    pub nameservers: Vec<String>,
    /// Hosted zone ids.
    #[serde(rename = "hostedZoneIDs", skip_serializing_if = "is_zero")]
    pub hosted_zone_ids: Vec<String>,
    /// Feature gates.
    #[serde(skip_serializing_if = "is_zero")]
    pub feature_gates: BTreeMap<String, bool>,
}

/// `NodeProblemDetectorConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeProblemDetectorConfig {
    /// Enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: Option<bool>,
    /// Image.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: Option<String>,
    /// Memory request.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_request: Option<Quantity>,
    /// Cpu request.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_request: Option<Quantity>,
    /// Memory limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_limit: Option<Quantity>,
    /// Cpu limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_limit: Option<Quantity>,
}

/// `SnapshotControllerConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SnapshotControllerConfig {
    /// Enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: Option<bool>,
    /// Install default class.
    #[serde(skip_serializing_if = "is_zero")]
    pub install_default_class: bool,
}

/// `KarpenterConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KarpenterConfig {
    /// Enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: bool,
    /// Log format.
    #[serde(skip_serializing_if = "is_zero")]
    pub log_format: String,
    /// Log level.
    #[serde(skip_serializing_if = "is_zero")]
    pub log_level: String,
    /// Image.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: String,
    /// Feature gates.
    #[serde(skip_serializing_if = "is_zero")]
    pub feature_gates: String,
    /// Memory limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_limit: Option<Quantity>,
    /// Memory request.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_request: Option<Quantity>,
    /// Cpu request.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_request: Option<Quantity>,
}

/// `NTPConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NTPConfig {
    /// Managed.
    #[serde(skip_serializing_if = "is_zero")]
    pub managed: Option<bool>,
}
