//! Cloud identities of nodes and service accounts.

use serde::{Deserialize, Serialize};
use serde_with::apply;

use crate::go_yaml::is_zero;

/// Cloud identities of nodes and service accounts.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IAMSpec {
    /// Whether nodes have the broad permissions of old kOps releases.
    #[serde_with(skip_apply)]
    pub legacy: bool,
    /// Whether nodes may pull images from the cloud's registry.
    pub allow_container_registry: bool,
    /// ARN of the policy that limits the permissions of every role.
    pub permissions_boundary: Option<String>,
    /// Whether each of kOps' own service accounts has its own IAM role.
    pub use_service_account_external_permissions: Option<bool>,
    pub service_account_external_permissions: Vec<ServiceAccountExternalPermission>,
}

/// A service account with cloud permissions.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceAccountExternalPermission {
    #[serde_with(skip_apply)]
    pub name: String,
    #[serde_with(skip_apply)]
    pub namespace: String,
    pub aws: Option<AWSPermission>,
}

/// Permissions of a service account on AWS.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AWSPermission {
    #[serde(rename = "policyARNs")]
    pub policy_arns: Vec<String>,
    /// An IAM policy in JSON for this service account only.
    pub inline_policy: String,
}

/// Where the cluster publishes the public keys that verify service account tokens.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceAccountIssuerDiscoveryConfig {
    pub discovery_store: String,
    pub discovery_service: Option<DiscoveryServiceOptions>,
    /// Whether AWS IAM trusts the cluster's service account tokens.
    #[serde(rename = "enableAWSOIDCProvider")]
    pub enable_aws_oidc_provider: bool,
    /// Additional audiences that AWS IAM accepts in service account tokens.
    pub additional_audiences: Vec<String>,
}

/// A hosted service that publishes the keys that verify service account tokens.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DiscoveryServiceOptions {
    /// The service's URL. It may contain the id of a universe, which isolates the clients of one root CA from all other clients.
    pub url: String,
}
