//! What must be done to make a machine as it should be: the difference between the desired and the
//! observed state, as a value.
//!
//! A [`Plan`] is shown by `kops-agent plan`, applied by `agent/host`, and empty when there is
//! nothing to do. Nothing in it is secret: where a file holds secrets, a step says that the content
//! differs and no more.

mod baseline;
mod compare;
mod labels;
pub mod meaning;
mod observed;
mod order;
mod overrides;
mod pods;
mod removals;
mod renewal;
mod renumbered;
pub mod text;
mod units;
mod unknown;

#[cfg(test)]
mod properties;

use serde::{Deserialize, Serialize};

use crate::health;
use crate::resource::{DesiredState, Kind, Resource, ResourceId};
use order::Order;

pub use baseline::{FirstSight, Started, Times, take_as_started};
pub use labels::{WrongLabel, WrongLabels, with_labels};
pub use observed::{
    Access, Enablement, Observed, ObservedCertificate, ObservedContent, ObservedFile, ObservedState,
    ObservedUnit, Override, sha256_hex,
};
pub use order::awaited_units;
pub use pods::{mounted, mounted_digest};
pub use removals::{Keeping, Kept, Owned, OwnedNow, OwnedState};
pub use renewal::{Interrupted, renewal};
pub use units::{PATH, restart_digest};

/// The unit that runs containers: whatever else runs on a node needs it.
pub const CONTAINER_RUNTIME: &str = "containerd.service";
/// The unit that starts pods; everything that pods rely on comes before it.
pub const KUBELET: &str = "kubelet.service";

/// One of the parts into which applying a plan falls, in the order in which they are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// Package sources and packages.
    Packages,
    /// Groups and users; the files that they own come later.
    Users,
    /// File systems; the files on them come later.
    Mounts,
    /// Kernel modules; the parameters that they bring are set with the files that come later.
    Kernel,
    /// Directories, certificates, files, links and `/etc/hosts`.
    Files,
    /// The container runtime, and the units that come before it.
    Runtime,
    /// Container images.
    Images,
    /// The files of static pods, one after another: etcd's, the API server's, then the others'. Before kubelet, which
    /// may not be newer than the API server (Kubernetes' version skew policy), and which runs them as it is.
    Pods,
    /// All other units, those first that come before others, kubelet last.
    Services,
    /// What the agent left at an earlier time and is no longer wanted, but for drop-ins of units, which go with the files.
    Removals,
}

impl Stage {
    /// Every stage, in order.
    pub const ALL: [Stage; 10] = [
        Stage::Packages,
        Stage::Users,
        Stage::Mounts,
        Stage::Kernel,
        Stage::Files,
        Stage::Runtime,
        Stage::Images,
        Stage::Pods,
        Stage::Services,
        Stage::Removals,
    ];

    /// The word by which people see the stage.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Packages => "packages",
            Stage::Users => "users",
            Stage::Mounts => "mounts",
            Stage::Files => "files",
            Stage::Kernel => "kernel",
            Stage::Runtime => "runtime",
            Stage::Images => "images",
            Stage::Pods => "pods",
            Stage::Services => "services",
            Stage::Removals => "removals",
        }
    }

    /// The stage in which a resource is dealt with, unless it is a unit that comes before the container runtime.
    pub fn of(id: &ResourceId) -> Stage {
        match id.kind {
            Kind::PackageSource | Kind::Package => Stage::Packages,
            Kind::Group | Kind::User => Stage::Users,
            Kind::Mount | Kind::BindMount => Stage::Mounts,
            Kind::File if health::is_manifest(&id.name) => Stage::Pods,
            Kind::Certificate
            | Kind::Directory
            | Kind::File
            | Kind::Symlink
            | Kind::HostsEntry
            | Kind::Ipv6Prefix => Stage::Files,
            Kind::KernelModule => Stage::Kernel,
            Kind::Image => Stage::Images,
            Kind::Unit if id.name == CONTAINER_RUNTIME => Stage::Runtime,
            Kind::DiscoveryRegistration | Kind::Unit => Stage::Services,
        }
    }
}

/// Whether a step makes something new.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// It is not there yet.
    Create,
    /// It is there and differs.
    Change,
    /// It is there as it should be; only what it has read is out of date.
    Restart,
    /// It is there and no longer wanted.
    Remove,
}

