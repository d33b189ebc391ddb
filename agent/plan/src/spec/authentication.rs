//! Who the API server believes, and what they may do.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::duration::Duration;
use super::omit::is_zero;
use super::scalars::Quantity;

/// `AuthenticationSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AuthenticationSpec {
    /// Kopeio.
    #[serde(skip_serializing_if = "is_zero")]
    pub kopeio: Option<KopeioAuthenticationSpec>,
    /// Aws.
    #[serde(skip_serializing_if = "is_zero")]
    pub aws: Option<AWSAuthenticationSpec>,
    /// Oidc.
    #[serde(skip_serializing_if = "is_zero")]
    pub oidc: Option<OIDCAuthenticationSpec>,
}

/// `KopeioAuthenticationSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KopeioAuthenticationSpec {}

/// `AWSAuthenticationSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AWSAuthenticationSpec {
    /// Image.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: String,
    /// Backend mode.
    #[serde(skip_serializing_if = "is_zero")]
    pub backend_mode: String,
    /// Cluster ID.
    #[serde(rename = "clusterID", skip_serializing_if = "is_zero")]
    pub cluster_id: String,
    /// Memory request.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_request: Option<Quantity>,
    /// Cpu request.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_request: Option<Quantity>,
    /// Memory limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_limit: Option<Quantity>,
    /// Cpu limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_limit: Option<Quantity>,
    /// Identity mappings.
    #[serde(skip_serializing_if = "is_zero")]
    pub identity_mappings: Vec<AWSAuthenticationIdentityMappingSpec>,
}

/// `AWSAuthenticationIdentityMappingSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AWSAuthenticationIdentityMappingSpec {
    /// Arn.
    #[serde(skip_serializing_if = "is_zero")]
    pub arn: String,
    /// Username.
    #[serde(skip_serializing_if = "is_zero")]
    pub username: String,
    /// Groups.
    #[serde(skip_serializing_if = "is_zero")]
    pub groups: Vec<String>,
}

/// `OIDCAuthenticationSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OIDCAuthenticationSpec {
    /// Username claim.
    #[serde(skip_serializing_if = "is_zero")]
    pub username_claim: Option<String>,
    /// Username prefix.
    #[serde(skip_serializing_if = "is_zero")]
    pub username_prefix: Option<String>,
    /// Groups claims.
    #[serde(skip_serializing_if = "is_zero")]
    pub groups_claims: Vec<String>,
    /// Groups prefix.
    #[serde(skip_serializing_if = "is_zero")]
    pub groups_prefix: Option<String>,
    /// Issuer URL.
    #[serde(rename = "issuerURL", skip_serializing_if = "is_zero")]
    pub issuer_url: Option<String>,
    /// Client ID.
    #[serde(rename = "clientID", skip_serializing_if = "is_zero")]
    pub client_id: Option<String>,
    /// Required claims.
    #[serde(skip_serializing_if = "is_zero")]
    pub required_claims: BTreeMap<String, String>,
}

/// `AuthorizationSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AuthorizationSpec {
    /// Always allow.
    #[serde(skip_serializing_if = "is_zero")]
    pub always_allow: Option<AlwaysAllowAuthorizationSpec>,
    /// Rbac.
    #[serde(skip_serializing_if = "is_zero")]
    pub rbac: Option<RBACAuthorizationSpec>,
}

/// `RBACAuthorizationSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RBACAuthorizationSpec {}

/// `AlwaysAllowAuthorizationSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlwaysAllowAuthorizationSpec {}

/// `NodeAuthorizationSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeAuthorizationSpec {
    /// Node authorizer.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_authorizer: Option<NodeAuthorizerSpec>,
}

/// `NodeAuthorizerSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeAuthorizerSpec {
    /// Authorizer.
    #[serde(skip_serializing_if = "is_zero")]
    pub authorizer: String,
    /// Features.
    #[serde(skip_serializing_if = "is_zero")]
    pub features: Vec<String>,
    /// Image.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: String,
    /// Node URL.
    #[serde(rename = "nodeURL", skip_serializing_if = "is_zero")]
    pub node_url: String,
    /// Port.
    #[serde(skip_serializing_if = "is_zero")]
    pub port: i64,
    /// Interval.
    #[serde(skip_serializing_if = "is_zero")]
    pub interval: Option<Duration>,
    /// Timeout.
    #[serde(skip_serializing_if = "is_zero")]
    pub timeout: Option<Duration>,
    /// Token TTL.
    #[serde(rename = "tokenTTL", skip_serializing_if = "is_zero")]
    pub token_ttl: Option<Duration>,
}
