//! Decides about resources that the agent made and that are no longer desired.
//!
//! The agent removes a resource that it made and that is unchanged since then. A resource that existed before the agent, or that somebody
//! changed, stays. The plan reports such a resource once, and after that the agent no longer manages it. One exception is a program of kOps
//! that applies addons: it is removed even if nodeup made it, because its successor does the same work.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::step::{Action, Change, Stage, Step};
use crate::desired::kops_channels::applies_addons;
use crate::resource::{DesiredState, Kind, ResourceId};
use crate::unit_files::drop_in_of;

/// The resources that the agent made, according to its last converged run, with their present state.
pub type OwnedState = BTreeMap<ResourceId, Owned>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// Whether an object with the resource's name or path existed before the agent's first run.
    pub was_there: bool,
    /// The resource's present state on the machine.
    pub now: OwnedNow,
}

/// The present state of a resource that the agent made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedNow {
    Gone,
    /// The resource has not changed since the agent made it.
    AsLeft,
    /// The resource has changed since the agent made it. The texts name the changed properties, such as `content`.
    Changed(Vec<String>),
}

/// A resource that stays unchanged, with the reason. It is not desired, or it may differ from its desired state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    pub resource: ResourceId,
    pub why: String,
    #[serde(default, skip_serializing_if = "Keeping::is_not_wanted")]
    pub keeping: Keeping,
}

/// Why a resource stays unchanged, as a category. [`Kept::why`] is the full reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Keeping {
    /// The resource is no longer desired.
    #[default]
    NotWanted,
    /// The resource is desired, but its desired state is unknown now.
    Unknown,
    /// The resource is desired and wrong, but cannot be repaired now.
    Unmended,
    /// The resource is desired, but an operator overrides it.
    Left,
    /// The resource is desired, and its processes use older certificates than the certificates on disk.
    Loaded,
}

impl Keeping {
    #[allow(clippy::trivially_copy_pass_by_ref)] // required by serde
    fn is_not_wanted(&self) -> bool {
        *self == Keeping::NotWanted
    }
}

/// The steps that remove resources, and the resources that stay although they are no longer desired.
pub(super) fn removals(desired: &DesiredState, owned: &OwnedState) -> (Vec<Step>, Vec<Kept>) {
    let (mut steps, mut kept) = (Vec::new(), Vec::new());
    for (id, Owned { was_there, now }) in owned {
        if desired.get(id).is_some() || *now == OwnedNow::Gone {
            continue;
        }
        let keep =
            |why: &str| Kept { resource: id.clone(), why: why.to_owned(), keeping: Keeping::NotWanted };
        match (id.kind, now) {
            (
                Kind::File
                | Kind::Symlink
                | Kind::Unit
                | Kind::Directory
                | Kind::KernelModule
                | Kind::PackageSource
                | Kind::Mount
                | Kind::BindMount,
                _,
            ) if *was_there && !applies_addons(id) => {
                kept.push(keep("it was there before kops-agent"));
            }
            (_, OwnedNow::Changed(how)) if id.kind != Kind::Directory => {
                kept.push(keep(&format!("its {} was changed since kops-agent wrote it", how.join(" and "))));
            }
            (Kind::Unit, _) => steps.push(step(id, vec![Change::Stop, Change::Disable, Change::Remove])),
            // Data that a program stored on a volume stays on the volume.
            (
                Kind::File
                | Kind::Symlink
                | Kind::HostsEntry
                | Kind::KernelModule
                | Kind::PackageSource
                | Kind::Mount
                | Kind::BindMount,
                _,
            ) => steps.push(step(id, vec![Change::Remove])),
            (Kind::Directory, _) => steps.push(step(id, vec![Change::RemoveIfEmpty])),
            // Packages, users and images stay, because other programs may use them now.
            _ => {}
        }
    }
    // Units stop before their files are removed. The contents of a directory or volume are removed before the directory or volume itself.
    steps.sort_by_key(|step| (rank(step.resource.kind), std::cmp::Reverse(step.resource.clone())));
    (steps, kept)
}

/// The step that removes a resource. A drop-in is removed in an early stage, so that the unit restarts without the drop-in.
fn step(id: &ResourceId, changes: Vec<Change>) -> Step {
    let stage = if drop_in_of(id).is_some() { Stage::Files } else { Stage::Removals };
    Step { stage, resource: id.clone(), action: Action::Remove, changes }
}

fn rank(kind: Kind) -> u8 {
    match kind {
        Kind::Unit => 0,
        Kind::Mount | Kind::BindMount => 2,
        Kind::Directory => 3,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::File;

    fn owned(kind: Kind, name: &str, was_there: bool, now: OwnedNow) -> (ResourceId, Owned) {
        (ResourceId::new(kind, name), Owned { was_there, now })
    }

    fn names(steps: &[Step]) -> Vec<String> {
        steps.iter().map(|step| step.resource.to_string()).collect()
    }

    #[test]
    fn the_agents_own_resources_are_removed_in_order() {
        let owned = OwnedState::from([
            owned(Kind::Directory, "/etc/a", false, OwnedNow::AsLeft),
            owned(Kind::Directory, "/etc/a/b", false, OwnedNow::Changed(vec!["mode".into()])),
            owned(Kind::File, "/etc/a/b/c", false, OwnedNow::AsLeft),
            owned(Kind::File, "/etc/wanted", false, OwnedNow::AsLeft),
            owned(Kind::File, "/etc/gone", false, OwnedNow::Gone),
            owned(Kind::Unit, "a.service", false, OwnedNow::AsLeft),
            owned(Kind::Package, "chrony", false, OwnedNow::AsLeft),
            owned(Kind::Mount, "/etc/a", false, OwnedNow::AsLeft),
            owned(Kind::BindMount, "/opt", false, OwnedNow::AsLeft),
            owned(Kind::BindMount, "/opt/bin", false, OwnedNow::AsLeft),
            owned(Kind::Mount, "/unmounted", false, OwnedNow::Gone),
            owned(Kind::PackageSource, "gvisor", false, OwnedNow::AsLeft),
        ]);
        let mut desired = DesiredState::default();
        desired.add(File::text("/etc/wanted", ""));
        let (steps, kept) = removals(&desired, &owned);
        assert_eq!(
            names(&steps),
            [
                "unit a.service",
                "file /etc/a/b/c",
                "package-source gvisor",
                "bind-mount /opt/bin",
                "bind-mount /opt",
                "mount /etc/a",
                "directory /etc/a/b",
                "directory /etc/a"
            ]
        );
        assert_eq!(kept, []);
    }

    #[test]
    fn resources_that_others_made_or_changed_stay_and_are_reported() {
        let owned = OwnedState::from([
            owned(Kind::File, "/etc/before", true, OwnedNow::AsLeft),
            owned(Kind::Mount, "/before", true, OwnedNow::AsLeft),
            owned(Kind::File, "/etc/edited", false, OwnedNow::Changed(vec!["content".into(), "mode".into()])),
            owned(Kind::Unit, "edited.service", false, OwnedNow::Changed(vec!["content".into()])),
        ]);
        let (steps, kept) = removals(&DesiredState::default(), &owned);
        assert_eq!(steps, []);
        let told: Vec<_> = kept.iter().map(|kept| format!("{}: {}", kept.resource, kept.why)).collect();
        assert_eq!(
            told,
            [
                "mount /before: it was there before kops-agent",
                "file /etc/before: it was there before kops-agent",
                "file /etc/edited: its content and mode was changed since kops-agent wrote it",
                "unit edited.service: its content was changed since kops-agent wrote it",
            ]
        );
    }
}
