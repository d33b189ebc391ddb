//! containerd and its tools: the programs to install, and the container runtimes that containerd offers.
//!
//! Source: nodeup/pkg/model/containerd.go, nerdctl.go, crictl.go, and `InstallNvidiaRuntime` and `InstallGVisorRuntime`
//! in context.go.

use serde::Serialize;

use crate::resource::Content;
use kops_agent_spec::invalid::Invalid;
use kops_agent_spec::urls::shown_url;
use kops_agent_spec::{
    CloudProvider, ContainerdConfig, Duration, InstanceGroupRole, NRIConfig, NodeupConfig, NvidiaGPUConfig,
};

use super::basis::Basis;
use super::containerd_config::Versions;
use super::containerd_version::{CONFIG_VERSION_OF_1, ContainerdVersion, OLDEST_CONFIG_VERSION_OF_2};
use super::programs::Program;
use super::{Asset, Distribution, Problems, Project, containerd_config, dotted_path, registry_mirrors};

/// The container runtime of this node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Containerd {
    /// kOps' settings of containerd. If kOps wrote none, all fields are unset.
    pub config: ContainerdConfig,
    /// The version that containerd's configuration file declares.
    pub config_version: i64,
    /// The user's own settings. Each has the keys that lead to it in the configuration file, and its value.
    pub config_additions: Vec<(Vec<String>, toml::Value)>,
    /// The programs to install. `None` if the distribution includes them, or if the user skips the installation.
    pub release: Option<ContainerdRelease>,
    /// The program nerdctl. `None` if it is not installed.
    pub nerdctl: Option<Program>,
    /// The program crictl. `None` if it is not installed.
    pub crictl: Option<Program>,
    /// The driver package of the machine's NVIDIA GPU, if there is a GPU and pods may use it.
    pub nvidia_driver_package: Option<String>,
    /// The platform of gVisor's runtime, if pods may use it.
    pub gvisor_platform: Option<String>,
}

/// A containerd release to install, with its programs and runc.
#[derive(Clone, Debug, Serialize)]
pub struct ContainerdRelease {
    /// The archive of containerd's own programs.
    #[serde(skip)]
    pub archive: Asset,
    pub programs: Vec<Program>,
    pub runc: Content,
}

impl Containerd {
    /// Whether pods use a GPU with a driver that the machine's image includes. kOps installs a driver only on Ubuntu.
    pub fn uses_driver_of_image(&self, distribution: &Distribution) -> bool {
        self.nvidia_driver_package.is_some() && distribution.project != Project::Ubuntu
    }

    /// The reason why the downloaded containerd cannot start on this distribution, and advice for the user. `None` if no reason is known.
    pub fn unfit_for(&self, distribution: &Distribution) -> Option<(String, &'static str)> {
        let release = self.release.as_ref()?;
        let glibc = distribution.old_glibc?;
        let version = self.config.version.as_deref()?;
        let name = release.archive.file_name();
        let is_unfit = ContainerdVersion::parse(version)?.needs_glibc_2_34() && !name.contains("static");
        is_unfit.then(|| {
            let what = format!(
                "containerd {version} from {name} needs glibc 2.34, and this distribution has glibc {glibc}, so containerd would not start"
            );
            (what, UNFIT_ADVICE)
        })
    }
}

const UNFIT_ADVICE: &str = "set spec.containerd.packages to the release's containerd-static-VERSION-linux-ARCH.tar.gz, or \
                            spec.containerd.version to a release before 2.1, or use an image of a newer distribution";

/// The default driver package (pkg/apis/kops/containerdconfig.go).
const DEFAULT_NVIDIA_DRIVER_PACKAGE: &str = "nvidia-driver-535-server";
/// The valid values of `--log-level`.
const LOG_LEVELS: [&str; 8] = ["trace", "debug", "info", "warn", "warning", "error", "fatal", "panic"];
/// containerd's default directories.
const DEFAULT_ROOT: &str = "/var/lib/containerd";
const DEFAULT_STATE: &str = "/run/containerd";
const DEFAULT_GVISOR_PLATFORM: &str = "systrap";

