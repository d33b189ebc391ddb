//! Changes of a working node. Replaced files are backed up, and a change that was rolled back is rejected.

use std::collections::{BTreeMap, BTreeSet};

use kops_agent_plan::diff::{Action, KUBELET, Plan, Stage};
use kops_agent_plan::health;
use kops_agent_plan::resource::{DesiredState, ResourceId};
use parking_lot::{Mutex, MutexGuard};

use super::scope::Scope;
use crate::attempt::Attempt;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::places::present_texts;
use crate::record::Record;
use crate::rollback::Journal;
use crate::rolled_back::RolledBack;
use crate::system::systemd::UnitState;

/// The progress of a change of a working node.
pub(super) struct Changing {
    /// The journal of the change; `None` if a rollback would have nothing to restore.
    journal: Mutex<Option<Journal>>,
    pub(super) waited: Mutex<BTreeSet<ResourceId>>,
    /// The manifests of the static pods that were unhealthy before this run. The run does not wait for these pods.
    pub(super) unhealthy: BTreeSet<ResourceId>,
}

impl Changing {
    pub(super) fn journal(&self) -> MutexGuard<'_, Option<Journal>> {
        self.journal.lock()
    }
}

impl Host {
    /// Rejects a state that was rolled back earlier, unless the plan is empty.
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

    /// The earlier rollback that forbids this plan. `None` without such a rollback, or if the plan is empty.
    pub fn refusal(
        &self,
        plan: &Plan,
        desired: &DesiredState,
        config_hash: &str,
    ) -> Result<Option<RolledBack>> {
        Ok(self.refused_by(&self.record()?, plan, desired, config_hash))
    }

    /// Backs up all resources that `plan` replaces. `None` if the scope covers only a part of the machine, if the machine is not a working
    /// node, or if no component is checked for health.
    pub(super) fn begin_change(
        &self,
        plan: &Plan,
        desired: &DesiredState,
        record: &Record,
        written: &BTreeMap<String, String>,
        scope: Scope<'_>,
    ) -> Result<Option<Changing>> {
        let Some(config_hash) = scope.config_hash() else { return Ok(None) };
        // Three cases need no journal: a new machine has no earlier state to restore, the health timeout is zero, or the run
        // waits for no component.
        if !self.works(record)? || self.health_timings.timeout.is_zero() || !health::is_awaited(desired) {
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
                // A killed run may have left backups without a journal. This call removes the backups.
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
        Ok(Some(Changing {
            journal: Mutex::new(journal),
            waited: Mutex::default(),
            unhealthy: BTreeSet::new(),
        }))
    }

    /// The static pods that `plan` restarts and that are already unhealthy, by manifest, with the reason. A pod does not count if an
    /// interrupted run of this change has already restarted it. If kubelet does not run, the result is empty.
    pub(super) async fn unhealthy_pods(
        &self,
        plan: &Plan,
        changing: &Changing,
    ) -> Result<BTreeMap<ResourceId, String>> {
        let mut unhealthy = BTreeMap::new();
        if !self.runs_kubelet()? {
            return Ok(unhealthy);
        }
        let begun = changing.journal().as_ref().map_or(vec![], |journal| journal.begun().to_vec());
        let started =
            plan.stage(Stage::Pods).filter(|step| step.starts_pod() && step.action != Action::Create);
        for step in started.filter(|step| !begun.contains(&step.resource)) {
            let texts = present_texts(&self.root);
            if let Some(component) = health::of_manifest(&step.resource.name, &texts)
                && let Some(why) = self.why_unhealthy(&component).await?
            {
                unhealthy.insert(step.resource.clone(), why);
            }
        }
        Ok(unhealthy)
    }
}

impl Host {
    /// Whether the machine is a working node. True if a run has converged, a change was interrupted, or the record was lost. Also true if
    /// kubelet runs although no run has recorded a resource on this machine. This rule ignores recorded units that were started before the
    /// node's other resources were known.
    pub(super) fn works(&self, record: &Record) -> Result<bool> {
        if !record.config_hash.is_empty() || record.was_lost || Journal::read(&self.root)?.is_some() {
            return Ok(true);
        }
        Ok(record.is_first_sight() && self.runs_kubelet()?)
    }

    /// Whether kubelet runs now. True also if an unfinished run started it.
    pub fn runs_kubelet(&self) -> Result<bool> {
        Ok(self.runs(KUBELET)? == Some(true))
    }

    /// Whether a unit runs now. `None` while systemd waits before it restarts the unit.
    pub fn runs(&self, unit: &str) -> Result<Option<bool>> {
        Ok(self.systemd.states(&[unit])?.first().map_or(Some(false), UnitState::runs))
    }
}
