//! What may be done at the same time while a plan is carried out, for `agent/host` to do so.
//!
//! A node that works is changed only once all that the change takes is downloaded and verified: a mirror that lies, or
//! has gone, leaves it as it was, its packages too. A machine that is no node yet has nothing to lose. What a package
//! brings there is Debian's own, the next run finds it and goes on, and installing packages is most of what such a
//! machine waits for: so they are installed while downloads are fetched and certificates are made.

use crate::diff::{Action, Plan, Stage};
use crate::resource::Kind;

/// When the packages of a plan are installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installing {
    /// There are none.
    Nothing,
    /// From the beginning, while downloads are fetched and certificates are made.
    BesideDownloads,
    /// Once everything is downloaded and verified, in their stage.
    InTheirStage,
}

/// What is known of a machine before a plan is carried out on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// No run has come to its end there, and it runs no kubelet.
    NotYetANode,
    /// It works as a node, or may.
    Node,
}

/// When the packages of a plan are installed on a machine.
///
/// With a repository that is to be added they wait for their stage: its key is a download, and what is written of it is
/// recorded first.
pub fn installing(plan: &Plan, machine: Machine) -> Installing {
    let is_made = |kind: Kind| {
        let mut steps = plan.stage(Stage::Packages).filter(|step| step.action != Action::Remove);
        steps.any(|step| step.resource.kind == kind)
    };
    match (is_made(Kind::Package), is_made(Kind::PackageSource), machine) {
        (false, _, _) => Installing::Nothing,
        (true, false, Machine::NotYetANode) => Installing::BesideDownloads,
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
    fn only_a_machine_that_is_no_node_gets_packages_before_all_is_verified() {
        let plan = plan(vec![package(), File::text("/etc/x", "").into()]);
        assert_eq!(installing(&plan, Machine::NotYetANode), Installing::BesideDownloads);
        assert_eq!(installing(&plan, Machine::Node), Installing::InTheirStage);
    }

    #[test]
    fn a_repository_that_is_added_comes_first() {
        let source = PackageSource { name: "x".into(), keyring: "https://x/key".into(), sources: vec![] };
        let plan = plan(vec![package(), source.into()]);
        for machine in [Machine::NotYetANode, Machine::Node] {
            assert_eq!(installing(&plan, machine), Installing::InTheirStage);
        }
    }

    #[test]
    fn nothing_is_begun_where_no_package_is_missing() {
        let plan = plan(vec![File::text("/etc/x", "").into()]);
        for machine in [Machine::NotYetANode, Machine::Node] {
            assert_eq!(installing(&plan, machine), Installing::Nothing);
        }
    }
}
