//! containerd and what is around it: what is installed, and which runtimes it offers.
//!
//! Source: nodeup/pkg/model/containerd.go, nerdctl.go, crictl.go, and `InstallNvidiaRuntime` and
//! `InstallGVisorRuntime` in context.go.

use serde::Serialize;

use crate::resource::Content;
use kops_agent_spec::{CloudProvider, ContainerdConfig, InstanceGroupRole, NodeupConfig, NvidiaGPUConfig};

use super::basis::Basis;
use super::containerd_version::{CONFIG_VERSION_OF_1, ContainerdVersion, OLDEST_CONFIG_VERSION_OF_2};
use super::programs::Program;
use super::{Problems, dotted_path};

/// The container runtime of this node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Containerd {
    /// kOps' settings; all unset where kOps wrote none.
    pub config: ContainerdConfig,
    /// The version that the configuration file declares.
    pub config_version: i64,
    /// The user's own settings, each with the keys that lead to it in the configuration file.
    pub config_additions: Vec<(Vec<String>, toml::Value)>,
    /// The programs to install; `None` where the distribution brings them, or they are not wanted.
    pub release: Option<ContainerdRelease>,
    /// nerdctl, where it is wanted.
    pub nerdctl: Option<Program>,
    /// crictl, where it is wanted.
    pub crictl: Option<Program>,
    /// The driver package of the machine's NVIDIA GPU, where it has one and pods may use it.
    pub nvidia_driver_package: Option<String>,
    /// The platform of gVisor's runtime, where pods may use it.
    pub gvisor_platform: Option<String>,
}

/// What is installed of containerd.
#[derive(Clone, Debug, Serialize)]
pub struct ContainerdRelease {
    /// containerd's own programs.
    pub programs: Vec<Program>,
    /// runc.
    pub runc: Content,
}

/// The driver for a cluster that names none (pkg/apis/kops/containerdconfig.go).
const DEFAULT_NVIDIA_DRIVER_PACKAGE: &str = "nvidia-driver-535-server";
/// gVisor's platform for a cluster that names none.
const DEFAULT_GVISOR_PLATFORM: &str = "systrap";

/// Settles the container runtime.
pub(super) fn resolve(basis: &Basis<'_>, problems: &mut Problems) -> Option<Containerd> {
    let config = basis.config.containerd_config.clone().unwrap_or_default();
    let is_installed = !config.skip_install && !basis.distribution.brings_containerd;
    let version =
        if is_installed { Some(problems.keep("containerdConfig.version", version(&config))?) } else { None };
    let additions = if config.skip_install || config.config_override.is_some() {
        Some(Vec::new())
    } else {
        problems.keep("containerdConfig.configAdditions", config_additions(&config))
    };
    let release = match version {
        Some(version) => Some(problems.keep(&basis.assets_field(), release(basis, &config, version))?),
        None => None,
    };
    let nvidia_driver_package = problems.keep("NvidiaGPU", nvidia_driver_package(basis));
    let wanted = |named: bool, name: &'static str| {
        if config.skip_install && !named { None } else { basis.assets.packed(name) }
    };
    Some(Containerd {
        config_version: config_version(basis, &config, version),
        config_additions: additions?,
        release,
        nerdctl: wanted(config.install_nerd_ctl, "nerdctl"),
        crictl: wanted(config.install_cri_ctl, "crictl"),
        nvidia_driver_package: nvidia_driver_package?,
        gvisor_platform: gvisor_platform(basis),
        config,
    })
}

/// The version that the configuration file declares, by the containerd that reads it. `installed` is `None` where the
/// distribution brings its own.
fn config_version(basis: &Basis<'_>, config: &ContainerdConfig, installed: Option<ContainerdVersion>) -> i64 {
    if basis.release.containerd_configuration_is_of_1() {
        return CONFIG_VERSION_OF_1;
    }
    let version = match basis.release.takes_containerds_version_from_the_spec() {
        true => match config.version.as_deref().and_then(ContainerdVersion::parse) {
            Some(version) => version,
            None => return CONFIG_VERSION_OF_1,
        },
        false => match installed {
            Some(version) => version,
            None => return OLDEST_CONFIG_VERSION_OF_2,
        },
    };
    version.config_version().min(basis.release.newest_containerd_configuration())
}