pub(super) fn resolve(basis: &Basis<'_>, problems: &mut Problems) -> Option<Containerd> {
    let config = basis.config.containerd_config.clone().unwrap_or_default();
    let is_installed = !config.skip_install && !basis.distribution.brings_containerd;
    let version =
        if is_installed { Some(problems.keep("containerdConfig.version", version(&config))?) } else { None };
    let config_version = config_version(basis, &config, version);
    let versions =
        Versions { written: config_version, readable: version.map(|version| version.config_version()) };
    let additions = match (&config.config_override, config.skip_install) {
        (_, true) => Some(Vec::new()),
        (Some(file), false) => {
            containerd_config::check_file("containerdConfig.configOverride", file, versions, problems);
            Some(Vec::new())
        }
        (None, false) => problems.keep("containerdConfig.configAdditions", config_additions(&config)),
    };
    for (path, value) in additions.iter().flatten() {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        containerd_config::check_value("containerdConfig.configAdditions", &path, value, versions, problems);
    }
    check_log_level(config.log_level.as_deref().unwrap_or_default(), problems);
    check_directories(&config, problems);
    check_nri(config.nri.as_ref(), problems);
    registry_mirrors::check(&config.registry_mirrors, problems);
    if let Some(warning) = version.and_then(|version| version.known_fault()) {
        problems.warn("containerdConfig.version", warning);
    }
    let release = match version {
        Some(version) => Some(problems.keep(&basis.assets_field(), release(basis, &config, version))?),
        None => None,
    };
    warn_of_ignored_gpu(basis, problems);
    let nvidia_driver_package = problems.keep("NvidiaGPU", nvidia_driver_package(basis));
    if let Some(Some(_)) = nvidia_driver_package {
        check_driver(basis, problems);
    }
    let wanted = |named: bool, name: &'static str| {
        if config.skip_install && !named { None } else { basis.assets.packed(name) }
    };
    let containerd = Containerd {
        config_version,
        config_additions: additions?,
        release,
        nerdctl: wanted(config.install_nerd_ctl, "nerdctl"),
        crictl: wanted(config.install_cri_ctl, "crictl"),
        nvidia_driver_package: nvidia_driver_package?,
        gvisor_platform: gvisor_platform(basis),
        config,
    };
    if let Some((unfit, advice)) = containerd.unfit_for(basis.distribution) {
        problems.warn("containerdConfig.version", format!("{unfit}; {advice}"));
    }
    Some(containerd)
}

/// The version that the configuration file declares. The containerd that reads the file must support this version. `installed` is the
/// version of containerd to install. `None` if kops-agent does not install containerd.
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

fn version(config: &ContainerdConfig) -> Result<ContainerdVersion, Invalid> {
    let text = config.version.as_deref().unwrap_or_default();
    ContainerdVersion::parse(text)
        .ok_or_else(|| Invalid::new(format!("{text:?} is not a version; use a version such as 2.1.4")))
}

/// containerd exits if it does not know the log level (`ParseLevel` of github.com/sirupsen/logrus).
fn check_log_level(level: &str, problems: &mut Problems) {
    if !level.is_empty() && !LOG_LEVELS.contains(&level.to_ascii_lowercase().as_str()) {
        problems.add(
            "containerdConfig.logLevel",
            format!("{level:?} is refused by containerd; it accepts {}", LOG_LEVELS.join(", ")),
        );
    }
}

/// containerd exits if `root` and `state` are equal (`CreateTopLevelDirectories` in cmd/containerd/server/server.go).
fn check_directories(config: &ContainerdConfig, problems: &mut Problems) {
    let [address, root, state] = [&config.address, &config.root, &config.state]
        .map(|path| path.as_deref().filter(|path| !path.is_empty()));
    for (field, path) in [("address", address), ("root", root), ("state", state)] {
        if let Some(path) = path.filter(|path| !path.starts_with('/')) {
            problems.add(format!("containerdConfig.{field}"), format!("is {path:?}; give an absolute path"));
        }
    }
    if root.unwrap_or(DEFAULT_ROOT) == state.unwrap_or(DEFAULT_STATE) {
        problems.add(
            "containerdConfig.state",
            "is the same directory as root, so containerd does not start; use another directory, such as /run/containerd",
        );
    }
}

