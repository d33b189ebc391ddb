//! Authentication and authorization of the API server's users.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::apply;

use super::duration::Duration;
use super::go_yaml::is_zero;
use super::scalars::Quantity;

/// How the API server authenticates users who have neither a client certificate nor a service account token.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AuthenticationSpec {
    pub kopeio: Option<KopeioAuthenticationSpec>,
    pub aws: Option<AWSAuthenticationSpec>,
    pub oidc: Option<OIDCAuthenticationSpec>,
}

/// Kopeio's authentication. It has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KopeioAuthenticationSpec {}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AWSAuthenticationSpec {
    pub image: String,
    /// Where the authenticator looks up identities: `MountedFile`, `EKSConfigMap`, `CRD`, separated by
    /// commas.
    pub backend_mode: String,
    /// Id of the cluster, which must be in the tokens of clients.
    #[serde(rename = "clusterID")]
    pub cluster_id: String,
    pub memory_request: Option<Quantity>,
    pub cpu_request: Option<Quantity>,
    pub memory_limit: Option<Quantity>,
    pub cpu_limit: Option<Quantity>,
    pub identity_mappings: Vec<AWSAuthenticationIdentityMappingSpec>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AWSAuthenticationIdentityMappingSpec {
    pub arn: String,
    pub username: String,
    pub groups: Vec<String>,
}

/// An OpenID provider that the API server trusts.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OIDCAuthenticationSpec {
    /// `--oidc-username-claim`: claim that contains the user's name.
    pub username_claim: Option<String>,
    /// `--oidc-username-prefix`: prefix that the API server adds to the user's name.
    pub username_prefix: Option<String>,
    /// `--oidc-groups-claim`: claims that contain the user's groups.
    pub groups_claims: Vec<String>,
    /// `--oidc-groups-prefix`: prefix that the API server adds to the names of groups.
    pub groups_prefix: Option<String>,
    /// `--oidc-issuer-url`: URL of the provider.
    #[serde(rename = "issuerURL")]
    pub issuer_url: Option<String>,
    /// `--oidc-client-id`: id of the client that tokens must be issued for.
    #[serde(rename = "clientID")]
    pub client_id: Option<String>,
    /// `--oidc-required-claim` (repeated): claims that a token must have, with their values.
    pub required_claims: BTreeMap<String, String>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AuthorizationSpec {
    /// If set, every client may make every request.
    pub always_allow: Option<AlwaysAllowAuthorizationSpec>,
    /// If set, a client's roles decide which requests it may make.
    pub rbac: Option<RBACAuthorizationSpec>,
}

/// Authorization by roles (RBAC). It has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RBACAuthorizationSpec {}

/// Authorization that allows every request. It has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlwaysAllowAuthorizationSpec {}

/// How nodes prove their identity. kOps no longer uses this field.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeAuthorizationSpec {
    pub node_authorizer: Option<NodeAuthorizerSpec>,
}

/// The node authorizer. kOps no longer uses this field.
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
    pub timeout: Option<Duration>,
    #[serde(rename = "tokenTTL")]
    pub token_ttl: Option<Duration>,
}
