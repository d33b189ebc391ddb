//! Decides which parts of a plan `agent/host` carries out at the same time.
//!
//! On a working node, a run changes nothing until all downloads are complete and verified. If a mirror is missing or serves wrong contents,
//! the node and its packages stay unchanged.
//!
//! A machine that is not a node yet has nothing to lose. Its packages come from the distribution, and the next run continues with the
//! packages that are installed. Package installation takes most of the machine's first run. So the run fetches packages while it
//! downloads files, and installs them while it downloads images. Between these two steps, the run checks that the downloaded programs
//! start. If one of them does not start, the machine stays unchanged.

use crate::diff::{Action, Plan, Stage};
use crate::resource::Kind;

/// The time at which a run installs the packages of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installing {
    /// The plan installs no packages.
    Nothing,
    /// The run fetches the packages while it downloads files. Once all files are verified and the programs can start, the run installs the
    /// packages while it downloads images.
    BesideImages,
    /// The run installs the packages in the packages stage, after all downloads are complete and verified.
    InTheirStage,
}

/// The state of a machine before the run changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// No run has completed on the machine, and it does not run kubelet.
    NotYetANode,
    /// The machine is a working node, or may be one.
    Node,
}

/// Decides when a run installs the packages of a plan.
///
/// If the plan adds a package repository, the run installs the packages only in the packages stage, for two reasons: the repository's key
/// is a download, and the run must record the repository's files before it writes them.
pub fn installing(plan: &Plan, machine: Machine) -> Installing {
    let is_made = |kind: Kind| {
        let mut steps = plan.stage(Stage::Packages).filter(|step| step.action != Action::Remove);
        steps.any(|step| step.resource.kind == kind)
    };
    match (is_made(Kind::Package), is_made(Kind::PackageSource), machine) {
        (false, _, _) => Installing::Nothing,
        (true, false, Machine::NotYetANode) => Installing::BesideImages,
        (true, true, _) | (true, _, Machine::Node) => Installing::InTheirStage,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::diff;
    use crate::resource::{DesiredState, File, Package, PackageSource, Resource};

    fn plan(resources: Vec<Resource>) -> Plan {
        let mut desired = DesiredState::default();
        resources.into_iter().for_each(|resource| desired.add(resource));
        diff(&desired, &Default::default())
    }

    fn package() -> Resource {
        Package { name: "chrony".into() }.into()
    }

    #[test]
    fn only_a_new_machine_installs_packages_beside_images() {
        let plan = plan(vec![package(), File::text("/etc/x", "").into()]);
        assert_eq!(installing(&plan, Machine::NotYetANode), Installing::BesideImages);
        assert_eq!(installing(&plan, Machine::Node), Installing::InTheirStage);
    }

    #[test]
    fn packages_wait_for_an_added_repository() {
        let source = PackageSource { name: "x".into(), keyring: "https://x/key".into(), sources: vec![] };
        let plan = plan(vec![package(), source.into()]);
        for machine in [Machine::NotYetANode, Machine::Node] {
            assert_eq!(installing(&plan, machine), Installing::InTheirStage);
        }
    }

    #[test]
    fn without_missing_packages_nothing_is_installed() {
        let plan = plan(vec![File::text("/etc/x", "").into()]);
        for machine in [Machine::NotYetANode, Machine::Node] {
            assert_eq!(installing(&plan, machine), Installing::Nothing);
        }
    }
}
