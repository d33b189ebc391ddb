//! Which starts a run waits for, and which units failed.
//!
//! A run waits for kubelet, for the container runtime and for the units ordered before these, one after another. All
//! other jobs are only requested: such a job may wait for kubelet, or for a boot stage that waits for this very run
//! (`cloud-final.service`). At the end, the other jobs get a short time to report an early failure. A failed unit does
//! not prevent the start of others. All failed units are reported at the end.

use std::collections::BTreeSet;

use kops_agent_plan::diff::{Action, Change, Keeping, Kept, Plan, awaited_units};
use kops_agent_plan::resource::{DesiredState, Kind, ResourceId};
use kops_agent_spec::failure::Failing;
use parking_lot::{Mutex, MutexGuard};

use crate::error::{Error, FailedResource};
use crate::system::systemd::{Act, Job};

pub(super) struct Starts {
    awaited: BTreeSet<String>,
    state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) under_way: Vec<UnderWay>,
    /// Units that pods wait for and that cannot start before this run ends.
    pub(super) left: BTreeSet<String>,
    failed: Vec<FailedResource>,
    /// Whether a unit that pods wait for has reached its timeout. Units that are ordered after this unit then wait in systemd's queue.
    pub(super) is_late: bool,
}

/// A job that has not ended.
pub(super) struct UnderWay {
    pub(super) unit: String,
    pub(super) act: Act,
    pub(super) digest: Option<String>,
    pub(super) job: Job,
}

impl Starts {
    pub(super) fn new(desired: &DesiredState) -> Starts {
        Starts { awaited: awaited_units(desired), state: Mutex::default() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(super) fn is_awaited(&self, unit: &str) -> bool {
        self.awaited.contains(unit)
    }

    /// Whether a unit that pods wait for starts only after this run.
    pub(super) fn is_left(&self, unit: &str) -> bool {
        self.state().left.contains(unit)
    }

    /// Records that a unit failed. If the unit has already failed in this run, keeps the first reason.
    pub(super) fn note_failed(&self, unit: &str, error: &Error) {
        self.note(&ResourceId::new(Kind::Unit, unit), error);
    }

    /// Records a failure that does not stop the run. If the resource has already failed in this run, keeps the first reason.
    pub(super) fn note(&self, resource: &ResourceId, error: &Error) {
        let mut state = self.state();
        if !state.failed.iter().any(|failed| failed.resource == *resource) {
            state.failed.push(FailedResource { resource: resource.clone(), why: error.to_string() });
        }
    }

    /// Records a masked unit as failed if pods need it, because systemd cannot start it.
    pub(super) fn note_masked(&self, plan: &Plan) {
        let is_masked = |kept: &&Kept| kept.resource.kind == Kind::Unit && kept.keeping == Keeping::Unmended;
        for Kept { resource, why, .. } in plan.kept.iter().filter(is_masked) {
            let unit = resource.name.clone();
            self.note_failed(&resource.name, &Error::Unit { doing: "start", unit, reason: why.clone() });
        }
    }

    pub(super) fn has_failed(&self, unit: &str) -> bool {
        self.failed(Kind::Unit).iter().any(|failed| failed == unit)
    }

    /// The names of the failed resources of one kind.
    pub(super) fn failed(&self, kind: Kind) -> Vec<String> {
        let failed = &self.state().failed;
        let is_it = |failed: &&FailedResource| failed.resource.kind == kind;
        failed.iter().filter(is_it).map(|failed| failed.resource.name.clone()).collect()
    }

    /// The error with all failures; `None` if nothing failed.
    pub(super) fn failures(&self) -> Option<Error> {
        Error::of_failed(self.state().failed.clone())
    }

    /// The error with all failures, if any failure keeps pods from running. `None` if pods can run, with or without failures.
    pub(super) fn fatal_failures(&self) -> Option<Error> {
        self.failures().filter(|error| !error.kind().leaves_a_working_node())
    }
}

/// Whether a plan only starts a unit and does not change the unit.
pub(super) fn is_merely_started(plan: &Plan, unit: &ResourceId) -> bool {
    let starts = |change: &Change| matches!(change, Change::Start);
    plan.step(unit).is_some_and(|step| {
        step.changes.iter().any(starts) && step.action != Action::Create && !step.writes()
    })
}
