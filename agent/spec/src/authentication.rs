//! Who the API server believes, and what they may do.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::duration::Duration;
use super::omit::is_zero;
use super::scalars::Quantity;

/// Whom the API server believes beyond certificates and its own tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AuthenticationSpec {
    /// Kopeio's authentication.
    #[serde(skip_serializing_if = "is_zero")]
    pub kopeio: Option<KopeioAuthenticationSpec>,
    /// AWS IAM Authenticator.
    #[serde(skip_serializing_if = "is_zero")]
    pub aws: Option<AWSAuthenticationSpec>,
    /// An OpenID provider.
    #[serde(skip_serializing_if = "is_zero")]
    pub oidc: Option<OIDCAuthenticationSpec>,
}

/// Kopeio's authentication; it has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KopeioAuthenticationSpec {}

/// AWS IAM Authenticator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AWSAuthenticationSpec {
    /// Its image.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: String,
    /// Where it looks up identities: `MountedFile`, `EKSConfigMap`, `CRD`, separated by commas.
    #[serde(skip_serializing_if = "is_zero")]
    pub backend_mode: String,
    /// Id of the cluster in its tokens.
    #[serde(rename = "clusterID", skip_serializing_if = "is_zero")]
    pub cluster_id: String,
    /// Memory that it requests.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_request: Option<Quantity>,
    /// CPU that it requests.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_request: Option<Quantity>,
    /// Memory that it is limited to.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_limit: Option<Quantity>,
    /// CPU that it is limited to.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_limit: Option<Quantity>,
    /// Which IAM identity is which user.
    #[serde(skip_serializing_if = "is_zero")]
    pub identity_mappings: Vec<AWSAuthenticationIdentityMappingSpec>,
}

/// Which user an IAM identity is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AWSAuthenticationIdentityMappingSpec {
    /// The IAM identity.
    #[serde(skip_serializing_if = "is_zero")]
    pub arn: String,
    /// The user.
    #[serde(skip_serializing_if = "is_zero")]
    pub username: String,
    /// The user's groups.
    #[serde(skip_serializing_if = "is_zero")]
    pub groups: Vec<String>,
}

/// An OpenID provider that the API server believes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OIDCAuthenticationSpec {
    /// `--oidc-username-claim`: claim with the user's name.
    #[serde(skip_serializing_if = "is_zero")]
    pub username_claim: Option<String>,
    /// `--oidc-username-prefix`: what is put before that name.
    #[serde(skip_serializing_if = "is_zero")]
    pub username_prefix: Option<String>,
    /// `--oidc-groups-claim`: claims with the user's groups.
    #[serde(skip_serializing_if = "is_zero")]
    pub groups_claims: Vec<String>,
    /// `--oidc-groups-prefix`: what is put before those groups.
    #[serde(skip_serializing_if = "is_zero")]
    pub groups_prefix: Option<String>,
    /// `--oidc-issuer-url`: the provider.
    #[serde(rename = "issuerURL", skip_serializing_if = "is_zero")]
    pub issuer_url: Option<String>,
    /// `--oidc-client-id`: whom its tokens must be meant for.
    #[serde(rename = "clientID", skip_serializing_if = "is_zero")]
    pub client_id: Option<String>,
    /// `--oidc-required-claim` (repeated): values that claims must have.
    #[serde(skip_serializing_if = "is_zero")]
    pub required_claims: BTreeMap<String, String>,
}

/// Who may do what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AuthorizationSpec {
    /// Set: everyone may do everything.
    #[serde(skip_serializing_if = "is_zero")]
    pub always_allow: Option<AlwaysAllowAuthorizationSpec>,
    /// Set: by roles.
    #[serde(skip_serializing_if = "is_zero")]
    pub rbac: Option<RBACAuthorizationSpec>,
}

/// Authorization by roles; it has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RBACAuthorizationSpec {}

/// No authorization; it has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlwaysAllowAuthorizationSpec {}

/// How nodes prove who they are; no longer used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeAuthorizationSpec {
    /// The node authorizer.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_authorizer: Option<NodeAuthorizerSpec>,
}

/// The node authorizer; no longer used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeAuthorizerSpec {
    /// Kind of proof.
    #[serde(skip_serializing_if = "is_zero")]
    pub authorizer: String,
    /// Features switched on.
    #[serde(skip_serializing_if = "is_zero")]
    pub features: Vec<String>,
    /// Its image.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: String,
    /// Its URL.
    #[serde(rename = "nodeURL", skip_serializing_if = "is_zero")]
    pub node_url: String,
    /// Its port.
    #[serde(skip_serializing_if = "is_zero")]
    pub port: i64,
    /// Time between two attempts.
    #[serde(skip_serializing_if = "is_zero")]
    pub interval: Option<Duration>,
    /// Time after which to give up.
    #[serde(skip_serializing_if = "is_zero")]
    pub timeout: Option<Duration>,
    /// Lifetime of its tokens.
    #[serde(rename = "tokenTTL", skip_serializing_if = "is_zero")]
    pub token_ttl: Option<Duration>,
}
