//! What kOps adds to a cluster on AWS.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::apply;

use crate::omit::is_zero;
use crate::scalars::Quantity;

/// The driver for EBS volumes.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EBSCSIDriverSpec {
    pub managed: Option<bool>,
    pub version: Option<String>,
    /// Most requests to the API server a second.
    #[serde(rename = "kubeAPIQPS")]
    pub kube_api_qps: Option<Quantity>,
    /// Most requests to the API server at once, above the rate.
    #[serde(rename = "kubeAPIBurst")]
    pub kube_api_burst: Option<i32>,
    /// Whether its controller uses the host's network.
    pub host_network: bool,
    /// Most volumes on a node.
    pub volume_attach_limit: Option<i64>,
    pub pod_annotations: BTreeMap<String, String>,
}

/// The handler of ending instances.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeTerminationHandlerSpec {
    /// Whether messages about unknown nodes are dropped.
    #[serde(rename = "deleteSQSMsgIfNodeNotFound")]
    pub delete_sqs_msg_if_node_not_found: Option<bool>,
    pub enabled: Option<bool>,
    /// Whether it drains nodes before spot interruptions.
    pub enable_spot_interruption_draining: Option<bool>,
    /// Whether it drains nodes before scheduled maintenance.
    pub enable_scheduled_event_draining: Option<bool>,
    /// Whether it cordons nodes at risk of interruption.
    pub enable_rebalance_monitoring: Option<bool>,
    /// Whether it drains nodes at risk of interruption.
    pub enable_rebalance_draining: Option<bool>,
    /// Whether it taints ended nodes as out of service.
    pub enable_out_of_service_taint: Option<bool>,
    pub prometheus_enable: Option<bool>,
    /// Whether it takes events from a queue.
    #[serde(rename = "enableSQSTerminationDraining")]
    pub enable_sqs_termination_draining: Option<bool>,
    /// Whether drained nodes leave load balancers at once.
    pub exclude_from_load_balancers: Option<bool>,
    /// Tag of the auto scaling groups it looks after.
    #[serde(rename = "managedASGTag")]
    pub managed_asg_tag: Option<String>,
    /// Seconds that pods have to end; below 0 for their own time.
    pub pod_termination_grace_period: Option<i32>,
    pub taint_node: Option<bool>,
    /// Memory that it is limited to.
    pub memory_limit: Option<Quantity>,
    pub memory_request: Option<Quantity>,
    pub cpu_request: Option<Quantity>,
    pub version: Option<String>,
    /// Template of the messages it sends.
    pub webhook_template: Option<String>,
    /// Where it sends messages.
    #[serde(rename = "webhookURL")]
    pub webhook_url: Option<String>,
}

/// The controller of AWS load balancers.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LoadBalancerControllerSpec {
    pub enabled: Option<bool>,
    pub version: Option<String>,
    /// Whether it may use regional web application firewalls.
    #[serde(rename = "enableWAF")]
    pub enable_waf: bool,
    /// Whether it may use web application firewalls of the second version.
    #[serde(rename = "enableWAFv2")]
    pub enable_waf_v2: bool,
    /// Whether it may use Shield Advanced.
    pub enable_shield: bool,
    pub cpu_request: Option<Quantity>,
    /// CPU that it is limited to.
    pub cpu_limit: Option<Quantity>,
    pub memory_request: Option<Quantity>,
    /// Memory that it is limited to.
    pub memory_limit: Option<Quantity>,
}

/// The webhook that gives pods IAM roles.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodIdentityWebhookSpec {
    pub enabled: bool,
    pub replicas: i64,
}

/// Instances that are started ahead of need (AWS).
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WarmPoolSpec {
    pub min_size: i64,
    /// Most instances, those in use among them; 0 switches the pool off.
    pub max_size: Option<i64>,
    /// Whether an instance must report that it is ready before it counts.
    pub enable_lifecycle_hook: bool,
    /// Seconds to wait for that report.
    pub lifecycle_hook_timeout: Option<i32>,
    /// More images to pull ahead of need.
    pub additional_images: Vec<String>,
}
