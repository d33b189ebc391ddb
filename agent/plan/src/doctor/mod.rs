//! What would stop a machine from becoming its node: from what was looked at to findings, each with what to do.
//!
//! Three things are told apart: what is there, what is known not to be, and what is not known, be it slow, forbidden to look
//! at, or hung. What is not known is never called absent, and never called well.

mod clock;
mod disks;
mod finding;
mod kernel;
mod network;
mod packages;
mod ports;
mod programs;
mod volumes;

use crate::kops_release::WrittenBy;
use crate::resolve::KubernetesVersion;

pub use clock::Clock;
pub use disks::Disk;
pub use finding::{Finding, Seen, Verdict};
pub use kernel::{Cgroups, Kernel, Module, ModuleState};
pub use network::{Download, Name, NameOutcome, Outcome, Purpose, Service, ServiceKind};
pub use packages::{PackageLock, Packages, Repositories};
pub use ports::Listener;
pub use programs::{Machine, Process};
pub use volumes::{Device, Volume, Volumes};

/// All that was looked at.
#[derive(Clone, Debug)]
pub struct Observations {
    /// Whether the machine is to be a control plane, or have an API server.
    pub is_control_plane: bool,
    /// The kOps release that wrote its configuration; `None` where that is not known.
    pub written_by: Option<WrittenBy>,
    /// The Kubernetes that it is to run; `None` where that is not known.
    pub kubernetes: Option<KubernetesVersion>,
    /// The state store, kops-controller, the metadata service, and the decision that follows from them.
    pub services: Vec<Service>,
    pub names: Vec<Name>,
    pub downloads: Vec<Download>,
    /// The time here and elsewhere.
    pub clock: Clock,
    /// The file systems that are written to.
    pub disks: Seen<Vec<Disk>>,
    /// The block devices that the spec's volumes name.
    pub volumes: Seen<Volumes>,
    /// The sockets that processes listen on.
    pub listeners: Seen<Vec<Listener>>,
    pub kernel: Kernel,
    pub packages: Packages,
    /// What runs on the machine.
    pub machine: Machine,
}

/// What there is to tell, in the order in which a machine comes to need it.
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

/// The kOps release by whose rules the node is decided. None stops a machine: an older one than is supported is a problem of the
/// configuration.
fn of_kops(written_by: &WrittenBy) -> Finding {
    let to_do = match (written_by.warning(), &written_by.version) {
        (None, _) => return Finding::ok("kops", written_by.to_string()),
        (Some(_), Some(_)) => "look for a release of kops-agent that knows it",
        (Some(_), None) => "let this machine read kops-version.txt of the state store",
    };
    Finding::warning("kops", written_by.to_string(), to_do)
}

/// A Kubernetes that is not known, which stops no machine.
fn of_kubernetes(kubernetes: &KubernetesVersion) -> Option<Finding> {
    let warning = kubernetes.newer_than_known()?;
    Some(Finding::warning("kubernetes", warning, "look for a release of kops-agent that knows it"))
}

/// Whether any of these would stop the machine from becoming its node.
pub fn stops(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.verdict == Verdict::Problem)
}

#[cfg(test)]
mod tests;
