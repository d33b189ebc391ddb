//! How the Kubernetes API is reached: names, load balancer, who may connect.

use serde::{Deserialize, Serialize};

use super::omit::is_zero;

/// `APISpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct APISpec {
    /// Dns.
    #[serde(skip_serializing_if = "is_zero")]
    pub dns: Option<DNSAccessSpec>,
    /// Load balancer.
    #[serde(skip_serializing_if = "is_zero")]
    pub load_balancer: Option<LoadBalancerAccessSpec>,
    /// Public name.
    #[serde(skip_serializing_if = "is_zero")]
    pub public_name: String,
    /// Additional sans.
    #[serde(rename = "additionalSANs", skip_serializing_if = "is_zero")]
    pub additional_sans: Vec<String>,
    /// Access.
    #[serde(skip_serializing_if = "is_zero")]
    pub access: Vec<String>,
}

/// `DNSAccessSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DNSAccessSpec {}

/// `LoadBalancerAccessSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LoadBalancerAccessSpec {
    /// Class.
    #[serde(skip_serializing_if = "is_zero")]
    pub class: String,
    /// Type.
    #[serde(skip_serializing_if = "is_zero")]
    pub r#type: String,
    /// Security group override.
    #[serde(skip_serializing_if = "is_zero")]
    pub security_group_override: Option<String>,
    /// Additional security groups.
    #[serde(skip_serializing_if = "is_zero")]
    pub additional_security_groups: Vec<String>,
    /// Use for internal API.
    #[serde(rename = "useForInternalAPI", skip_serializing_if = "is_zero")]
    pub use_for_internal_api: bool,
    /// Ssl certificate.
    #[serde(skip_serializing_if = "is_zero")]
    pub ssl_certificate: String,
    /// Ssl policy.
    #[serde(skip_serializing_if = "is_zero")]
    pub ssl_policy: Option<String>,
    /// Cross zone load balancing.
    #[serde(skip_serializing_if = "is_zero")]
    pub cross_zone_load_balancing: Option<bool>,
    /// Subnets.
    #[serde(skip_serializing_if = "is_zero")]
    pub subnets: Vec<LoadBalancerSubnetSpec>,
    /// Access log.
    #[serde(skip_serializing_if = "is_zero")]
    pub access_log: Option<AccessLogSpec>,
}

/// `LoadBalancerSubnetSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LoadBalancerSubnetSpec {
    /// Name.
    #[serde(skip_serializing_if = "is_zero")]
    pub name: String,
    /// Private ipv4 address.
    #[serde(rename = "privateIPv4Address", skip_serializing_if = "is_zero")]
    pub private_ipv4_address: Option<String>,
    /// Allocation ID.
    #[serde(rename = "allocationID", skip_serializing_if = "is_zero")]
    pub allocation_id: Option<String>,
}

/// `AccessLogSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AccessLogSpec {
    /// Bucket.
    #[serde(skip_serializing_if = "is_zero")]
    pub bucket: Option<String>,
    /// Bucket prefix.
    #[serde(skip_serializing_if = "is_zero")]
    pub bucket_prefix: Option<String>,
}
