//! Changing a node that works: what is replaced is kept, one component is started anew at a time, and the next only
//! once that is well again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kops_agent_plan::diff::{Change, KUBELET, Plan, Stage, Step};
use kops_agent_plan::health::{self, Component};
use kops_agent_plan::resource::{DesiredState, Kind, Resource, ResourceId};

use super::starts::is_merely_started;
use super::{Run, Scope};
use crate::error::{Error, Result};
use crate::health::Expected;
use crate::host::Host;
use crate::record::Record;
use crate::rollback::{Attempt, Journal, RolledBack};
use crate::system::systemd::UnitState;

/// How far the change of a node that works has come.
pub(super) struct Changing {
    /// `None` where nothing is changed but what somebody else had changed before.
    journal: Mutex<Option<Journal>>,
    waited: Mutex<BTreeSet<ResourceId>>,
}

impl Changing {
    fn journal(&self) -> MutexGuard<'_, Option<Journal>> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Host {
    /// Refuses what was rolled back, unless nothing of it is left to do.
    pub(super) fn refuse_what_failed(
        &self,
        plan: &Plan,
        desired: &DesiredState,
        record: &Record,
        scope: Scope<'_>,
    ) -> Result<()> {
        let Scope::Node { config_hash, .. } = scope else { return Ok(()) };
        match self.refused_by(record, plan, desired, config_hash) {
            Some(failed) => Err(Error::FailedBefore(Box::new(failed))),
            None => Ok(()),
        }
    }

    fn refused_by(
        &self,
        record: &Record,
        plan: &Plan,
        desired: &DesiredState,
        config_hash: &str,
    ) -> Option<RolledBack> {
        let is_tried = self.retries_failed || plan.is_empty();
        let is_it = |failed: &&RolledBack| failed.is_of(&Attempt::new(desired, config_hash));
        record.rolled_back.as_ref().filter(|_| !is_tried).filter(is_it).cloned()
    }

    /// The rollback because of which a plan is not carried out, if there was one and something of it is left to do.
    ///
    /// # Errors
    /// What is recorded cannot be read.
    pub fn refusal(
        &self,
        plan: &Plan,
        desired: &DesiredState,
        config_hash: &str,
    ) -> Result<Option<RolledBack>> {
        Ok(self.refused_by(&self.record()?, plan, desired, config_hash))
    }

    /// Keeps what `plan` replaces, if the node works and is to be looked after.
    pub(super) fn begin_change(
        &self,
        plan: &Plan,
        desired: &DesiredState,
        record: &Record,
        written: &BTreeMap<String, String>,
        scope: Scope<'_>,
    ) -> Result<Option<Changing>> {
        let Some(config_hash) = scope.config_hash() else { return Ok(None) };
        // A machine that is no node yet has nothing to go back to.
        if !self.works(record)? || self.pace.patience.is_zero() || !health::is_awaited(desired) {
            Journal::end(&self.root)?;
            return Ok(None);
        }
        let attempt = match scope {
            Scope::Renewal { .. } => Attempt::renewal(config_hash),
            _ => Attempt::new(desired, config_hash),
        };
        let mut journal = match Journal::read(&self.root)? {
            Some(interrupted) => Some(interrupted.towards(attempt)),
            None => {
                // What a run may have left that was killed before it had a journal, or after.
                Journal::end(&self.root)?;
                (!plan.is_empty()).then(|| Journal::new(attempt))
            }
        };
        if let Some(begun) = &mut journal {
            self.keep(begun, plan, desired, record, written)?;
            if !begun.changes_anything() {
                Journal::end(&self.root)?;
                journal = None;
            }
        }
        Ok(Some(Changing { journal: Mutex::new(journal), waited: Mutex::default() }))
    }
}

impl Host {
    /// Whether the machine is a node that works: it has converged, or it runs kubelet on the first sight, or was seen to
    /// by a run that did not come to its end. Where the record of that was lost it is taken for one.
    pub(super) fn works(&self, record: &Record) -> Result<bool> {
        if !record.config_hash.is_empty() || record.was_lost || Journal::read(&self.root)?.is_some() {
            return Ok(true);
        }
        let runs = |state: &UnitState| state.running && !state.restarting;
        Ok(record.is_first_sight() && self.systemd.states(&[KUBELET])?.first().is_some_and(runs))
    }
}

impl Run<'_> {
    /// Notes that a component is about to be started anew.
    pub(super) fn note_begun(&self, component: &ResourceId) -> Result<()> {
        let Some(changing) = &self.changing else { return Ok(()) };
        match changing.journal().as_mut() {
            Some(journal) => journal.begin(&self.host.root, component),
            None => Ok(()),
        }
    }

    /// Waits until what a step has started anew is well.
    pub(super) async fn wait_after(&self, step: &Step) -> Result<()> {
        if self.changing.is_none() {
            return Ok(());
        }
        let texts = |path: &str| health::desired_text(self.desired, path);
        let Some(component) = health::after(step, &texts) else { return Ok(()) };
        // A kubelet that does not run yet brings no pod back: those are waited for in the end.
        if step.stage == Stage::Pods && starts(self.plan, KUBELET) {
            return Ok(());
        }
        self.wait_for(&component).await
    }

    async fn wait_for(&self, component: &Component) -> Result<()> {
        let Some(changing) = &self.changing else { return Ok(()) };
        let id = &component.resource;
        let before =
            changing.journal().as_ref().and_then(|journal| journal.pod_before(id).map(str::to_owned));
        self.progress.waiting(id);
        let expected = before.as_deref().map_or(Expected::Any, Expected::Other);
        self.host.wait_until_well(component, expected).await?;
        changing.waited.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
        Ok(())
    }

    /// Waits for what was begun and not waited for, as by a run that was interrupted at that; then nothing is put
    /// back any more.
    pub(super) async fn end_change(&self) -> Result<()> {
        let Some(changing) = &self.changing else { return Ok(()) };
        let begun = changing.journal().as_ref().map_or(vec![], |journal| journal.begun().to_vec());
        let texts = |path: &str| health::desired_text(self.desired, path);
        for id in begun {
            let is_waited_for = changing.waited.lock().unwrap_or_else(PoisonError::into_inner).contains(&id);
            let component = match self.desired.get(&id) {
                _ if is_waited_for => None,
                // What became of it is told by the run itself.
                Some(Resource::Unit(unit))
                    if !self.starts.is_awaited(&unit.name)
                        || self.starts.has_failed(&unit.name)
                        || self.starts.is_left(&unit.name) =>
                {
                    None
                }
                Some(Resource::Unit(unit)) if unit.running => Some(health::of_unit(&unit.name, &texts)),
                Some(Resource::File(_)) => health::of_manifest(&id.name, &texts),
                _ => None,
            };
            if let Some(component) = component {
                self.wait_for(&component).await?;
            }
        }
        if changing.journal().take().is_some() {
            Journal::end(&self.host.root)?;
        }
        Ok(())
    }

    /// The journal of what is to be put back because of this error, if anything is.
    pub(super) fn taken_back_by(&self, error: &Error) -> Option<Journal> {
        let Error::Unwell { resource, .. } = error else { return None };
        // What did not run before does not come back either, and no change is to blame.
        if resource.kind == Kind::Unit && is_merely_started(self.plan, resource) {
            return None;
        }
        self.changing.as_ref()?.journal().take()
    }
}

/// Whether a plan starts a unit that does not run.
fn starts(plan: &Plan, unit: &str) -> bool {
    let step = plan.step(&ResourceId::new(Kind::Unit, unit));
    step.is_some_and(|step| step.changes.iter().any(|change| matches!(change, Change::Start)))
}
