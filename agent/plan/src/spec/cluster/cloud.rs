//! The cloud a cluster is in, and what kOps uses of it.

use serde::{Deserialize, Serialize};

use crate::spec::cluster::aws::{
    EBSCSIDriverSpec, LoadBalancerControllerSpec, NodeTerminationHandlerSpec, PodIdentityWebhookSpec,
    WarmPoolSpec,
};
use crate::spec::omit::is_zero;
use crate::spec::openstack::OpenstackSpec;

/// `CloudProviderSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CloudProviderSpec {
    /// Aws.
    #[serde(skip_serializing_if = "is_zero")]
    pub aws: Option<AWSSpec>,
    /// Azure.
    #[serde(skip_serializing_if = "is_zero")]
    pub azure: Option<AzureSpec>,
    /// Do.
    #[serde(skip_serializing_if = "is_zero")]
    pub r#do: Option<DOSpec>,
    /// Gce.
    #[serde(skip_serializing_if = "is_zero")]
    pub gce: Option<GCESpec>,
    /// Hetzner.
    #[serde(skip_serializing_if = "is_zero")]
    pub hetzner: Option<HetznerSpec>,
    /// Openstack.
    #[serde(skip_serializing_if = "is_zero")]
    pub openstack: Option<OpenstackSpec>,
    /// Scaleway.
    #[serde(skip_serializing_if = "is_zero")]
    pub scaleway: Option<ScalewaySpec>,
    /// Linode.
    #[serde(skip_serializing_if = "is_zero")]
    pub linode: Option<LinodeSpec>,
}

/// `AWSSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AWSSpec {
    /// Ebs CSI driver.
    #[serde(rename = "ebsCSIDriver", skip_serializing_if = "is_zero")]
    pub ebs_csi_driver: Option<EBSCSIDriverSpec>,
    /// Node termination handler.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_termination_handler: Option<NodeTerminationHandlerSpec>,
    /// Load balancer controller.
    #[serde(skip_serializing_if = "is_zero")]
    pub load_balancer_controller: Option<LoadBalancerControllerSpec>,
    /// Pod identity webhook.
    #[serde(skip_serializing_if = "is_zero")]
    pub pod_identity_webhook: Option<PodIdentityWebhookSpec>,
    /// Warm pool.
    #[serde(skip_serializing_if = "is_zero")]
    pub warm_pool: Option<WarmPoolSpec>,
    /// Node IP families.
    #[serde(rename = "nodeIPFamilies", skip_serializing_if = "is_zero")]
    pub node_ip_families: Vec<String>,
    /// Use IP based node names.
    #[serde(rename = "useIPBasedNodeNames", skip_serializing_if = "is_zero")]
    pub use_ip_based_node_names: Option<bool>,
    /// Disable security group ingress.
    #[serde(skip_serializing_if = "is_zero")]
    pub disable_security_group_ingress: Option<bool>,
    /// Elb security group.
    #[serde(skip_serializing_if = "is_zero")]
    pub elb_security_group: Option<String>,
    /// Nlb security group mode.
    #[serde(skip_serializing_if = "is_zero")]
    pub nlb_security_group_mode: Option<String>,
    /// Spotinst product.
    #[serde(skip_serializing_if = "is_zero")]
    pub spotinst_product: Option<String>,
    /// Spotinst orientation.
    #[serde(skip_serializing_if = "is_zero")]
    pub spotinst_orientation: Option<String>,
    /// Binaries location.
    #[serde(skip_serializing_if = "is_zero")]
    pub binaries_location: Option<String>,
}

/// `AzureSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AzureSpec {
    /// Subscription ID.
    #[serde(rename = "subscriptionID", skip_serializing_if = "is_zero")]
    pub subscription_id: String,
    /// Storage account ID.
    #[serde(rename = "storageAccountID", skip_serializing_if = "is_zero")]
    pub storage_account_id: String,
    /// Tenant ID.
    #[serde(rename = "tenantID")]
    pub tenant_id: String,
    /// Resource group name.
    #[serde(skip_serializing_if = "is_zero")]
    pub resource_group_name: String,
    /// Route table name.
    #[serde(skip_serializing_if = "is_zero")]
    pub route_table_name: String,
    /// Admin user.
    #[serde(skip_serializing_if = "is_zero")]
    pub admin_user: String,
}

/// `DOSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DOSpec {}

/// `GCESpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GCESpec {
    /// Project.
    pub project: String,
    /// Service account.
    #[serde(skip_serializing_if = "is_zero")]
    pub service_account: String,
    /// Multizone.
    #[serde(skip_serializing_if = "is_zero")]
    pub multizone: Option<bool>,
    /// Node tags.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_tags: Option<String>,
    /// Node instance prefix.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_instance_prefix: Option<String>,
    /// Pd CSI driver.
    #[serde(rename = "pdCSIDriver", skip_serializing_if = "is_zero")]
    pub pd_csi_driver: Option<PDCSIDriver>,
    /// Use startup script.
    #[serde(skip_serializing_if = "is_zero")]
    pub use_startup_script: Option<bool>,
    /// Binaries location.
    #[serde(skip_serializing_if = "is_zero")]
    pub binaries_location: Option<String>,
}

/// `HetznerSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HetznerSpec {}

/// `ScalewaySpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScalewaySpec {}

/// `LinodeSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinodeSpec {}

/// `CloudConfiguration`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CloudConfiguration {
    /// Manage storage classes.
    #[serde(skip_serializing_if = "is_zero")]
    pub manage_storage_classes: Option<bool>,
}

/// `PDCSIDriver`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PDCSIDriver {
    /// Enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: Option<bool>,
    /// Version.
    #[serde(skip_serializing_if = "is_zero")]
    pub version: Option<String>,
    /// Default storage class name.
    #[serde(skip_serializing_if = "is_zero")]
    pub default_storage_class_name: Option<String>,
}
