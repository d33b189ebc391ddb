//! What kOps adds to a cluster on AWS.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::spec::omit::is_zero;
use crate::spec::scalars::Quantity;

/// `EBSCSIDriverSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EBSCSIDriverSpec {
    /// Managed.
    #[serde(skip_serializing_if = "is_zero")]
    pub managed: Option<bool>,
    /// Version.
    #[serde(skip_serializing_if = "is_zero")]
    pub version: Option<String>,
    /// Kube API QPS.
    #[serde(rename = "kubeAPIQPS", skip_serializing_if = "is_zero")]
    pub kube_api_qps: Option<Quantity>,
    /// Kube API burst.
    #[serde(rename = "kubeAPIBurst", skip_serializing_if = "is_zero")]
    pub kube_api_burst: Option<i32>,
    /// Host network.
    #[serde(skip_serializing_if = "is_zero")]
    pub host_network: bool,
    /// Volume attach limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub volume_attach_limit: Option<i64>,
    /// Pod annotations.
    #[serde(skip_serializing_if = "is_zero")]
    pub pod_annotations: BTreeMap<String, String>,
}

/// `NodeTerminationHandlerSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeTerminationHandlerSpec {
    /// Delete SQS msg if node not found.
    #[serde(rename = "deleteSQSMsgIfNodeNotFound", skip_serializing_if = "is_zero")]
    pub delete_sqs_msg_if_node_not_found: Option<bool>,
    /// Enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: Option<bool>,
    /// Enable spot interruption draining.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_spot_interruption_draining: Option<bool>,
    /// Enable scheduled event draining.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_scheduled_event_draining: Option<bool>,
    /// Enable rebalance monitoring.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_rebalance_monitoring: Option<bool>,
    /// Enable rebalance draining.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_rebalance_draining: Option<bool>,
    /// Enable out of service taint.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_out_of_service_taint: Option<bool>,
    /// Prometheus enable.
    #[serde(skip_serializing_if = "is_zero")]
    pub prometheus_enable: Option<bool>,
    /// Enable SQS termination draining.
    #[serde(rename = "enableSQSTerminationDraining", skip_serializing_if = "is_zero")]
    pub enable_sqs_termination_draining: Option<bool>,
    /// Exclude from load balancers.
    #[serde(skip_serializing_if = "is_zero")]
    pub exclude_from_load_balancers: Option<bool>,
    /// Managed ASG tag.
    #[serde(rename = "managedASGTag", skip_serializing_if = "is_zero")]
    pub managed_asg_tag: Option<String>,
    /// Pod termination grace period.
    #[serde(skip_serializing_if = "is_zero")]
    pub pod_termination_grace_period: Option<i32>,
    /// Taint node.
    #[serde(skip_serializing_if = "is_zero")]
    pub taint_node: Option<bool>,
    /// Memory limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_limit: Option<Quantity>,
    /// Memory request.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_request: Option<Quantity>,
    /// Cpu request.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_request: Option<Quantity>,
    /// Version.
    #[serde(skip_serializing_if = "is_zero")]
    pub version: Option<String>,
    /// Webhook template.
    #[serde(skip_serializing_if = "is_zero")]
    pub webhook_template: Option<String>,
    /// Webhook URL.
    #[serde(rename = "webhookURL", skip_serializing_if = "is_zero")]
    pub webhook_url: Option<String>,
}

/// `LoadBalancerControllerSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LoadBalancerControllerSpec {
    /// Enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: Option<bool>,
    /// Version.
    #[serde(skip_serializing_if = "is_zero")]
    pub version: Option<String>,
    /// Enable WAF.
    #[serde(rename = "enableWAF", skip_serializing_if = "is_zero")]
    pub enable_waf: bool,
    /// Enable WAF v2.
    #[serde(rename = "enableWAFv2", skip_serializing_if = "is_zero")]
    pub enable_waf_v2: bool,
    /// Enable shield.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_shield: bool,
    /// Cpu request.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_request: Option<Quantity>,
    /// Cpu limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_limit: Option<Quantity>,
    /// Memory request.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_request: Option<Quantity>,
    /// Memory limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_limit: Option<Quantity>,
}

/// `PodIdentityWebhookSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodIdentityWebhookSpec {
    /// Enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: bool,
    /// Replicas.
    #[serde(skip_serializing_if = "is_zero")]
    pub replicas: i64,
}

/// `WarmPoolSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WarmPoolSpec {
    /// Min size.
    #[serde(skip_serializing_if = "is_zero")]
    pub min_size: i64,
    /// Max size.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_size: Option<i64>,
    /// Enable lifecycle hook.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_lifecycle_hook: bool,
    /// Lifecycle hook timeout.
    #[serde(skip_serializing_if = "is_zero")]
    pub lifecycle_hook_timeout: Option<i32>,
    /// Additional images.
    #[serde(skip_serializing_if = "is_zero")]
    pub additional_images: Vec<String>,
}
