//! What kOps wants of containerd, runc and the runtimes beside them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::duration::Duration;
use super::omit::is_zero;
use super::scalars::IntOrString;

/// `ContainerdConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerdConfig {
    /// `--address`: Address.
    #[serde(skip_serializing_if = "is_zero")]
    pub address: Option<String>,
    /// Config additions.
    #[serde(skip_serializing_if = "is_zero")]
    pub config_additions: BTreeMap<String, IntOrString>,
    /// Config override.
    #[serde(skip_serializing_if = "is_zero")]
    pub config_override: Option<String>,
    /// `--log-level`: Log level.
    #[serde(skip_serializing_if = "is_zero")]
    pub log_level: Option<String>,
    /// Packages.
    #[serde(skip_serializing_if = "is_zero")]
    pub packages: Option<PackagesConfig>,
    /// Registry mirrors.
    #[serde(skip_serializing_if = "is_zero")]
    pub registry_mirrors: BTreeMap<String, Vec<String>>,
    /// `--root`: Root.
    #[serde(skip_serializing_if = "is_zero")]
    pub root: Option<String>,
    /// Skip install.
    #[serde(skip_serializing_if = "is_zero")]
    pub skip_install: bool,
    /// `--state`: State.
    #[serde(skip_serializing_if = "is_zero")]
    pub state: Option<String>,
    /// Version.
    #[serde(skip_serializing_if = "is_zero")]
    pub version: Option<String>,
    /// Nvidia GPU.
    #[serde(rename = "nvidiaGPU", skip_serializing_if = "is_zero")]
    pub nvidia_gpu: Option<NvidiaGPUConfig>,
    /// Gvisor.
    #[serde(skip_serializing_if = "is_zero")]
    pub gvisor: Option<GVisorConfig>,
    /// Runc.
    #[serde(skip_serializing_if = "is_zero")]
    pub runc: Option<Runc>,
    /// Selinux enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub selinux_enabled: bool,
    /// Nri.
    #[serde(skip_serializing_if = "is_zero")]
    pub nri: Option<NRIConfig>,
    /// Use ECR credentials for mirrors.
    #[serde(rename = "useECRCredentialsForMirrors", skip_serializing_if = "is_zero")]
    pub use_ecr_credentials_for_mirrors: bool,
    /// Install cri ctl.
    #[serde(skip_serializing_if = "is_zero")]
    pub install_cri_ctl: bool,
    /// Install nerd ctl.
    #[serde(skip_serializing_if = "is_zero")]
    pub install_nerd_ctl: bool,
    /// Sandbox image.
    #[serde(skip_serializing_if = "is_zero")]
    pub sandbox_image: Option<String>,
}

/// `NRIConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NRIConfig {
    /// Enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: Option<bool>,
    /// Plugin registration timeout.
    #[serde(skip_serializing_if = "is_zero")]
    pub plugin_registration_timeout: Option<Duration>,
    /// Plugin request timeout.
    #[serde(skip_serializing_if = "is_zero")]
    pub plugin_request_timeout: Option<Duration>,
}

/// `NvidiaGPUConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NvidiaGPUConfig {
    /// Package.
    #[serde(skip_serializing_if = "is_zero")]
    pub package: String,
    /// Enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: Option<bool>,
    /// Image.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: String,
    /// Dcgm exporter.
    #[serde(skip_serializing_if = "is_zero")]
    pub dcgm_exporter: Option<DCGMExporterConfig>,
}

/// `DCGMExporterConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DCGMExporterConfig {
    /// Enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: bool,
}

/// `Runc`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Runc {
    /// Version.
    #[serde(skip_serializing_if = "is_zero")]
    pub version: Option<String>,
    /// Packages.
    #[serde(skip_serializing_if = "is_zero")]
    pub packages: Option<PackagesConfig>,
}

/// `GVisorConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GVisorConfig {
    /// Enabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: Option<bool>,
    /// Platform.
    #[serde(skip_serializing_if = "is_zero")]
    pub platform: String,
}

/// `PackagesConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PackagesConfig {
    /// Hash amd64.
    #[serde(skip_serializing_if = "is_zero")]
    pub hash_amd64: Option<String>,
    /// Hash arm64.
    #[serde(skip_serializing_if = "is_zero")]
    pub hash_arm64: Option<String>,
    /// Url amd64.
    #[serde(skip_serializing_if = "is_zero")]
    pub url_amd64: Option<String>,
    /// Url arm64.
    #[serde(skip_serializing_if = "is_zero")]
    pub url_arm64: Option<String>,
}
