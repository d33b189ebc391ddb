//! Checks for problems that would keep a machine from becoming a node. Turns observations into findings, each with a remedy.
//!
//! An observation has one of three states: present, known to be missing, or unknown. An observation is unknown if the look-up is slow,
//! forbidden or hung. A finding never reports an unknown state as missing or as ok.
//!
//! [`early_warnings`] decides from some of the same observations which conditions a working node reports.

mod clock;
mod disks;
pub mod early_warnings;
mod finding;
mod kernel;
mod network;
mod packages;
mod ports;
mod programs;
mod text;
mod volumes;

use crate::resolve::KubernetesVersion;
use kops_agent_spec::kops_release::WrittenBy;

pub use clock::Clock;
pub use disks::Disk;
pub use finding::{Finding, Seen, Unseen, Verdict};
pub use kernel::{Cgroups, Kernel, Module, ModuleState};
pub use network::{Download, Name, NameOutcome, Outcome, Purpose, Service, ServiceKind};
pub use packages::{PackageLock, Packages, Repositories};
pub use ports::Listener;
pub use programs::{Machine, Process};
pub use text::text;
pub use volumes::{Device, Volume, Volumes};

#[derive(Clone, Debug)]
pub struct Observations {
    /// Whether the machine is a control plane or runs an API server.
    pub is_control_plane: bool,
    /// The kOps release that wrote the machine's configuration. `None` if the release is unknown.
    pub written_by: Option<WrittenBy>,
    /// The Kubernetes version that the machine runs. `None` if the version is unknown.
    pub kubernetes: Option<KubernetesVersion>,
    /// The results of the checks of the state store, kops-controller, the metadata service and the node's configuration. The configuration
    /// comes from these three services.
    pub services: Vec<Service>,
    pub names: Vec<Name>,
    pub downloads: Vec<Download>,
    pub clock: Clock,
    /// The file systems that a node writes to.
    pub disks: Seen<Vec<Disk>>,
    /// The block devices that the spec's volumes name.
    pub volumes: Seen<Volumes>,
    /// The listening sockets of all processes.
    pub listeners: Seen<Vec<Listener>>,
    pub kernel: Kernel,
    pub packages: Packages,
    /// The programs and the swap of the machine.
    pub machine: Machine,
}

/// The findings for these observations, in the order in which a machine needs the observed servers and resources.
pub fn findings(observed: &Observations) -> Vec<Finding> {
    let is_control_plane = observed.is_control_plane;
    let mut findings = Vec::new();
    findings.extend(observed.names.iter().map(|name| network::of_name(name, is_control_plane)));
    findings.extend(network::of_services(&observed.services));
    findings.extend(observed.written_by.as_ref().map(of_kops));
    findings.extend(observed.kubernetes.as_ref().and_then(of_kubernetes));
    findings.extend(network::of_downloads(&observed.downloads));
    findings.extend(clock::findings(&observed.clock));
    findings.extend(disks::findings(&observed.disks));
    findings.extend(volumes::findings(&observed.volumes));
    findings.extend(kernel::findings(&observed.kernel, observed.kubernetes.as_ref()));
    findings.extend(ports::findings(&observed.listeners, is_control_plane));
    findings.extend(packages::findings(&observed.packages));
    findings.extend(programs::findings(&observed.machine));
    findings
}

/// The finding about the kOps release whose rules apply to the node. The finding is `ok` or a warning. If the release is too old, the node
/// has no configuration, and a separate finding says so.
fn of_kops(written_by: &WrittenBy) -> Finding {
    let to_do = match (written_by.warning(), &written_by.version) {
        (None, _) => return Finding::ok("kops", written_by.to_string()),
        (Some(why), Some(_)) if written_by.is_known() => {
            return Finding::warning(
                "kops",
                why,
                "use the newest patch release of this kOps, and of kops-agent",
            );
        }
        (Some(_), Some(_)) => "use a kops-agent release that knows this version",
        (Some(_), None) => {
            "set KOPS_AGENT_KOPS_VERSION in /etc/environment to the version that `kops version` shows"
        }
    };
    Finding::warning("kops", written_by.to_string(), to_do)
}

/// A warning about an unknown Kubernetes version. The machine can still become a node of the cluster.
fn of_kubernetes(kubernetes: &KubernetesVersion) -> Option<Finding> {
    let warning = kubernetes.newer_than_known()?;
    Some(Finding::warning("kubernetes", warning, "use a kops-agent release that knows this version"))
}

/// Whether any finding prevents the machine from becoming a node of the cluster.
pub fn stops(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.verdict == Verdict::Problem)
}

#[cfg(test)]
mod tests;