/// One thing that a step does to its resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Change {
    /// Set one property.
    Set {
        /// The property, by its name in the resource.
        field: String,
        /// Its present value; `None` where the resource is not there yet.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<String>,
        /// The value it gets.
        to: String,
    },
    /// Write text.
    Write {
        /// The unified diff from what is there.
        diff: String,
    },
    /// Write bytes that are not shown.
    WriteBytes {
        /// SHA-256 of what is there; `None` where nothing is, or where it is not comparable.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<String>,
        /// What is written: `sha256 …`, or a member of an archive.
        to: String,
        /// The URL from which it is downloaded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        url: Option<String>,
    },
    /// Write content that may not be shown, or that is only made while applying.
    WriteHidden {
        /// What it is: `secret`, or the certificate that it follows.
        what: String,
    },
    /// Issue a certificate with a new key.
    Issue {
        /// Why what is there, if anything, cannot be kept.
        why: String,
        /// Whether that is its age alone.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        renewal: bool,
    },
    /// Put it in the place of something of another type.
    Replace {
        /// What stands there (`a symbolic link`).
        what: String,
    },
    /// Run a command, because the file has changed since it last ran.
    Run {
        /// The command and its arguments.
        command: Vec<String>,
    },
    /// Let it start at boot.
    Enable,
    /// Keep it from starting at boot.
    Disable,
    /// Take it away.
    Remove,
    /// Take the directory away if nothing is left in it.
    RemoveIfEmpty,
    /// Start it.
    Start,
    /// Stop it.
    Stop,
    /// Restart it.
    Restart {
        /// The resources whose change it has not seen; empty where an earlier run was interrupted
        /// before it could restart it.
        because: Vec<ResourceId>,
    },
}

impl Change {
    /// Whether content is written.
    fn writes(&self) -> bool {
        matches!(self, Change::Write { .. } | Change::WriteBytes { .. } | Change::WriteHidden { .. })
    }
}

/// What is done to one resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// When.
    pub stage: Stage,
    /// To what.
    pub resource: ResourceId,
    /// Whether it is new.
    pub action: Action,
    /// What, in order. May be empty where making it says it all (`package chrony`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
}

impl Step {
    /// Whether the resource's content is another afterwards, as opposed to its owner or mode.
    pub fn changes_content(&self) -> bool {
        self.action == Action::Create || self.writes() || self.changes.iter().any(is_remade)
    }

    /// Whether content is written.
    pub fn writes(&self) -> bool {
        self.changes.iter().any(Change::writes)
    }

    /// Whether a static pod is started, anew or for the first time: by kubelet when its file is written, else by us.
    pub fn starts_pod(&self) -> bool {
        self.stage == Stage::Pods
            && self.action != Action::Remove
            && (self.changes_content() || self.restarts())
    }

    /// Whether a unit or a static pod is restarted.
    pub fn restarts(&self) -> bool {
        self.changes.iter().any(|change| matches!(change, Change::Restart { .. }))
    }
}

fn is_remade(change: &Change) -> bool {
    match change {
        Change::Issue { .. } | Change::Replace { .. } => true,
        Change::Set { field, .. } => field == "target",
        _ => false,
    }
}

/// Everything that must be done, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The steps: by stage, and within one in the order in which they must happen.
    pub steps: Vec<Step>,
    /// What stays although it is no longer wanted, or although it cannot be told now how it should be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Kept>,
    /// What is there as it is wanted, is not the agent's, and becomes its own: it is pruned and reset from then on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adopted: Vec<ResourceId>,
}

/// How much a plan does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Resources that are not there yet.
    pub create: usize,
    /// Resources that differ.
    pub change: usize,
    /// Units and static pods that are restarted, for whatever reason.
    pub restart: usize,
    /// Resources that are taken away.
    #[serde(default)]
    pub remove: usize,
}

impl Plan {
    /// Whether the machine is as it is wanted: nothing is to be done, and nothing is wrong that cannot be put right.
    pub fn is_as_wanted(&self) -> bool {
        self.is_empty() && self.kept.iter().all(|kept| kept.keeping != Keeping::Unmended)
    }

