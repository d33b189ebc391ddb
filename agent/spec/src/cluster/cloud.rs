//! The cloud a cluster is in, and what kOps uses of it.

use serde::{Deserialize, Serialize};

use crate::cluster::aws::{
    EBSCSIDriverSpec, LoadBalancerControllerSpec, NodeTerminationHandlerSpec, PodIdentityWebhookSpec,
    WarmPoolSpec,
};
use crate::omit::is_zero;
use crate::openstack::OpenstackSpec;

/// The cloud a cluster is in; one is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CloudProviderSpec {
    /// Amazon Web Services.
    #[serde(skip_serializing_if = "is_zero")]
    pub aws: Option<AWSSpec>,
    /// Microsoft Azure.
    #[serde(skip_serializing_if = "is_zero")]
    pub azure: Option<AzureSpec>,
    /// DigitalOcean.
    #[serde(skip_serializing_if = "is_zero")]
    pub r#do: Option<DOSpec>,
    /// Google Compute Engine.
    #[serde(skip_serializing_if = "is_zero")]
    pub gce: Option<GCESpec>,
    /// Hetzner Cloud.
    #[serde(skip_serializing_if = "is_zero")]
    pub hetzner: Option<HetznerSpec>,
    /// OpenStack.
    #[serde(skip_serializing_if = "is_zero")]
    pub openstack: Option<OpenstackSpec>,
    /// Scaleway.
    #[serde(skip_serializing_if = "is_zero")]
    pub scaleway: Option<ScalewaySpec>,
    /// Linode (Akamai).
    #[serde(skip_serializing_if = "is_zero")]
    pub linode: Option<LinodeSpec>,
}

/// What kOps uses of AWS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AWSSpec {
    /// The driver for EBS volumes.
    #[serde(rename = "ebsCSIDriver", skip_serializing_if = "is_zero")]
    pub ebs_csi_driver: Option<EBSCSIDriverSpec>,
    /// The handler of ending instances.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_termination_handler: Option<NodeTerminationHandlerSpec>,
    /// The controller of load balancers.
    #[serde(skip_serializing_if = "is_zero")]
    pub load_balancer_controller: Option<LoadBalancerControllerSpec>,
    /// The webhook that gives pods IAM roles.
    #[serde(skip_serializing_if = "is_zero")]
    pub pod_identity_webhook: Option<PodIdentityWebhookSpec>,
    /// Instances that are started ahead of need.
    #[serde(skip_serializing_if = "is_zero")]
    pub warm_pool: Option<WarmPoolSpec>,
    /// IP families of a node's addresses, in order: `ipv4`, `ipv6`.
    #[serde(rename = "nodeIPFamilies", skip_serializing_if = "is_zero")]
    pub node_ip_families: Vec<String>,
    /// Whether nodes are named by their private DNS name in place of their instance id.
    #[serde(rename = "useIPBasedNodeNames", skip_serializing_if = "is_zero")]
    pub use_ip_based_node_names: Option<bool>,
    /// Whether load balancers of Services leave the nodes' security group alone.
    #[serde(skip_serializing_if = "is_zero")]
    pub disable_security_group_ingress: Option<bool>,
    /// Security group of all load balancers of Services.
    #[serde(skip_serializing_if = "is_zero")]
    pub elb_security_group: Option<String>,
    /// Whether network load balancers of Services get security groups: `Managed`.
    #[serde(skip_serializing_if = "is_zero")]
    pub nlb_security_group_mode: Option<String>,
    /// Product of Spot by NetApp.
    #[serde(skip_serializing_if = "is_zero")]
    pub spotinst_product: Option<String>,
    /// What Spot by NetApp optimizes for.
    #[serde(skip_serializing_if = "is_zero")]
    pub spotinst_orientation: Option<String>,
    /// Where AWS' binaries are, in place of their release.
    #[serde(skip_serializing_if = "is_zero")]
    pub binaries_location: Option<String>,
}

/// What kOps uses of Azure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AzureSpec {
    /// The subscription.
    #[serde(rename = "subscriptionID", skip_serializing_if = "is_zero")]
    pub subscription_id: String,
    /// The storage account of the state store.
    #[serde(rename = "storageAccountID", skip_serializing_if = "is_zero")]
    pub storage_account_id: String,
    /// The tenant.
    #[serde(rename = "tenantID")]
    pub tenant_id: String,
    /// An existing resource group.
    #[serde(skip_serializing_if = "is_zero")]
    pub resource_group_name: String,
    /// An existing route table.
    #[serde(skip_serializing_if = "is_zero")]
    pub route_table_name: String,
    /// The administrator's name on machines.
    #[serde(skip_serializing_if = "is_zero")]
    pub admin_user: String,
}

/// DigitalOcean; it has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DOSpec {}

/// What kOps uses of Google Compute Engine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GCESpec {
    /// The project.
    pub project: String,
    /// The machines' service account.
    #[serde(skip_serializing_if = "is_zero")]
    pub service_account: String,
    /// Whether the cluster spans zones.
    #[serde(skip_serializing_if = "is_zero")]
    pub multizone: Option<bool>,
    /// Tags of nodes, for firewall rules.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_tags: Option<String>,
    /// Prefix of nodes' names.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_instance_prefix: Option<String>,
    /// The driver for persistent disks.
    #[serde(rename = "pdCSIDriver", skip_serializing_if = "is_zero")]
    pub pd_csi_driver: Option<PDCSIDriver>,
    /// Whether machines get a start-up script in place of user-data.
    #[serde(skip_serializing_if = "is_zero")]
    pub use_startup_script: Option<bool>,
    /// Where Google's binaries are, in place of their release.
    #[serde(skip_serializing_if = "is_zero")]
    pub binaries_location: Option<String>,
}

/// Hetzner Cloud; it has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HetznerSpec {}

/// Scaleway; it has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScalewaySpec {}

/// Linode; it has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinodeSpec {}

/// Settings that any cloud can have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CloudConfiguration {
    /// Whether kOps makes storage classes.
    #[serde(skip_serializing_if = "is_zero")]
    pub manage_storage_classes: Option<bool>,
}

/// The driver for persistent disks of Google.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PDCSIDriver {
    /// Whether it is installed.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: Option<bool>,
    /// Tag of its image.
    #[serde(skip_serializing_if = "is_zero")]
    pub version: Option<String>,
    /// Which storage class is the default.
    #[serde(skip_serializing_if = "is_zero")]
    pub default_storage_class_name: Option<String>,
}
