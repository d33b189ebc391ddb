//! What users add to their nodes: hooks, files, mounted volumes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::omit::is_zero;
use super::role::InstanceGroupRole;

/// `HookSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HookSpec {
    /// Name.
    #[serde(skip_serializing_if = "is_zero")]
    pub name: String,
    /// Enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: Option<bool>,
    /// Roles.
    #[serde(skip_serializing_if = "is_zero")]
    pub roles: Vec<InstanceGroupRole>,
    /// Requires.
    #[serde(skip_serializing_if = "is_zero")]
    pub requires: Vec<String>,
    /// Before.
    #[serde(skip_serializing_if = "is_zero")]
    pub before: Vec<String>,
    /// Exec container.
    #[serde(skip_serializing_if = "is_zero")]
    pub exec_container: Option<ExecContainerAction>,
    /// Manifest.
    #[serde(skip_serializing_if = "is_zero")]
    pub manifest: String,
    /// Use raw manifest.
    #[serde(skip_serializing_if = "is_zero")]
    pub use_raw_manifest: bool,
}

/// `ExecContainerAction`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ExecContainerAction {
    /// Image.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: String,
    /// Command.
    #[serde(skip_serializing_if = "is_zero")]
    pub command: Vec<String>,
    /// Environment.
    #[serde(skip_serializing_if = "is_zero")]
    pub environment: BTreeMap<String, String>,
}

/// `FileAssetSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FileAssetSpec {
    /// Name.
    #[serde(skip_serializing_if = "is_zero")]
    pub name: String,
    /// Path.
    #[serde(skip_serializing_if = "is_zero")]
    pub path: String,
    /// Roles.
    #[serde(skip_serializing_if = "is_zero")]
    pub roles: Vec<String>,
    /// Content.
    #[serde(skip_serializing_if = "is_zero")]
    pub content: String,
    /// Is base64.
    #[serde(skip_serializing_if = "is_zero")]
    pub is_base64: bool,
    /// Mode.
    #[serde(skip_serializing_if = "is_zero")]
    pub mode: String,
}

/// `VolumeMountSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeMountSpec {
    /// Device.
    #[serde(skip_serializing_if = "is_zero")]
    pub device: String,
    /// Filesystem.
    #[serde(skip_serializing_if = "is_zero")]
    pub filesystem: String,
    /// Format options.
    #[serde(skip_serializing_if = "is_zero")]
    pub format_options: Vec<String>,
    /// Mount options.
    #[serde(skip_serializing_if = "is_zero")]
    pub mount_options: Vec<String>,
    /// Path.
    #[serde(skip_serializing_if = "is_zero")]
    pub path: String,
}
