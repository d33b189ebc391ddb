//! Which starts a run waits for, and which units failed.
//!
//! kubelet and the container runtime, and what those are ordered after, are waited for one after another. Every other
//! job is only asked for: it may wait for kubelet, or for a boot stage that waits for this very run (`cloud-final.service`).
//! In the end all of those have a little time to tell an early failure. A unit that fails keeps no other from being
//! started; all that failed are named once everything else is done.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kops_agent_plan::diff::{Action, Change, Keeping, Kept, Plan, awaited_units};
use kops_agent_plan::resource::{DesiredState, Kind, ResourceId, Unit};
use tokio::time::{Instant, timeout, timeout_at};

use super::Run;
use crate::error::{Error, FailedResource, Result};
use crate::host::Host;
use crate::stamps::Stamp;
use crate::system::systemd::{Act, Job};

/// How long jobs of systemd's are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waits {
    /// For a unit that pods wait for. Most have timeouts of their own that are shorter; a oneshot has none, and may
    /// format a disk or build a driver.
    pub awaited: Duration,
    /// For all others together, after everything else is done: what fails early is told by the run, what fails later by
    /// systemd and the next run.
    pub others: Duration,
    /// For an image to be pulled or loaded. As long as upstream tries a task (`RunTasksOptions` in
    /// upup/pkg/fi/executor.go). Once one has taken all of it, those that kubelet waits for have as long as `others`.
    pub image: Duration,
}

impl Default for Waits {
    fn default() -> Waits {
        Waits {
            awaited: Duration::from_secs(15 * 60),
            others: Duration::from_secs(15),
            image: Duration::from_secs(10 * 60),
        }
    }
}

/// The starts of one run.
pub(super) struct Starts {
    awaited: BTreeSet<String>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    under_way: Vec<UnderWay>,
    /// Units that pods wait for and that cannot start before this run has ended.
    left: BTreeSet<String>,
    failed: Vec<FailedResource>,
    /// Whether a unit has used up the time for those that pods wait for: what comes after it waits in systemd's queue.
    is_late: bool,
}

struct UnderWay {
    unit: String,
    act: Act,
    digest: Option<String>,
    job: Job,
}

impl Starts {
    pub(super) fn of(desired: &DesiredState) -> Starts {
        Starts { awaited: awaited_units(desired), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

impl Run<'_> {
    /// Asks for a job and waits for its end. `digest` is of what the unit finds.
    pub(super) async fn wait_for_job(&self, act: Act, unit: &str, digest: Option<&str>) -> Result<()> {
        let Waits { awaited, others, .. } = self.host.waits;
        let patience = if self.starts.state().is_late { others } else { awaited };
        match timeout(patience, self.host.systemd.begin(act, unit)).await {
            Ok(outcome) => outcome,
            Err(_) => {
                self.starts.state().is_late = true;
                self.host.note_begun_start(act, unit, digest)?;
                Err(late(act, unit, patience))
            }
        }
    }

    /// Whether a job has to be left to systemd: its unit, or what that comes after, waits for the end of this run.
    pub(super) fn has_to_be_left(&self, act: Act, unit: &str) -> bool {
        if act == Act::Stop {
            return false;
        }
        let left = self.starts.state().left.clone();
        let is_left = self.host.systemd.waits_for_this_run(unit, &left).unwrap_or_else(|error| {
            log::debug!("whether {unit} waits for this run is not known, so it is waited for: {error}");
            false
        });
        if is_left {
            self.starts.state().left.insert(unit.to_owned());
        }
        is_left
    }

    /// Asks for a job whose end is not waited for now.
    pub(super) fn leave_job(&self, act: Act, unit: &Unit, digest: Option<String>) {
        let job = self.host.systemd.begin(act, &unit.name);
        self.starts.state().under_way.push(UnderWay { unit: unit.name.clone(), act, digest, job });
    }

    /// Gives the jobs that were left some time to end, and says which of their units failed. Returns those that are
    /// still at it.
    ///
    /// # Errors
    /// systemd cannot be asked, or the disk cannot be written to.
    pub(super) async fn collect_jobs(&self) -> Result<Vec<String>> {
        let until = Instant::now() + self.host.waits.others;
        let under_way = std::mem::take(&mut self.starts.state().under_way);
        let mut left = Vec::new();
        for UnderWay { unit, act, digest, job } in under_way {
            match timeout_at(until, job).await {
                Ok(Ok(())) => self.host.note_started(act, &unit, digest.as_deref())?,
                Ok(Err(error)) if error.is_refusal() => self.starts.note_failed(&unit, &error),
                Ok(Err(error)) => return Err(error),
                Err(_) => {
                    self.host.note_begun_start(act, &unit, digest.as_deref())?;
                    left.push(unit);
                }
            }
        }
        Ok(left)
    }
}

impl Host {
    /// Notes with what a unit runs from now on, and that one ran which runs once.
    pub(super) fn note_started(&self, act: Act, unit: &str, digest: Option<&str>) -> Result<()> {
        if act == Act::Stop {
            return Ok(());
        }
        self.note_run(unit)?;
        match digest {
            Some(digest) => Stamp::Unit.write(&self.root, unit, digest),
            None => Ok(()),
        }
    }

    /// Notes the same of a unit whose job has not come to its end, where nothing of it can be older than what it
    /// reads: a restart that waits in the queue has the old process run on, and stays due.
    pub(crate) fn note_begun_start(&self, act: Act, unit: &str, digest: Option<&str>) -> Result<()> {
        if act == Act::Stop {
            return Ok(());
        }
        let is_starting = self.systemd.is_starting(unit)?;
        if is_starting {
            Stamp::Run.write(&self.root, unit, &self.kernel.boot_id()?)?;
        }
        match digest {
            Some(digest) if is_starting || act == Act::Start => Stamp::Unit.write(&self.root, unit, digest),
            _ => Ok(()),
        }
    }
}

/// What is told of a unit whose job has not come to its end in time.
pub(crate) fn late(act: Act, unit: &str, patience: Duration) -> Error {
    Error::Unit {
        doing: act.name(),
        unit: unit.to_owned(),
        reason: format!(
            "it has not come to its end within {} s, and is not waited for any longer; see `systemctl list-jobs` and \
             `journalctl -u {unit}`",
            patience.as_secs()
        ),
    }
}

/// Whether a plan does no more to a unit than to start it.
pub(super) fn is_merely_started(plan: &Plan, unit: &ResourceId) -> bool {
    let starts = |change: &Change| matches!(change, Change::Start);
    plan.step(unit).is_some_and(|step| {
        step.changes.iter().any(starts) && step.action != Action::Create && !step.writes()
    })
}