/// Warns of negative timeouts of NRI (containerd's Node Resource Interface). With a negative timeout, every call of a plugin fails.
fn check_nri(nri: Option<&NRIConfig>, problems: &mut Problems) {
    let nri = nri.cloned().unwrap_or_default();
    for (field, timeout) in [
        ("pluginRegistrationTimeout", nri.plugin_registration_timeout),
        ("pluginRequestTimeout", nri.plugin_request_timeout),
    ] {
        if let Some(timeout) = timeout.filter(|timeout| *timeout < Duration::default()) {
            problems.warn(
                format!("containerdConfig.nri.{field}"),
                format!("is {timeout}, so no plugin of NRI works; use more than 0s, or remove it"),
            );
        }
    }
}

fn release(
    basis: &Basis<'_>,
    config: &ContainerdConfig,
    version: ContainerdVersion,
) -> Result<ContainerdRelease, Invalid> {
    let Some(archive) = basis.assets.containerd_archive(config).cloned() else {
        return Err(Invalid::new(
            "has no containerd; run `kops update cluster --yes` to write the list again",
        ));
    };
    let programs = basis.assets.containerd(config, &version);
    if !programs.iter().any(|program| program.name == "containerd") {
        return Err(Invalid::new(format!(
            "the archive {} has no bin/containerd; set spec.containerd.packages to a release of containerd",
            shown_url(&archive.url)
        )));
    }
    let mut runc =
        basis.assets.iter().filter(|asset| matches!(asset.file_name(), "runc.amd64" | "runc.arm64"));
    match (runc.next(), runc.next()) {
        (Some(runc), None) => Ok(ContainerdRelease { archive, programs, runc: runc.content() }),
        (None, _) => {
            Err(Invalid::new(format!("has no runc; its file must be called runc.{}", basis.facts.arch)))
        }
        (Some(one), Some(other)) => {
            Err(Invalid::new(format!("has runc twice: {} and {}", one.url, other.url)))
        }
    }
}

fn config_additions(config: &ContainerdConfig) -> Result<Vec<(Vec<String>, toml::Value)>, Invalid> {
    config
        .config_additions
        .iter()
        .map(|(key, value)| {
            let path = dotted_path::read(key).map_err(|problem| format!("{key}: {problem}"))?;
            Ok((path, toml_value(value)))
        })
        .collect()
}

/// Converts a value. The strings `true` and `false` become bools. Any other string stays a string, even a number in quotes.
fn toml_value(value: &kops_agent_spec::IntOrString) -> toml::Value {
    use kops_agent_spec::IntOrString::{Int, String};
    match value {
        Int(number) => toml::Value::Integer(i64::from(*number)),
        String(text) if text == "true" => toml::Value::Boolean(true),
        String(text) if text == "false" => toml::Value::Boolean(false),
        String(text) => toml::Value::String(text.clone()),
    }
}

/// Warns of an enabled GPU on a cloud for which kOps does not set up GPUs (`validateNvidiaConfig` in
/// pkg/apis/kops/validation/validation.go).
fn warn_of_ignored_gpu(basis: &Basis<'_>, problems: &mut Problems) {
    let cloud = basis.boot.cloud_provider;
    let is_supported = matches!(cloud, CloudProvider::Aws | CloudProvider::Openstack);
    if !is_supported && is_enabled(basis.config.nvidia_gpu.as_ref()) {
        problems.warn(
            "NvidiaGPU",
            format!(
                "is enabled, but has no effect on {cloud}: kOps sets up NVIDIA GPUs only on AWS and \
                 OpenStack, so pods cannot use a GPU of this machine. Remove spec.containerd.nvidiaGPU, and \
                 install the driver and the container runtime with an image, hooks or NVIDIA's GPU operator"
            ),
        );
    }
}

/// The driver package, if the machine has a GPU and its group enables GPUs. On AWS, the facts tell whether the machine has a GPU. On
/// OpenStack, only groups of machines with a GPU may enable GPUs. On other clouds, kOps sets up no GPU.
fn nvidia_driver_package(basis: &Basis<'_>) -> Result<Option<String>, Invalid> {
    let has_gpu = match basis.boot.cloud_provider {
        CloudProvider::Aws if enables_nvidia(basis.config) => {
            basis.aws().and_then(|aws| aws.gpu).ok_or_else(|| {
                Invalid::new(
                    "is enabled, but the facts do not say whether the instance type has a GPU \
                 (cloud.aws.gpu, from EC2's DescribeInstanceTypes); complete the facts",
                )
            })?
        }
        CloudProvider::Openstack => true,
        _ => false,
    };
    let gpu = basis.config.nvidia_gpu.as_ref().filter(|gpu| has_gpu && is_enabled(Some(gpu)));
    Ok(gpu.map(|gpu| match gpu.package.as_str() {
        "" => DEFAULT_NVIDIA_DRIVER_PACKAGE.into(),
        package => package.to_owned(),
    }))
}

