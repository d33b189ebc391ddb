//! Components that kOps adds to a cluster on AWS.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::apply;

use crate::go_yaml::is_zero;
use crate::scalars::Quantity;

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EBSCSIDriverSpec {
    pub managed: Option<bool>,
    pub version: Option<String>,
    /// Maximum number of requests per second to the API server.
    #[serde(rename = "kubeAPIQPS")]
    pub kube_api_qps: Option<Quantity>,
    /// Maximum number of requests to the API server in a short burst, which may exceed `kube_api_qps`.
    #[serde(rename = "kubeAPIBurst")]
    pub kube_api_burst: Option<i32>,
    /// Whether the driver's controller uses the host's network.
    pub host_network: bool,
    pub volume_attach_limit: Option<i64>,
    pub pod_annotations: BTreeMap<String, String>,
}

/// The handler that drains nodes before their instances terminate.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeTerminationHandlerSpec {
    /// Whether the handler deletes queue messages about nodes that do not exist.
    #[serde(rename = "deleteSQSMsgIfNodeNotFound")]
    pub delete_sqs_msg_if_node_not_found: Option<bool>,
    pub enabled: Option<bool>,
    pub enable_spot_interruption_draining: Option<bool>,
    /// Whether the handler drains nodes before scheduled maintenance.
    pub enable_scheduled_event_draining: Option<bool>,
    /// Whether the handler cordons nodes at risk of interruption.
    pub enable_rebalance_monitoring: Option<bool>,
    /// Whether the handler drains nodes at risk of interruption.
    pub enable_rebalance_draining: Option<bool>,
    /// Whether the handler taints terminated nodes as out of service.
    pub enable_out_of_service_taint: Option<bool>,
    pub prometheus_enable: Option<bool>,
    /// Whether the handler reads events from an SQS queue.
    #[serde(rename = "enableSQSTerminationDraining")]
    pub enable_sqs_termination_draining: Option<bool>,
    /// Whether the handler excludes nodes from load balancers before it cordons them.
    pub exclude_from_load_balancers: Option<bool>,
    #[serde(rename = "managedASGTag")]
    pub managed_asg_tag: Option<String>,
    /// Grace period of pods in seconds. If the value is negative, each pod's own grace period applies.
    pub pod_termination_grace_period: Option<i32>,
    pub taint_node: Option<bool>,
    pub memory_limit: Option<Quantity>,
    pub memory_request: Option<Quantity>,
    pub cpu_request: Option<Quantity>,
    pub version: Option<String>,
    /// Template of the messages that the handler sends.
    pub webhook_template: Option<String>,
    #[serde(rename = "webhookURL")]
    pub webhook_url: Option<String>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LoadBalancerControllerSpec {
    pub enabled: Option<bool>,
    pub version: Option<String>,
    /// Whether the controller may use regional web application firewalls.
    #[serde(rename = "enableWAF")]
    pub enable_waf: bool,
    /// Whether the controller may use web application firewalls of the second version.
    #[serde(rename = "enableWAFv2")]
    pub enable_waf_v2: bool,
    /// Whether the controller may use Shield Advanced.
    pub enable_shield: bool,
    pub cpu_request: Option<Quantity>,
    pub cpu_limit: Option<Quantity>,
    pub memory_request: Option<Quantity>,
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

/// Instances that AWS starts in advance, before the group needs them.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WarmPoolSpec {
    pub min_size: i64,
    /// Maximum number of instances in the warm pool and in use together. 0 disables the pool.
    pub max_size: Option<i64>,
    /// Whether the warm pool uses a lifecycle hook: AWS then waits for each instance's report that it is
    /// ready.
    pub enable_lifecycle_hook: bool,
    /// Seconds to wait for an instance's report that it is ready.
    pub lifecycle_hook_timeout: Option<i32>,
    /// Images that instances in the warm pool pull, in addition to kOps' own images.
    pub additional_images: Vec<String>,
}
