//! Changing a node that works: what is replaced is kept, and a change that was rolled back is refused.

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

/// How far the change of a node that works has come.
pub(super) struct Changing {
    /// `None` where nothing is changed but what was changed by others before.
    journal: Mutex<Option<Journal>>,
    pub(super) waited: Mutex<BTreeSet<ResourceId>>,
    /// The static pods that were not healthy before this run, by their manifests: the run does not wait for them.
    pub(super) unhealthy: BTreeSet<ResourceId>,
}

impl Changing {
    pub(super) fn journal(&self) -> MutexGuard<'_, Option<Journal>> {
        self.journal.lock()
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
        Ok(Some(Changing {
            journal: Mutex::new(journal),
            waited: Mutex::default(),
            unhealthy: BTreeSet::new(),
        }))
    }

    /// The static pods that `plan` starts anew and that are not healthy now, by their manifests, and why. A pod that this
    /// change has started anew already, in a run that was interrupted, is not among them. Nor is any where kubelet does not
    /// run.
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
    /// Whether the machine is a node that works: it has converged, or it runs kubelet on the first sight, or was seen to
    /// by a run that did not come to its end. Where the record of that was lost it is taken for one.
    pub(super) fn works(&self, record: &Record) -> Result<bool> {
        if !record.config_hash.is_empty() || record.was_lost || Journal::read(&self.root)?.is_some() {
            return Ok(true);
        }
        Ok(record.is_first_sight() && self.runs_kubelet()?)
    }

    /// Whether kubelet runs now, be it since a run that did not come to its end.
    ///
    /// # Errors
    /// systemd does not say.
    pub fn runs_kubelet(&self) -> Result<bool> {
        let runs = |state: &UnitState| state.running && !state.restarting;
        Ok(self.systemd.states(&[KUBELET])?.first().is_some_and(runs))
    }
}
