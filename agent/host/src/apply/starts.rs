//! Which starts a run waits for, and which units failed.
//!
//! A run waits for kubelet and the container runtime, and for what those are ordered after, one after another. Every other
//! job is only asked for: it may wait for kubelet, or for a boot stage that waits for this very run (`cloud-final.service`).
//! In the end all of those have a little time to tell an early failure. A unit that fails keeps no other from being
//! started; all that failed are named once everything else is done.

use std::collections::BTreeSet;

use kops_agent_plan::diff::{Action, Change, Keeping, Kept, Plan, awaited_units};
use kops_agent_plan::resource::{DesiredState, Kind, ResourceId};
use parking_lot::{Mutex, MutexGuard};

use crate::error::{Error, FailedResource};
use crate::system::systemd::{Act, Job};

/// The starts of one run.
pub(super) struct Starts {
    awaited: BTreeSet<String>,
    state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) under_way: Vec<UnderWay>,
    /// Units that pods wait for and that cannot start before this run has ended.
    pub(super) left: BTreeSet<String>,
    failed: Vec<FailedResource>,
    /// Whether a unit has used up the time for those that pods wait for: what comes after it waits in systemd's queue.
    pub(super) is_late: bool,
}

/// A job that systemd has not ended yet.
pub(super) struct UnderWay {
    pub(super) unit: String,
    pub(super) act: Act,
    pub(super) digest: Option<String>,
    pub(super) job: Job,
}

impl Starts {
    pub(super) fn of(desired: &DesiredState) -> Starts {
        Starts { awaited: awaited_units(desired), state: Mutex::default() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Whether pods wait for a unit.
    pub(super) fn is_awaited(&self, unit: &str) -> bool {
        self.awaited.contains(unit)
    }

    /// Whether a unit that pods wait for was left to systemd.
    pub(super) fn is_left(&self, unit: &str) -> bool {
        self.state().left.contains(unit)
    }

    /// Notes that a unit failed; the first reason is the one that is told.
    pub(super) fn note_failed(&self, unit: &str, error: &Error) {
        self.note(&ResourceId::new(Kind::Unit, unit), error);
    }

    /// Notes that something failed which keeps the run from nothing else; the first reason is the one that is told.
    pub(super) fn note(&self, resource: &ResourceId, error: &Error) {
        let mut state = self.state();
        if !state.failed.iter().any(|failed| failed.resource == *resource) {
            state.failed.push(FailedResource { resource: resource.clone(), why: error.to_string() });
        }
    }

    /// Notes the units without which no pod runs and that an operator has masked, as failed: systemd would refuse to
    /// start them.
    pub(super) fn note_masked(&self, plan: &Plan) {
        let is_masked = |kept: &&Kept| kept.resource.kind == Kind::Unit && kept.keeping == Keeping::Unmended;
        for Kept { resource, why, .. } in plan.kept.iter().filter(is_masked) {
            let unit = resource.name.clone();
            self.note_failed(&resource.name, &Error::Unit { doing: "start", unit, reason: why.clone() });
        }
    }

    /// Whether a unit has failed in this run.
    pub(super) fn has_failed(&self, unit: &str) -> bool {
        self.failed(Kind::Unit).iter().any(|failed| failed == unit)
    }

    /// The names of what has failed in this run, of one kind.
    pub(super) fn failed(&self, kind: Kind) -> Vec<String> {
        let failed = &self.state().failed;
        let is_it = |failed: &&FailedResource| failed.resource.kind == kind;
        failed.iter().filter(is_it).map(|failed| failed.resource.name.clone()).collect()
    }

    /// The error for all that failed, if anything did.
    pub(super) fn failures(&self) -> Option<Error> {
        Error::of_failed(self.state().failed.clone())
    }

    /// The same, where no pod can run because of it.
    pub(super) fn fatal_failures(&self) -> Option<Error> {
        self.failures().filter(|error| !error.leaves_a_working_node())
    }
}

/// Whether a plan does no more to a unit than to start it.
pub(super) fn is_merely_started(plan: &Plan, unit: &ResourceId) -> bool {
    let starts = |change: &Change| matches!(change, Change::Start);
    plan.step(unit).is_some_and(|step| {
        step.changes.iter().any(starts) && step.action != Action::Create && !step.writes()
    })
}
