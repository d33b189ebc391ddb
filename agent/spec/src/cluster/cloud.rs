//! The cloud that a cluster runs in, and its settings.

use serde::{Deserialize, Serialize};
use serde_with::apply;

use crate::cluster::aws::{
    EBSCSIDriverSpec, LoadBalancerControllerSpec, NodeTerminationHandlerSpec, PodIdentityWebhookSpec,
    WarmPoolSpec,
};
use crate::go_yaml::is_zero;
use crate::openstack::OpenstackSpec;

/// The cloud that a cluster runs in. At most one field is set.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CloudProviderSpec {
    pub aws: Option<AWSSpec>,
    pub azure: Option<AzureSpec>,
    pub r#do: Option<DOSpec>,
    pub gce: Option<GCESpec>,
    pub hetzner: Option<HetznerSpec>,
    pub openstack: Option<OpenstackSpec>,
    pub scaleway: Option<ScalewaySpec>,
    pub linode: Option<LinodeSpec>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AWSSpec {
    #[serde(rename = "ebsCSIDriver")]
    pub ebs_csi_driver: Option<EBSCSIDriverSpec>,
    /// The handler that drains nodes before their instances terminate.
    pub node_termination_handler: Option<NodeTerminationHandlerSpec>,
    pub load_balancer_controller: Option<LoadBalancerControllerSpec>,
    /// The webhook that gives pods IAM roles.
    pub pod_identity_webhook: Option<PodIdentityWebhookSpec>,
    /// Instances that AWS starts in advance, before the group needs them.
    pub warm_pool: Option<WarmPoolSpec>,
    /// IP families of a node's addresses, in order: `ipv4`, `ipv6`.
    #[serde(rename = "nodeIPFamilies")]
    pub node_ip_families: Vec<String>,
    /// Whether nodes are named by their private DNS name instead of their instance id.
    #[serde(rename = "useIPBasedNodeNames")]
    pub use_ip_based_node_names: Option<bool>,
    /// Whether load balancers of Services leave the nodes' security group unchanged.
    pub disable_security_group_ingress: Option<bool>,
    /// Security group for all load balancers of Services.
    pub elb_security_group: Option<String>,
    /// If `Managed`, network load balancers of Services get security groups.
    pub nlb_security_group_mode: Option<String>,
    pub spotinst_product: Option<String>,
    /// The goal that Spot by NetApp optimizes for.
    pub spotinst_orientation: Option<String>,
    /// Download location of AWS' cloud provider binaries, in place of the default location.
    pub binaries_location: Option<String>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AzureSpec {
    #[serde(rename = "subscriptionID")]
    pub subscription_id: String,
    /// The storage account of the state store.
    #[serde(rename = "storageAccountID")]
    pub storage_account_id: String,
    #[serde(rename = "tenantID")]
    #[serde_with(skip_apply)]
    pub tenant_id: String,
    pub resource_group_name: String,
    pub route_table_name: String,
    pub admin_user: String,
}

/// DigitalOcean. It has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DOSpec {}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GCESpec {
    #[serde_with(skip_apply)]
    pub project: String,
    pub service_account: String,
    pub multizone: Option<bool>,
    /// Network tags of nodes, to which firewall rules apply.
    pub node_tags: Option<String>,
    pub node_instance_prefix: Option<String>,
    #[serde(rename = "pdCSIDriver")]
    pub pd_csi_driver: Option<PDCSIDriver>,
    /// Whether machines get a start-up script instead of user-data.
    pub use_startup_script: Option<bool>,
    /// Download location of Google's cloud provider binaries, in place of the default location.
    pub binaries_location: Option<String>,
}

/// Hetzner Cloud. It has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HetznerSpec {}

/// Scaleway. It has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScalewaySpec {}

/// Linode. It has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinodeSpec {}

/// Cloud settings that are independent of the cloud provider.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CloudConfiguration {
    pub manage_storage_classes: Option<bool>,
}

/// The CSI driver for Google's persistent disks.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PDCSIDriver {
    pub enabled: Option<bool>,
    pub version: Option<String>,
    pub default_storage_class_name: Option<String>,
}
