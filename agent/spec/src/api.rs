//! How the Kubernetes API is reached: names, load balancer, which addresses may connect.

use serde::{Deserialize, Serialize};
use serde_with::apply;

use super::go_yaml::is_zero;

/// How clients reach the Kubernetes API.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct APISpec {
    /// If set, clients find the API servers by DNS and connect to them directly.
    pub dns: Option<DNSAccessSpec>,
    /// If set, clients reach the API through a load balancer.
    pub load_balancer: Option<LoadBalancerAccessSpec>,
    /// The API's DNS name outside of the cluster.
    pub public_name: String,
    /// Additional names and addresses in the API's certificate.
    #[serde(rename = "additionalSANs")]
    pub additional_sans: Vec<String>,
    pub access: Vec<String>,
}

/// Access to the API by DNS alone. It has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DNSAccessSpec {}

/// The load balancer in front of the API.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LoadBalancerAccessSpec {
    /// The class of the load balancer: `Classic` or `Network` (AWS).
    pub class: String,
    /// Whether clients outside the network can reach the load balancer: `Public` or `Internal`.
    pub r#type: String,
    /// Security group that replaces the group that kOps creates.
    pub security_group_override: Option<String>,
    pub additional_security_groups: Vec<String>,
    /// Whether the cluster's own nodes also use the load balancer.
    #[serde(rename = "useForInternalAPI")]
    pub use_for_internal_api: bool,
    /// Id of the TLS certificate that the load balancer serves.
    pub ssl_certificate: String,
    pub ssl_policy: Option<String>,
    pub cross_zone_load_balancing: Option<bool>,
    pub subnets: Vec<LoadBalancerSubnetSpec>,
    pub access_log: Option<AccessLogSpec>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LoadBalancerSubnetSpec {
    pub name: String,
    #[serde(rename = "privateIPv4Address")]
    pub private_ipv4_address: Option<String>,
    /// Id of the load balancer's public address in the subnet.
    #[serde(rename = "allocationID")]
    pub allocation_id: Option<String>,
}

/// The bucket in which a load balancer logs its requests.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AccessLogSpec {
    pub bucket: Option<String>,
    pub bucket_prefix: Option<String>,
}
