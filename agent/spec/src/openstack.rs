//! Settings of the OpenStack cloud.

use serde::{Deserialize, Serialize};

use super::omit::is_zero;

/// What kOps uses of OpenStack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OpenstackSpec {
    /// Load balancers.
    #[serde(skip_serializing_if = "is_zero")]
    pub loadbalancer: Option<OpenstackLoadbalancerConfig>,
    /// How load balancers check their members.
    #[serde(skip_serializing_if = "is_zero")]
    pub monitor: Option<OpenstackMonitor>,
    /// The router.
    #[serde(skip_serializing_if = "is_zero")]
    pub router: Option<OpenstackRouter>,
    /// Block storage.
    #[serde(skip_serializing_if = "is_zero")]
    pub block_storage: Option<OpenstackBlockStorageConfig>,
    /// Whether certificates of OpenStack's API are not verified.
    #[serde(skip_serializing_if = "is_zero")]
    pub insecure_skip_verify: Option<bool>,
    /// Networks.
    #[serde(skip_serializing_if = "is_zero")]
    pub network: Option<OpenstackNetwork>,
    /// Where machines read their metadata.
    #[serde(skip_serializing_if = "is_zero")]
    pub metadata: Option<OpenstackMetadata>,
}

/// Load balancers of OpenStack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OpenstackLoadbalancerConfig {
    /// How members are chosen.
    #[serde(skip_serializing_if = "is_zero")]
    pub method: Option<String>,
    /// Who provides them.
    #[serde(skip_serializing_if = "is_zero")]
    pub provider: Option<String>,
    /// Whether they are Octavia's.
    #[serde(skip_serializing_if = "is_zero")]
    pub use_octavia: Option<bool>,
    /// Name of the network with floating addresses.
    #[serde(skip_serializing_if = "is_zero")]
    pub floating_network: Option<String>,
    /// Id of that network.
    #[serde(rename = "floatingNetworkID", skip_serializing_if = "is_zero")]
    pub floating_network_id: Option<String>,
    /// Subnet of that network.
    #[serde(skip_serializing_if = "is_zero")]
    pub floating_subnet: Option<String>,
    /// Subnet they are placed in.
    #[serde(rename = "subnetID", skip_serializing_if = "is_zero")]
    pub subnet_id: Option<String>,
    /// Whether security groups are managed for Services.
    #[serde(skip_serializing_if = "is_zero")]
    pub manage_security_groups: Option<bool>,
    /// Whether Services show a name in place of an address.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_ingress_hostname: Option<bool>,
    /// Suffix of that name.
    #[serde(skip_serializing_if = "is_zero")]
    pub ingress_hostname_suffix: Option<String>,
    /// Their flavor.
    #[serde(rename = "flavorID", skip_serializing_if = "is_zero")]
    pub flavor_id: Option<String>,
}

/// Block storage of OpenStack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OpenstackBlockStorageConfig {
    /// Version of its API.
    #[serde(rename = "bs-version", skip_serializing_if = "is_zero")]
    pub bs_version: Option<String>,
    /// Whether a volume's zone does not matter.
    #[serde(rename = "ignore-volume-az", skip_serializing_if = "is_zero")]
    pub ignore_volume_az: Option<bool>,
    /// Zone to make volumes in.
    #[serde(rename = "override-volume-az", skip_serializing_if = "is_zero")]
    pub override_volume_az: Option<String>,
    /// Whether finer versions of the API are not used.
    #[serde(rename = "ignore-volume-microversion", skip_serializing_if = "is_zero")]
    pub ignore_volume_microversion: Option<bool>,
    /// Whether the driver serves metrics.
    #[serde(skip_serializing_if = "is_zero")]
    pub metrics_enabled: Option<bool>,
    /// Whether a storage class is made.
    #[serde(skip_serializing_if = "is_zero")]
    pub create_storage_class: Option<bool>,
    /// Image of the driver.
    #[serde(skip_serializing_if = "is_zero")]
    pub csi_plugin_image: String,
    /// Whether volumes are made in the zone of their pod.
    #[serde(skip_serializing_if = "is_zero")]
    pub csi_topology_support: Option<bool>,
    /// Name of the cluster in volumes' metadata.
    #[serde(skip_serializing_if = "is_zero")]
    pub cluster_name: String,
}

/// How a load balancer of OpenStack checks its members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OpenstackMonitor {
    /// Time between two checks.
    #[serde(skip_serializing_if = "is_zero")]
    pub delay: Option<String>,
    /// Time after which a check has failed.
    #[serde(skip_serializing_if = "is_zero")]
    pub timeout: Option<String>,
    /// Failed checks after which a member is out.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_retries: Option<i64>,
}

/// The router of OpenStack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OpenstackRouter {
    /// Network that leads out.
    #[serde(skip_serializing_if = "is_zero")]
    pub external_network: Option<String>,
    /// DNS servers of the subnets, separated by commas.
    #[serde(skip_serializing_if = "is_zero")]
    pub dns_servers: Option<String>,
    /// Subnet of that network.
    #[serde(skip_serializing_if = "is_zero")]
    pub external_subnet: Option<String>,
    /// Zones to place it in.
    #[serde(skip_serializing_if = "is_zero")]
    pub availability_zone_hints: Vec<String>,
}

/// Networks of OpenStack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OpenstackNetwork {
    /// Zones to place them in.
    #[serde(skip_serializing_if = "is_zero")]
    pub availability_zone_hints: Vec<String>,
    /// Whether IPv6 addresses are passed over.
    #[serde(skip_serializing_if = "is_zero")]
    pub ipv6_support_disabled: Option<bool>,
    /// Networks with machines' public addresses.
    #[serde(skip_serializing_if = "is_zero")]
    pub public_network_names: Vec<String>,
    /// Networks with machines' internal addresses.
    #[serde(skip_serializing_if = "is_zero")]
    pub internal_network_names: Vec<String>,
    /// Address ranges by which a machine's addresses are ordered, separated by commas.
    #[serde(skip_serializing_if = "is_zero")]
    pub address_sort_order: Option<String>,
}

/// Where machines of OpenStack read their metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OpenstackMetadata {
    /// Whether on a drive.
    #[serde(skip_serializing_if = "is_zero")]
    pub config_drive: Option<bool>,
}
