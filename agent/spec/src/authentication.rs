//! Which users the API server believes, and what they may do.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::apply;

use super::duration::Duration;
use super::omit::is_zero;
use super::scalars::Quantity;

/// The users that the API server believes beyond certificates and its own tokens.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AuthenticationSpec {
    pub kopeio: Option<KopeioAuthenticationSpec>,
    pub aws: Option<AWSAuthenticationSpec>,
    pub oidc: Option<OIDCAuthenticationSpec>,
}

/// Kopeio's authentication; it has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KopeioAuthenticationSpec {}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AWSAuthenticationSpec {
    pub image: String,
    /// Where it looks up identities: `MountedFile`, `EKSConfigMap`, `CRD`, separated by commas.
    pub backend_mode: String,
    /// Id of the cluster in its tokens.
    #[serde(rename = "clusterID")]
    pub cluster_id: String,
    pub memory_request: Option<Quantity>,
    pub cpu_request: Option<Quantity>,
    /// Memory that it is limited to.
    pub memory_limit: Option<Quantity>,
    /// CPU that it is limited to.
    pub cpu_limit: Option<Quantity>,
    /// Which IAM identity is which user.
    pub identity_mappings: Vec<AWSAuthenticationIdentityMappingSpec>,
}

/// Which user an IAM identity is.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AWSAuthenticationIdentityMappingSpec {
    pub arn: String,
    pub username: String,
    pub groups: Vec<String>,
}

/// An OpenID provider that the API server believes.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OIDCAuthenticationSpec {
    /// `--oidc-username-claim`: claim with the user's name.
    pub username_claim: Option<String>,
    /// `--oidc-username-prefix`: what is put before that name.
    pub username_prefix: Option<String>,
    /// `--oidc-groups-claim`: claims with the user's groups.
    pub groups_claims: Vec<String>,
    /// `--oidc-groups-prefix`: what is put before those groups.
    pub groups_prefix: Option<String>,
    /// `--oidc-issuer-url`: the provider.
    #[serde(rename = "issuerURL")]
    pub issuer_url: Option<String>,
    /// `--oidc-client-id`: the client that its tokens must be meant for.
    #[serde(rename = "clientID")]
    pub client_id: Option<String>,
    /// `--oidc-required-claim` (repeated): values that claims must have.
    pub required_claims: BTreeMap<String, String>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AuthorizationSpec {
    /// Set: every client may do everything.
    pub always_allow: Option<AlwaysAllowAuthorizationSpec>,
    /// Set: by roles.
    pub rbac: Option<RBACAuthorizationSpec>,
}

/// Authorization by roles; it has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RBACAuthorizationSpec {}

/// No authorization; it has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlwaysAllowAuthorizationSpec {}

/// How nodes prove their identity; no longer used.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeAuthorizationSpec {
    pub node_authorizer: Option<NodeAuthorizerSpec>,
}

/// The node authorizer; no longer used.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeAuthorizerSpec {
    pub authorizer: String,
    pub features: Vec<String>,
    pub image: String,
    #[serde(rename = "nodeURL")]
    pub node_url: String,
    pub port: i64,
    pub interval: Option<Duration>,
    /// Time after which to give up.
    pub timeout: Option<Duration>,
    #[serde(rename = "tokenTTL")]
    pub token_ttl: Option<Duration>,
}
