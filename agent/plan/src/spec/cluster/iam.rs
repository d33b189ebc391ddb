//! Cloud identities of nodes and service accounts.

use serde::{Deserialize, Serialize};

use crate::spec::omit::is_zero;

/// `IAMSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IAMSpec {
    /// Legacy.
    pub legacy: bool,
    /// Allow container registry.
    #[serde(skip_serializing_if = "is_zero")]
    pub allow_container_registry: bool,
    /// Permissions boundary.
    #[serde(skip_serializing_if = "is_zero")]
    pub permissions_boundary: Option<String>,
    /// Use service account external permissions.
    #[serde(skip_serializing_if = "is_zero")]
    pub use_service_account_external_permissions: Option<bool>,
    /// Service account external permissions.
    #[serde(skip_serializing_if = "is_zero")]
    pub service_account_external_permissions: Vec<ServiceAccountExternalPermission>,
}

/// `ServiceAccountExternalPermission`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceAccountExternalPermission {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// Aws.
    #[serde(skip_serializing_if = "is_zero")]
    pub aws: Option<AWSPermission>,
}

/// `AWSPermission`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AWSPermission {
    /// Policy arns.
    #[serde(rename = "policyARNs", skip_serializing_if = "is_zero")]
    pub policy_arns: Vec<String>,
    /// Inline policy.
    #[serde(skip_serializing_if = "is_zero")]
    pub inline_policy: String,
}

/// `ServiceAccountIssuerDiscoveryConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceAccountIssuerDiscoveryConfig {
    /// Discovery store.
    #[serde(skip_serializing_if = "is_zero")]
    pub discovery_store: String,
    /// Discovery service.
    #[serde(skip_serializing_if = "is_zero")]
    pub discovery_service: Option<DiscoveryServiceOptions>,
    /// Enable AWSOIDC provider.
    #[serde(rename = "enableAWSOIDCProvider", skip_serializing_if = "is_zero")]
    pub enable_aws_oidc_provider: bool,
    /// Additional audiences.
    #[serde(skip_serializing_if = "is_zero")]
    pub additional_audiences: Vec<String>,
}

/// `DiscoveryServiceOptions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DiscoveryServiceOptions {
    /// Url.
    #[serde(skip_serializing_if = "is_zero")]
    pub url: String,
}
