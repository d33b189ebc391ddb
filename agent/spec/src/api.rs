//! How the Kubernetes API is reached: names, load balancer, which addresses may connect.

use serde::{Deserialize, Serialize};
use serde_with::apply;

use super::omit::is_zero;

/// How the Kubernetes API is reached.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct APISpec {
    /// Set: by DNS, straight to the control plane.
    pub dns: Option<DNSAccessSpec>,
    /// Set: through a load balancer.
    pub load_balancer: Option<LoadBalancerAccessSpec>,
    /// The API's DNS name outside of the cluster.
    pub public_name: String,
    /// More names and addresses in its certificate.
    #[serde(rename = "additionalSANs")]
    pub additional_sans: Vec<String>,
    pub access: Vec<String>,
}

/// The API reached by DNS alone; it has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DNSAccessSpec {}

/// The load balancer before the API.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LoadBalancerAccessSpec {
    /// `Classic` or `Network` (AWS).
    pub class: String,
    /// `Public` or `Internal`.
    pub r#type: String,
    /// Security group in place of the one that kOps makes.
    pub security_group_override: Option<String>,
    /// More security groups of it.
    pub additional_security_groups: Vec<String>,
    /// Whether the cluster's own nodes go through it.
    #[serde(rename = "useForInternalAPI")]
    pub use_for_internal_api: bool,
    /// Id of a certificate for it to serve.
    pub ssl_certificate: String,
    pub ssl_policy: Option<String>,
    /// Whether it balances over zones.
    pub cross_zone_load_balancing: Option<bool>,
    /// Subnets to place it in.
    pub subnets: Vec<LoadBalancerSubnetSpec>,
    pub access_log: Option<AccessLogSpec>,
}

/// A subnet to place a load balancer in.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LoadBalancerSubnetSpec {
    pub name: String,
    /// Address to take in it.
    #[serde(rename = "privateIPv4Address")]
    pub private_ipv4_address: Option<String>,
    /// Id of the public address to take in it.
    #[serde(rename = "allocationID")]
    pub allocation_id: Option<String>,
}

/// Where a load balancer logs its requests.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AccessLogSpec {
    pub bucket: Option<String>,
    /// Prefix of the keys in it.
    pub bucket_prefix: Option<String>,
}
