//! How the Kubernetes API is reached: names, load balancer, who may connect.

use serde::{Deserialize, Serialize};

use super::omit::is_zero;

/// How the Kubernetes API is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct APISpec {
    /// Set: by DNS, straight to the control plane.
    #[serde(skip_serializing_if = "is_zero")]
    pub dns: Option<DNSAccessSpec>,
    /// Set: through a load balancer.
    #[serde(skip_serializing_if = "is_zero")]
    pub load_balancer: Option<LoadBalancerAccessSpec>,
    /// The API's DNS name outside of the cluster.
    #[serde(skip_serializing_if = "is_zero")]
    pub public_name: String,
    /// More names and addresses in its certificate.
    #[serde(rename = "additionalSANs", skip_serializing_if = "is_zero")]
    pub additional_sans: Vec<String>,
    /// Addresses that may connect.
    #[serde(skip_serializing_if = "is_zero")]
    pub access: Vec<String>,
}

/// The API reached by DNS alone; it has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DNSAccessSpec {}

/// The load balancer before the API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LoadBalancerAccessSpec {
    /// `Classic` or `Network` (AWS).
    #[serde(skip_serializing_if = "is_zero")]
    pub class: String,
    /// `Public` or `Internal`.
    #[serde(skip_serializing_if = "is_zero")]
    pub r#type: String,
    /// Security group in place of the one that kOps makes.
    #[serde(skip_serializing_if = "is_zero")]
    pub security_group_override: Option<String>,
    /// More security groups of it.
    #[serde(skip_serializing_if = "is_zero")]
    pub additional_security_groups: Vec<String>,
    /// Whether the cluster's own nodes go through it.
    #[serde(rename = "useForInternalAPI", skip_serializing_if = "is_zero")]
    pub use_for_internal_api: bool,
    /// Id of a certificate for it to serve.
    #[serde(skip_serializing_if = "is_zero")]
    pub ssl_certificate: String,
    /// Which TLS it offers.
    #[serde(skip_serializing_if = "is_zero")]
    pub ssl_policy: Option<String>,
    /// Whether it balances over zones.
    #[serde(skip_serializing_if = "is_zero")]
    pub cross_zone_load_balancing: Option<bool>,
    /// Subnets to place it in.
    #[serde(skip_serializing_if = "is_zero")]
    pub subnets: Vec<LoadBalancerSubnetSpec>,
    /// Log of its requests.
    #[serde(skip_serializing_if = "is_zero")]
    pub access_log: Option<AccessLogSpec>,
}

/// A subnet to place a load balancer in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LoadBalancerSubnetSpec {
    /// The subnet's name.
    #[serde(skip_serializing_if = "is_zero")]
    pub name: String,
    /// Address to take in it.
    #[serde(rename = "privateIPv4Address", skip_serializing_if = "is_zero")]
    pub private_ipv4_address: Option<String>,
    /// Id of the public address to take in it.
    #[serde(rename = "allocationID", skip_serializing_if = "is_zero")]
    pub allocation_id: Option<String>,
}

/// Where a load balancer logs its requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AccessLogSpec {
    /// The bucket.
    #[serde(skip_serializing_if = "is_zero")]
    pub bucket: Option<String>,
    /// Prefix of the keys in it.
    #[serde(skip_serializing_if = "is_zero")]
    pub bucket_prefix: Option<String>,
}
