//! Checks the kernel features that kubelet and containerd need: cgroups, modules, parameters.

use std::collections::BTreeSet;

use super::finding::{Finding, Seen};
use crate::resolve::KubernetesVersion;

const CGROUPS: &str = "cgroups";
const MODULES: &str = "modules";
const SYSCTLS: &str = "sysctls";

/// The cgroup controllers that kubelet needs to start (kubernetes: `pkg/kubelet/cm/container_manager_linux.go`,
/// `validateSystemRequirements`, and `pkg/kubelet/cm/cgroup_manager_linux.go`).
const CONTROLLERS: [&str; 4] = ["cpu", "cpuset", "memory", "pids"];
/// The module that containerd needs for the file systems of containers.
const OVERLAY: &str = "overlay";

/// The mounted cgroup hierarchy, with its available controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cgroups {
    /// The unified hierarchy.
    V2(BTreeSet<String>),
    V1(BTreeSet<String>),
    /// No cgroup hierarchy is mounted.
    Missing,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    pub name: String,
    pub state: Seen<ModuleState>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModuleState {
    /// The module is loaded, or built into the kernel.
    Loaded,
    Available,
    /// A line of a modprobe configuration file forbids the module.
    Forbidden(String),
    /// The running kernel has no such module.
    Missing,
}

#[derive(Clone, Debug)]
pub struct Kernel {
    pub cgroups: Seen<Cgroups>,
    /// The modules that a node needs.
    pub modules: Vec<Module>,
    /// The names of parameters that a node sets but the kernel does not have.
    pub missing_parameters: Seen<Vec<String>>,
    /// Whether kernel parameters are read-only, as in a container.
    pub parameters_are_read_only: Seen<bool>,
}

pub(super) fn findings(kernel: &Kernel, kubernetes: Option<&KubernetesVersion>) -> Vec<Finding> {
    let mut findings = vec![of_cgroups(&kernel.cgroups, kubernetes)];
    findings.extend(of_modules(&kernel.modules));
    findings.push(of_parameters(kernel));
    findings
}

fn of_cgroups(cgroups: &Seen<Cgroups>, kubernetes: Option<&KubernetesVersion>) -> Finding {
    const BOOT: &str = "boot with cgroup v2 and all its controllers: remove systemd.unified_cgroup_hierarchy=0 and cgroup_disable= from \
                        the kernel's command line";
    let (version, controllers) = match cgroups {
        Err(why) => {
            return Finding::unknown(
                CGROUPS,
                format!("the mounted cgroups are unknown: {why}"),
                "check /sys/fs/cgroup",
            );
        }
        Ok(Cgroups::Missing) => {
            return Finding::problem(
                CGROUPS,
                "no cgroups are mounted at /sys/fs/cgroup, but kubelet needs them",
                BOOT,
            );
        }
        Ok(Cgroups::V1(controllers)) => ("v1", controllers),
        Ok(Cgroups::V2(controllers)) => ("v2", controllers),
    };
    let missing: Vec<&str> = CONTROLLERS.into_iter().filter(|name| !controllers.contains(*name)).collect();
    if !missing.is_empty() {
        return Finding::problem(
            CGROUPS,
            format!(
                "cgroups {version} are mounted without {}; kubelet needs these controllers",
                missing.join(", ")
            ),
            BOOT,
        );
    }
    match (version, kubernetes) {
        ("v1", Some(kubernetes)) if kubernetes.refuses_cgroups_v1() => Finding::problem(
            CGROUPS,
            format!(
                "this machine has cgroups v1, but kubelet of Kubernetes {kubernetes} does not start with them"
            ),
            BOOT,
        ),
        ("v1", _) => Finding::warning(
            CGROUPS,
            "this machine has cgroups v1, but kubelet of Kubernetes 1.35 and later does not start with them",
            BOOT,
        ),
        _ => Finding::ok(CGROUPS, format!("cgroups {version} with {}", CONTROLLERS.join(", "))),
    }
}

fn of_modules(modules: &[Module]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut well = Vec::new();
    for Module { name, state } in modules {
        let install =
            format!("install the package with the modules of the running kernel, or a package with {name}");
        findings.push(match state {
            Ok(ModuleState::Loaded | ModuleState::Available) => {
                well.push(name.as_str());
                continue;
            }
            Ok(ModuleState::Missing) if name == OVERLAY => Finding::problem(
                MODULES,
                "the kernel has no overlay file system, but containerd needs it to run containers",
                install,
            ),
            Ok(ModuleState::Missing) => Finding::warning(
                MODULES,
                format!("the running kernel has no module {name}; kops-agent continues without it"),
                install,
            ),
            Ok(ModuleState::Forbidden(line)) => Finding::warning(
                MODULES,
                format!("the module {name} is not loaded at boot: {line} forbids it"),
                "remove that line",
            ),
            Err(why) => Finding::unknown(
                MODULES,
                format!("cannot check for the module {name}: {why}"),
                format!("check with `modprobe --dry-run {name}`"),
            ),
        });
    }
    if !well.is_empty() {
        findings.push(Finding::ok(MODULES, format!("the kernel has {}", well.join(", "))));
    }
    findings
}

fn of_parameters(kernel: &Kernel) -> Finding {
    match (&kernel.parameters_are_read_only, &kernel.missing_parameters) {
        (Ok(true), _) => Finding::problem(
            SYSCTLS,
            "/proc/sys is mounted read-only, so kernel parameters cannot be set",
            "run on the machine, not in a container; or mount /proc/sys for writing",
        ),
        (_, Ok(missing)) if !missing.is_empty() => Finding::warning(
            SYSCTLS,
            format!("the kernel has no parameter {}; kops-agent continues without it", missing.join(", ")),
            "load the module that provides it, or remove it from the cluster's sysctlParameters",
        ),
        (Err(why), _) | (_, Err(why)) => Finding::unknown(
            SYSCTLS,
            format!("cannot check the kernel parameters that a node sets: {why}"),
            "check with `sysctl --all`",
        ),
        (Ok(false), Ok(_)) => Finding::ok(SYSCTLS, "the kernel has the parameters that a node sets"),
    }
}
