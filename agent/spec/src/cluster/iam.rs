//! Cloud identities of nodes and service accounts.

use serde::{Deserialize, Serialize};

use crate::omit::is_zero;

/// Cloud identities of nodes and service accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IAMSpec {
    /// Whether nodes have the wide permissions of old.
    pub legacy: bool,
    /// Whether nodes may pull from the cloud's registry.
    #[serde(skip_serializing_if = "is_zero")]
    pub allow_container_registry: bool,
    /// What no role may exceed.
    #[serde(skip_serializing_if = "is_zero")]
    pub permissions_boundary: Option<String>,
    /// Whether kOps' own service accounts have roles of their own.
    #[serde(skip_serializing_if = "is_zero")]
    pub use_service_account_external_permissions: Option<bool>,
    /// Service accounts with cloud permissions.
    #[serde(skip_serializing_if = "is_zero")]
    pub service_account_external_permissions: Vec<ServiceAccountExternalPermission>,
}

/// A service account with cloud permissions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceAccountExternalPermission {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// What it may do on AWS.
    #[serde(skip_serializing_if = "is_zero")]
    pub aws: Option<AWSPermission>,
}

/// What a service account may do on AWS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AWSPermission {
    /// Policies it has.
    #[serde(rename = "policyARNs", skip_serializing_if = "is_zero")]
    pub policy_arns: Vec<String>,
    /// A policy of its own.
    #[serde(skip_serializing_if = "is_zero")]
    pub inline_policy: String,
}

/// Where others learn how to verify service account tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceAccountIssuerDiscoveryConfig {
    /// A bucket that anyone may read.
    #[serde(skip_serializing_if = "is_zero")]
    pub discovery_store: String,
    /// A hosted service.
    #[serde(skip_serializing_if = "is_zero")]
    pub discovery_service: Option<DiscoveryServiceOptions>,
    /// Whether AWS IAM believes these tokens.
    #[serde(rename = "enableAWSOIDCProvider", skip_serializing_if = "is_zero")]
    pub enable_aws_oidc_provider: bool,
    /// More audiences that AWS IAM accepts.
    #[serde(skip_serializing_if = "is_zero")]
    pub additional_audiences: Vec<String>,
}

/// A hosted service that tells how to verify service account tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DiscoveryServiceOptions {
    /// Its URL, with the universe's id where it has one.
    #[serde(skip_serializing_if = "is_zero")]
    pub url: String,
}