fn version(config: &ContainerdConfig) -> Result<ContainerdVersion, String> {
    let text = config.version.as_deref().unwrap_or_default();
    ContainerdVersion::parse(text).ok_or_else(|| format!("{text:?} is no version; write it as in 2.1.4"))
}

fn release(
    basis: &Basis<'_>,
    config: &ContainerdConfig,
    version: ContainerdVersion,
) -> Result<ContainerdRelease, String> {
    let programs = basis.assets.containerd(config, &version);
    if programs.is_empty() {
        return Err("has no containerd; run `kops update cluster --yes` to write the list anew".into());
    }
    let mut runc =
        basis.assets.iter().filter(|asset| matches!(asset.file_name(), "runc.amd64" | "runc.arm64"));
    match (runc.next(), runc.next()) {
        (Some(runc), None) => Ok(ContainerdRelease { programs, runc: runc.content() }),
        (None, _) => Err(format!("has no runc; its file must be called runc.{}", basis.facts.arch)),
        (Some(one), Some(other)) => Err(format!("has runc twice: {} and {}", one.url, other.url)),
    }
}

fn config_additions(config: &ContainerdConfig) -> Result<Vec<(Vec<String>, toml::Value)>, String> {
    config
        .config_additions
        .iter()
        .map(|(key, value)| {
            let path = dotted_path::read(key).map_err(|problem| format!("{key}: {problem}"))?;
            Ok((path, toml_value(value)))
        })
        .collect()
}

/// The words `true` and `false` are bools; any other text is text, a number in quotes too.
fn toml_value(value: &kops_agent_spec::IntOrString) -> toml::Value {
    use kops_agent_spec::IntOrString::{Int, String};
    match value {
        Int(number) => toml::Value::Integer(i64::from(*number)),
        String(text) if text == "true" => toml::Value::Boolean(true),
        String(text) if text == "false" => toml::Value::Boolean(false),
        String(text) => toml::Value::String(text.clone()),
    }
}

/// On AWS the machine must have a GPU. On OpenStack only groups of machines that have one may enable it. Elsewhere
/// nothing tells.
fn nvidia_driver_package(basis: &Basis<'_>) -> Result<Option<String>, String> {
    let has_gpu = match basis.boot.cloud_provider {
        CloudProvider::Aws if enables_nvidia(basis.config) => basis.aws().and_then(|aws| aws.gpu).ok_or(
            "is enabled, but whether the instance type has a GPU is not known: the facts do not have it \
                 (cloud.aws.gpu, of EC2's DescribeInstanceTypes); complete them",
        )?,
        CloudProvider::Openstack => true,
        _ => false,
    };
    let gpu = basis.config.nvidia_gpu.as_ref().filter(|gpu| has_gpu && is_enabled(Some(gpu)));
    Ok(gpu.map(|gpu| match gpu.package.as_str() {
        "" => DEFAULT_NVIDIA_DRIVER_PACKAGE.into(),
        package => package.to_owned(),
    }))
}

/// Whether the driver and the runtime are installed on AWS where the instance type has a GPU: the group must want them,
/// and the cluster's containerd.
pub(super) fn enables_nvidia(config: &NodeupConfig) -> bool {
    let containerd = config.containerd_config.as_ref().and_then(|containerd| containerd.nvidia_gpu.as_ref());
    is_enabled(config.nvidia_gpu.as_ref()) && is_enabled(containerd)
}

fn is_enabled(gpu: Option<&NvidiaGPUConfig>) -> bool {
    gpu.is_some_and(|gpu| gpu.enabled == Some(true))
}

fn gvisor_platform(basis: &Basis<'_>) -> Option<String> {
    let gvisor = basis.config.gvisor.as_ref().filter(|_| basis.release.has_gvisor()).filter(|gvisor| {
        gvisor.enabled == Some(true) && basis.boot.instance_group_role == InstanceGroupRole::Node
    })?;
    Some(if gvisor.platform.is_empty() { DEFAULT_GVISOR_PLATFORM.into() } else { gvisor.platform.clone() })
}
