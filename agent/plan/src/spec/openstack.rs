//! Settings of the OpenStack cloud.

use serde::{Deserialize, Serialize};

use super::omit::is_zero;

/// `OpenstackSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OpenstackSpec {
    /// Loadbalancer.
    #[serde(skip_serializing_if = "is_zero")]
    pub loadbalancer: Option<OpenstackLoadbalancerConfig>,
    /// Monitor.
    #[serde(skip_serializing_if = "is_zero")]
    pub monitor: Option<OpenstackMonitor>,
    /// Router.
    #[serde(skip_serializing_if = "is_zero")]
    pub router: Option<OpenstackRouter>,
    /// Block storage.
    #[serde(skip_serializing_if = "is_zero")]
    pub block_storage: Option<OpenstackBlockStorageConfig>,
    /// Insecure skip verify.
    #[serde(skip_serializing_if = "is_zero")]
    pub insecure_skip_verify: Option<bool>,
    /// Network.
    #[serde(skip_serializing_if = "is_zero")]
    pub network: Option<OpenstackNetwork>,
    /// Metadata.
    #[serde(skip_serializing_if = "is_zero")]
    pub metadata: Option<OpenstackMetadata>,
}

/// `OpenstackLoadbalancerConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OpenstackLoadbalancerConfig {
    /// Method.
    #[serde(skip_serializing_if = "is_zero")]
    pub method: Option<String>,
    /// Provider.
    #[serde(skip_serializing_if = "is_zero")]
    pub provider: Option<String>,
    /// Use octavia.
    #[serde(skip_serializing_if = "is_zero")]
    pub use_octavia: Option<bool>,
    /// Floating network.
    #[serde(skip_serializing_if = "is_zero")]
    pub floating_network: Option<String>,
    /// Floating network ID.
    #[serde(rename = "floatingNetworkID", skip_serializing_if = "is_zero")]
    pub floating_network_id: Option<String>,
    /// Floating subnet.
    #[serde(skip_serializing_if = "is_zero")]
    pub floating_subnet: Option<String>,
    /// Subnet ID.
    #[serde(rename = "subnetID", skip_serializing_if = "is_zero")]
    pub subnet_id: Option<String>,
    /// Manage security groups.
    #[serde(skip_serializing_if = "is_zero")]
    pub manage_security_groups: Option<bool>,
    /// Enable ingress hostname.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_ingress_hostname: Option<bool>,
    /// Ingress hostname suffix.
    #[serde(skip_serializing_if = "is_zero")]
    pub ingress_hostname_suffix: Option<String>,
    /// Flavor ID.
    #[serde(rename = "flavorID", skip_serializing_if = "is_zero")]
    pub flavor_id: Option<String>,
}

/// `OpenstackBlockStorageConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OpenstackBlockStorageConfig {
    /// Bs version.
    #[serde(rename = "bs-version", skip_serializing_if = "is_zero")]
    pub bs_version: Option<String>,
    /// Ignore volume az.
    #[serde(rename = "ignore-volume-az", skip_serializing_if = "is_zero")]
    pub ignore_volume_az: Option<bool>,
    /// Override volume az.
    #[serde(rename = "override-volume-az", skip_serializing_if = "is_zero")]
    pub override_volume_az: Option<String>,
    /// Ignore volume microversion.
    #[serde(rename = "ignore-volume-microversion", skip_serializing_if = "is_zero")]
    pub ignore_volume_microversion: Option<bool>,
    /// Metrics enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub metrics_enabled: Option<bool>,
    /// Create storage class.
    #[serde(skip_serializing_if = "is_zero")]
    pub create_storage_class: Option<bool>,
    /// Csi plugin image.
    #[serde(skip_serializing_if = "is_zero")]
    pub csi_plugin_image: String,
    /// Csi topology support.
    #[serde(skip_serializing_if = "is_zero")]
    pub csi_topology_support: Option<bool>,
    /// Cluster name.
    #[serde(skip_serializing_if = "is_zero")]
    pub cluster_name: String,
}

/// `OpenstackMonitor`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OpenstackMonitor {
    /// Delay.
    #[serde(skip_serializing_if = "is_zero")]
    pub delay: Option<String>,
    /// Timeout.
    #[serde(skip_serializing_if = "is_zero")]
    pub timeout: Option<String>,
    /// Max retries.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_retries: Option<i64>,
}

/// `OpenstackRouter`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OpenstackRouter {
    /// External network.
    #[serde(skip_serializing_if = "is_zero")]
    pub external_network: Option<String>,
    /// Dns servers.
    #[serde(skip_serializing_if = "is_zero")]
    pub dns_servers: Option<String>,
    /// External subnet.
    #[serde(skip_serializing_if = "is_zero")]
    pub external_subnet: Option<String>,
    /// Availability zone hints.
    #[serde(skip_serializing_if = "is_zero")]
    pub availability_zone_hints: Vec<String>,
}

/// `OpenstackNetwork`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OpenstackNetwork {
    /// Availability zone hints.
    #[serde(skip_serializing_if = "is_zero")]
    pub availability_zone_hints: Vec<String>,
    /// Ipv6 support disabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub ipv6_support_disabled: Option<bool>,
    /// Public network names.
    #[serde(skip_serializing_if = "is_zero")]
    pub public_network_names: Vec<String>,
    /// Internal network names.
    #[serde(skip_serializing_if = "is_zero")]
    pub internal_network_names: Vec<String>,
    /// Address sort order.
    #[serde(skip_serializing_if = "is_zero")]
    pub address_sort_order: Option<String>,
}

/// `OpenstackMetadata`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OpenstackMetadata {
    /// Config drive.
    #[serde(skip_serializing_if = "is_zero")]
    pub config_drive: Option<bool>,
}