/// Adds a problem if the machine has a GPU whose driver neither kOps nor the image provides. Warns if the image is unknown.
fn check_driver(basis: &Basis<'_>, problems: &mut Problems) {
    const NOTHING: &str = "is enabled, but nothing installs NVIDIA's driver on this distribution: kOps installs it only on Ubuntu";
    const ADVICE: &str = "use an image of Ubuntu, or an image with the driver and /usr/bin/nvidia-container-runtime (nvidiaRuntime of the \
                          facts), or set spec.containerd.nvidiaGPU.enabled: false in this group";
    match basis.facts.nvidia_runtime {
        _ if basis.distribution.project == Project::Ubuntu => {}
        Some(true) => {}
        Some(false) => problems.add("NvidiaGPU", format!("{NOTHING}, and the image has no driver; {ADVICE}")),
        None => problems.warn(
            "NvidiaGPU",
            format!("{NOTHING}, so kops-agent refuses a machine whose image has no driver; {ADVICE}"),
        ),
    }
}

/// Whether the group's settings and the cluster's containerd settings both enable NVIDIA GPUs. On AWS, the driver and the runtime need both
/// settings.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use kops_agent_spec::facts::{AwsFacts, Distro};

    use super::super::testing::{control_plane, problems, resolved};
    use super::super::{Inputs, NodeConfig};
    use super::*;

    fn on(id: &str, version: &str, inputs: &mut Inputs) {
        inputs.facts.distro = Distro { id: id.into(), version_id: version.into() };
    }

    fn with_containerd(id: &str, distro: &str, version: &str, archive: &str) -> NodeConfig {
        control_plane(|inputs| {
            on(id, distro, inputs);
            inputs.config.containerd_config.as_mut().unwrap().version = Some(version.into());
            let assets = inputs.config.assets.get_mut("amd64").unwrap();
            assets.retain(|asset| !asset.contains("/containerd-"));
            assets.push(format!(
                "https://github.com/containerd/containerd/releases/download/v{version}/{archive}"
            ));
        })
    }

    #[test]
    fn a_containerd_for_a_newer_glibc_is_reported_before_the_download() {
        let unfit = |id, distro, version: &str, archive| {
            let node = with_containerd(id, distro, version, archive);
            node.container_runtime.unfit_for(node.distribution)
        };
        let dynamic = "containerd-2.3.4-linux-amd64.tar.gz";
        for (id, distro, glibc) in
            [("rocky", "8.10", "2.28"), ("rhel", "8.9", "2.28"), ("debian", "11", "2.31")]
        {
            let (what, advice) = unfit(id, distro, "2.3.4", dynamic).unwrap();
            assert!(
                what.contains(&format!("needs glibc 2.34, and this distribution has glibc {glibc}")),
                "{what}"
            );
            assert!(advice.contains("spec.containerd.packages"), "{advice}");
            assert_eq!(unfit(id, distro, "2.3.4", "containerd-static-2.3.4-linux-amd64.tar.gz"), None);
            assert_eq!(unfit(id, distro, "2.0.7", "containerd-2.0.7-linux-amd64.tar.gz"), None);
            assert_eq!(unfit(id, distro, "1.7.29", "containerd-1.7.29-linux-amd64.tar.gz"), None);
        }
        for (id, distro) in [
            ("rocky", "9.4"),
            ("debian", "12"),
            ("ubuntu", "22.04"),
            ("amzn", "2023"),
            ("flatcar", "4230.2.0"),
        ] {
            assert_eq!(unfit(id, distro, "2.3.4", dynamic), None, "{id}");
        }
    }

    #[test]
    fn directories_with_which_containerd_does_not_start_are_problems() {
        let told = |root: &str, state: &str| {
            let told = problems(|inputs| {
                let config = inputs.config.containerd_config.as_mut().unwrap();
                (config.root, config.state) = (Some(root.into()), Some(state.into()));
            });
            told.split_once(": ").map(|(field, _)| field.to_owned())
        };
        assert_eq!(told("/mnt/data", "/mnt/data").as_deref(), Some("containerdConfig.state"));
        assert_eq!(told("mnt/data", "/run/containerd").as_deref(), Some("containerdConfig.root"));
        for root in ["/mnt/data/", ""] {
            let node = resolved(|inputs| {
                let config = inputs.config.containerd_config.as_mut().unwrap();
                (config.root, config.state) = (Some(root.into()), Some(String::new()));
            });
            assert!(node.is_ok(), "{root:?}");
        }
    }

    #[test]
    fn negative_timeouts_give_a_warning() {
        let node = control_plane(|inputs| {
            let config = inputs.config.containerd_config.as_mut().unwrap();
            config.nri =
                serde_yaml::from_str("{pluginRequestTimeout: -1s, pluginRegistrationTimeout: 5s}").unwrap();
        });
        let fields: Vec<&str> = node.warnings.iter().map(|warning| warning.field.as_str()).collect();
        assert_eq!(fields, ["containerdConfig.nri.pluginRequestTimeout"]);
    }

    /// A machine with a GPU. Its group and its cluster enable NVIDIA GPUs.
    fn with_gpu(id: &str, distro: &str, has_runtime: Option<bool>, inputs: &mut Inputs) {
        on(id, distro, inputs);
        inputs.boot.cloud_provider = CloudProvider::Aws;
        inputs.facts.nvidia_runtime = has_runtime;
        inputs.facts.cloud.aws = Some(AwsFacts {
            gpu: Some(true),
            instance_id: "i-1".into(),
            region: "eu-west-1".into(),
            local_ipv4: "10.0.0.1".into(),
            local_hostname: "ip-10-0-0-1.eu-west-1.compute.internal".into(),
            ..AwsFacts::default()
        });
        let enabled = NvidiaGPUConfig { enabled: Some(true), ..NvidiaGPUConfig::default() };
        inputs.config.containerd_config.as_mut().unwrap().nvidia_gpu = Some(enabled.clone());
        inputs.config.nvidia_gpu = Some(enabled);
    }

    #[test]
    fn a_gpu_without_a_driver_is_rejected() {
        let told = |id, distro, has_runtime| {
            let node = resolved(|inputs| with_gpu(id, distro, Some(has_runtime), inputs));
            node.err().map(|problems| problems.to_string()).unwrap_or_default()
        };
        for (id, distro) in [("debian", "12"), ("rocky", "9.4"), ("amzn", "2023"), ("flatcar", "4230.2.0")] {
            let refused = told(id, distro, false);
            assert!(
                refused.contains("NvidiaGPU: is enabled, but nothing installs NVIDIA's driver"),
                "{refused}"
            );
            assert!(!told(id, distro, true).contains("NvidiaGPU"), "{id}");
        }
        assert!(!told("ubuntu", "24.04", false).contains("NvidiaGPU"));
    }

    #[test]
    fn a_gpu_gives_a_warning_while_the_image_is_unknown() {
        for (id, distro, told) in [("debian", "12", 1), ("ubuntu", "24.04", 0)] {
            // The machine also has problems that this test ignores.
            let problems = resolved(|inputs| with_gpu(id, distro, None, inputs)).err().unwrap_or_default();
            let warnings: Vec<String> = problems.warnings().iter().map(ToString::to_string).collect();
            assert_eq!(warnings.len(), told, "{warnings:?}");
            assert!(warnings.iter().all(|told| told.contains("refuses a machine whose image has no driver")));
        }
    }

    #[test]
    fn a_gpu_on_an_unsupported_cloud_gives_a_warning() {
        for (enabled, told) in [(Some(true), 1), (Some(false), 0), (None, 0)] {
            let node = control_plane(|inputs| {
                inputs.config.nvidia_gpu = Some(NvidiaGPUConfig { enabled, ..NvidiaGPUConfig::default() });
            });
            let warnings: Vec<String> = node.warnings.iter().map(ToString::to_string).collect();
            assert_eq!(warnings.len(), told, "{warnings:?}");
            assert!(
                warnings.iter().all(|told| told.starts_with("NvidiaGPU: is enabled, but has no effect on ")),
                "{warnings:?}"
            );
        }
    }
}