    /// Whether nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.adopted.is_empty()
    }

    /// The same plan, with which these become the agent's own as far as they are as they should be: what is written
    /// anew was something else before.
    pub fn adopting(mut self, there: Vec<ResourceId>) -> Plan {
        self.adopted =
            there.into_iter().filter(|id| !self.step(id).is_some_and(Step::changes_content)).collect();
        self
    }

    /// The steps of one stage.
    pub fn stage(&self, stage: Stage) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(move |step| step.stage == stage)
    }

    /// The step for a resource.
    pub fn step(&self, id: &ResourceId) -> Option<&Step> {
        self.steps.iter().find(|step| step.resource == *id)
    }

    /// How much it does.
    pub fn summary(&self) -> Summary {
        let count = |action| self.steps.iter().filter(|step| step.action == action).count();
        Summary {
            create: count(Action::Create),
            change: count(Action::Change),
            restart: self.steps.iter().filter(|step| step.restarts()).count(),
            remove: count(Action::Remove),
        }
    }
}

/// What must be done to a machine that is as `observed`, for it to be as `desired`.
///
/// Every desired resource that differs has exactly one step. What is not desired is left alone;
/// [`diff_with_owned`] removes what the agent itself left.
pub fn diff(desired: &DesiredState, observed: &ObservedState) -> Plan {
    diff_after(vec![], desired, observed)
}

/// As [`diff`], given that these steps are taken in any case.
fn diff_after(steps: Vec<Step>, desired: &DesiredState, observed: &ObservedState) -> Plan {
    let mut plan = Plan { steps, kept: unknown::kept(desired, observed), ..Plan::default() };
    plan.kept.extend(overrides::kept(desired, observed));
    let order = Order::of(desired);
    let awaited = awaited_units(desired);
    let (files, started): (Vec<_>, Vec<_>) = desired.iter().partition(|(id, _)| !is_started(id));
    for (id, resource) in files.into_iter().chain(started) {
        let changes = match resource {
            Resource::Unit(unit) => units::changes(unit, observed, &plan, awaited.contains(&unit.name)),
            _ => changes(resource, desired, observed, &plan),
        };
        push(&mut plan, order.stage(id), id, observed.contains_key(id), changes);
    }
    plan.steps.sort_by(|a, b| order.position(&a.resource).cmp(&order.position(&b.resource)));
    plan
}

/// Whether it is started and reads others' files then: those are looked at first.
fn is_started(id: &ResourceId) -> bool {
    id.kind == Kind::Unit || Stage::of(id) == Stage::Pods
}

/// What must change about a resource that is no unit.
fn changes(
    resource: &Resource,
    desired: &DesiredState,
    observed: &ObservedState,
    plan: &Plan,
) -> Option<Vec<Change>> {
    let present = observed.get(&resource.id()).map(|present| renumbered::as_left(present, plan));
    let mut changes = compare::changes(resource, present.as_deref(), &|certificate| {
        plan.step(&ResourceId::new(Kind::Certificate, certificate)).is_some()
    })?;
    // kubelet itself starts a pod anew whose file is written.
    let is_written = changes.iter().any(Change::writes);
    if let (Resource::File(file), false) = (resource, is_written) {
        changes.extend(pods::restart(file, desired, observed, plan));
    }
    Some(changes)
}

/// As [`diff`], with what the agent left at an earlier time and is no longer wanted.
pub fn diff_with_owned(desired: &DesiredState, observed: &ObservedState, owned: &OwnedState) -> Plan {
    let (steps, kept) = removals::removals(desired, owned);
    let (before, last): (Vec<_>, Vec<_>) = steps.into_iter().partition(|step| step.stage < Stage::Removals);
    let mut plan = diff_after(before, desired, observed);
    plan.steps.extend(last);
    plan.kept.splice(0..0, kept);
    plan
}

/// Adds a step, unless the resource is there and nothing about it changes.
fn push(plan: &mut Plan, stage: Stage, id: &ResourceId, is_there: bool, changes: Option<Vec<Change>>) {
    let Some(changes) = changes else { return };
    let action = match changes.as_slice() {
        _ if !is_there => Action::Create,
        [] => return,
        [Change::Restart { .. }] => Action::Restart,
        _ => Action::Change,
    };
    plan.steps.push(Step { stage, resource: id.clone(), action, changes });
}
