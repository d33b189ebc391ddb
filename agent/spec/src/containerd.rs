//! What kOps wants of containerd, runc and the runtimes beside them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::duration::Duration;
use super::omit::is_zero;
use super::scalars::IntOrString;

/// What kOps wants of containerd.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerdConfig {
    /// `--address`: socket of its API.
    #[serde(skip_serializing_if = "is_zero")]
    pub address: Option<String>,
    /// Values to add to the configuration, by dotted path in the schema of the version in use.
    #[serde(skip_serializing_if = "is_zero")]
    pub config_additions: BTreeMap<String, IntOrString>,
    /// The whole configuration, in place of what kOps makes.
    #[serde(skip_serializing_if = "is_zero")]
    pub config_override: Option<String>,
    /// `--log-level`: `trace`, `debug`, `info`, `warn`, `error`, `fatal` or `panic`.
    #[serde(skip_serializing_if = "is_zero")]
    pub log_level: Option<String>,
    /// Where to get it from, in place of its release.
    #[serde(skip_serializing_if = "is_zero")]
    pub packages: Option<PackagesConfig>,
    /// Mirrors of image registries, by registry; `*` for all others.
    #[serde(skip_serializing_if = "is_zero")]
    pub registry_mirrors: BTreeMap<String, Vec<String>>,
    /// `--root`: folder of persistent data.
    #[serde(skip_serializing_if = "is_zero")]
    pub root: Option<String>,
    /// Whether the machine brings containerd with it, and it is left alone.
    #[serde(skip_serializing_if = "is_zero")]
    pub skip_install: bool,
    /// `--state`: folder of run-time state.
    #[serde(skip_serializing_if = "is_zero")]
    pub state: Option<String>,
    /// Version to install.
    #[serde(skip_serializing_if = "is_zero")]
    pub version: Option<String>,
    /// NVIDIA GPUs.
    #[serde(rename = "nvidiaGPU", skip_serializing_if = "is_zero")]
    pub nvidia_gpu: Option<NvidiaGPUConfig>,
    /// The sandboxed runtime gVisor.
    #[serde(skip_serializing_if = "is_zero")]
    pub gvisor: Option<GVisorConfig>,
    /// The runtime runc.
    #[serde(skip_serializing_if = "is_zero")]
    pub runc: Option<Runc>,
    /// Whether containers get SELinux labels.
    #[serde(skip_serializing_if = "is_zero")]
    pub selinux_enabled: bool,
    /// The Node Resource Interface.
    #[serde(skip_serializing_if = "is_zero")]
    pub nri: Option<NRIConfig>,
    /// Whether mirrors on ECR are asked with the node's ECR credentials.
    #[serde(rename = "useECRCredentialsForMirrors", skip_serializing_if = "is_zero")]
    pub use_ecr_credentials_for_mirrors: bool,
    /// Whether to install crictl.
    #[serde(skip_serializing_if = "is_zero")]
    pub install_cri_ctl: bool,
    /// Whether to install nerdctl.
    #[serde(skip_serializing_if = "is_zero")]
    pub install_nerd_ctl: bool,
    /// Image of the pause container.
    #[serde(skip_serializing_if = "is_zero")]
    pub sandbox_image: Option<String>,
}

/// The Node Resource Interface of containerd.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NRIConfig {
    /// Whether it is on.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: Option<bool>,
    /// Longest wait for a plugin to register.
    #[serde(skip_serializing_if = "is_zero")]
    pub plugin_registration_timeout: Option<Duration>,
    /// Longest wait for a plugin's answer.
    #[serde(skip_serializing_if = "is_zero")]
    pub plugin_request_timeout: Option<Duration>,
}

/// NVIDIA GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NvidiaGPUConfig {
    /// Package of the driver.
    #[serde(skip_serializing_if = "is_zero")]
    pub package: String,
    /// Whether driver and runtime are installed on machines with such a GPU.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: Option<bool>,
    /// Image of the device plugin.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: String,
    /// The exporter of GPU metrics; only the cluster's counts.
    #[serde(skip_serializing_if = "is_zero")]
    pub dcgm_exporter: Option<DCGMExporterConfig>,
}

/// The exporter of GPU metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DCGMExporterConfig {
    /// Whether it is installed.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: bool,
}

/// The runtime runc.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Runc {
    /// Version to install.
    #[serde(skip_serializing_if = "is_zero")]
    pub version: Option<String>,
    /// Where to get it from, in place of its release.
    #[serde(skip_serializing_if = "is_zero")]
    pub packages: Option<PackagesConfig>,
}

/// The sandboxed runtime gVisor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GVisorConfig {
    /// Whether it is installed and registered as the handler `runsc`.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: Option<bool>,
    /// How it intercepts system calls: `systrap` or `kvm`.
    #[serde(skip_serializing_if = "is_zero")]
    pub platform: String,
}

/// Where to get a package from, in place of its release.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PackagesConfig {
    /// SHA-256 for amd64.
    #[serde(skip_serializing_if = "is_zero")]
    pub hash_amd64: Option<String>,
    /// SHA-256 for arm64.
    #[serde(skip_serializing_if = "is_zero")]
    pub hash_arm64: Option<String>,
    /// URL for amd64.
    #[serde(skip_serializing_if = "is_zero")]
    pub url_amd64: Option<String>,
    /// URL for arm64.
    #[serde(skip_serializing_if = "is_zero")]
    pub url_arm64: Option<String>,
}
