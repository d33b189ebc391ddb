//! Settings of the OpenStack cloud.

use serde::{Deserialize, Serialize};
use serde_with::apply;

use super::go_yaml::is_zero;

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OpenstackSpec {
    pub loadbalancer: Option<OpenstackLoadbalancerConfig>,
    /// How load balancers check the health of their members.
    pub monitor: Option<OpenstackMonitor>,
    pub router: Option<OpenstackRouter>,
    pub block_storage: Option<OpenstackBlockStorageConfig>,
    /// Whether clients accept any certificate of OpenStack's API without verification.
    pub insecure_skip_verify: Option<bool>,
    pub network: Option<OpenstackNetwork>,
    /// Where machines read their metadata.
    pub metadata: Option<OpenstackMetadata>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OpenstackLoadbalancerConfig {
    pub method: Option<String>,
    pub provider: Option<String>,
    pub use_octavia: Option<bool>,
    /// Name of the network with floating addresses.
    pub floating_network: Option<String>,
    #[serde(rename = "floatingNetworkID")]
    pub floating_network_id: Option<String>,
    pub floating_subnet: Option<String>,
    /// Subnet for load balancers.
    #[serde(rename = "subnetID")]
    pub subnet_id: Option<String>,
    /// Whether the cloud provider manages security groups for Services.
    pub manage_security_groups: Option<bool>,
    /// Whether the status of Services has a host name instead of an address.
    pub enable_ingress_hostname: Option<bool>,
    pub ingress_hostname_suffix: Option<String>,
    #[serde(rename = "flavorID")]
    pub flavor_id: Option<String>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OpenstackBlockStorageConfig {
    #[serde(rename = "bs-version")]
    pub bs_version: Option<String>,
    /// Whether volumes ignore zones: a pod may use a volume in a different zone.
    #[serde(rename = "ignore-volume-az")]
    pub ignore_volume_az: Option<bool>,
    /// Zone for new volumes.
    #[serde(rename = "override-volume-az")]
    pub override_volume_az: Option<String>,
    /// Whether the volume driver ignores microversions of the volume API.
    #[serde(rename = "ignore-volume-microversion")]
    pub ignore_volume_microversion: Option<bool>,
    pub metrics_enabled: Option<bool>,
    pub create_storage_class: Option<bool>,
    pub csi_plugin_image: String,
    /// Whether a volume is created in the zone of its pod.
    pub csi_topology_support: Option<bool>,
    /// Cluster name that volumes have in their metadata.
    pub cluster_name: String,
}

/// How a load balancer of OpenStack checks the health of its members.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OpenstackMonitor {
    pub delay: Option<String>,
    pub timeout: Option<String>,
    /// Number of failed health checks after which the load balancer stops using a member.
    pub max_retries: Option<i64>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OpenstackRouter {
    pub external_network: Option<String>,
    /// DNS servers of the subnets, separated by commas.
    pub dns_servers: Option<String>,
    pub external_subnet: Option<String>,
    /// Zones for the router.
    pub availability_zone_hints: Vec<String>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OpenstackNetwork {
    /// Zones for networks.
    pub availability_zone_hints: Vec<String>,
    /// Whether the cloud provider ignores IPv6 addresses.
    pub ipv6_support_disabled: Option<bool>,
    /// Networks from which machines have their public addresses.
    pub public_network_names: Vec<String>,
    /// Networks from which machines have their internal addresses.
    pub internal_network_names: Vec<String>,
    /// Address ranges, separated by commas. Their order decides the order of a machine's addresses.
    pub address_sort_order: Option<String>,
}

/// Where machines of OpenStack read their metadata.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OpenstackMetadata {
    pub config_drive: Option<bool>,
}
