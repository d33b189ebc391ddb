//! kOps' settings of containerd, runc and other runtimes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::apply;

use super::duration::Duration;
use super::go_yaml::is_zero;
use super::scalars::IntOrString;

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerdConfig {
    /// `--address`: socket of containerd's API.
    pub address: Option<String>,
    /// Values to add to the configuration, by dotted path. The paths follow the schema of the installed containerd version.
    pub config_additions: BTreeMap<String, IntOrString>,
    /// The complete configuration, in place of kOps' configuration.
    pub config_override: Option<String>,
    /// `--log-level`: `trace`, `debug`, `info`, `warn`, `error`, `fatal` or `panic`.
    pub log_level: Option<String>,
    /// The containerd to download, in place of the release that kOps chooses.
    pub packages: Option<PackagesConfig>,
    /// Mirrors of image registries, by registry. The mirrors for `*` are for all registries without their own entry.
    pub registry_mirrors: BTreeMap<String, Vec<String>>,
    /// `--root`: folder of persistent data.
    pub root: Option<String>,
    /// Whether the machine's image already has containerd, so that kOps does not install it.
    pub skip_install: bool,
    /// `--state`: folder of run-time state.
    pub state: Option<String>,
    pub version: Option<String>,
    #[serde(rename = "nvidiaGPU")]
    pub nvidia_gpu: Option<NvidiaGPUConfig>,
    pub gvisor: Option<GVisorConfig>,
    pub runc: Option<Runc>,
    /// Whether containers get SELinux labels.
    pub selinux_enabled: bool,
    pub nri: Option<NRIConfig>,
    #[serde(rename = "useECRCredentialsForMirrors")]
    pub use_ecr_credentials_for_mirrors: bool,
    pub install_cri_ctl: bool,
    pub install_nerd_ctl: bool,
    /// Image of the pause container.
    pub sandbox_image: Option<String>,
}

/// The Node Resource Interface of containerd.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NRIConfig {
    pub enabled: Option<bool>,
    pub plugin_registration_timeout: Option<Duration>,
    pub plugin_request_timeout: Option<Duration>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NvidiaGPUConfig {
    pub package: String,
    /// Whether kOps installs NVIDIA's driver and container runtime on machines with an NVIDIA GPU.
    pub enabled: Option<bool>,
    /// Container image of NVIDIA's device plugin.
    pub image: String,
    /// The exporter of GPU metrics. kOps uses this setting only in a Cluster, and ignores it in an InstanceGroup.
    pub dcgm_exporter: Option<DCGMExporterConfig>,
}

/// The exporter of GPU metrics.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DCGMExporterConfig {
    pub enabled: bool,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Runc {
    pub version: Option<String>,
    /// The runc to download, in place of the release that kOps chooses.
    pub packages: Option<PackagesConfig>,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GVisorConfig {
    /// Whether gVisor is installed and registered as the handler `runsc`.
    pub enabled: Option<bool>,
    /// How gVisor intercepts system calls: `systrap` or `kvm`.
    pub platform: String,
}

/// A download of containerd or runc, in place of the release that kOps chooses.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PackagesConfig {
    /// SHA-256 of the download for amd64.
    pub hash_amd64: Option<String>,
    /// SHA-256 of the download for arm64.
    pub hash_arm64: Option<String>,
    pub url_amd64: Option<String>,
    pub url_arm64: Option<String>,
}
