//! Rolls a change back: restores everything that a run replaced, and restarts the units and pods that the run
//! restarted.
//!
//! Files come first, then the container runtime, other units and kubelet. Static pods come last, one after another,
//! because only a healthy kubelet restarts them.

pub(crate) mod journal;
mod keeping;
pub(crate) mod renewal;
mod restarting;
pub(crate) mod restoring;

use kops_agent_plan::health;
use kops_agent_plan::resource::{Kind, ResourceId};
use kops_agent_spec::failure;

use crate::applied::shred_begun;
use crate::assets::Progress;
use crate::error::{Error, Result};
use crate::health_wait::Expected;
use crate::host::Host;
use crate::places::present_texts;
use crate::record::Failure;
use crate::rolled_back::RolledBack;
use crate::stamps::Stamp;
use crate::system::pods::end_containers_of;
use renewal::record_renewal_rolled_back;
use restoring::repeat_commands;
use restoring::restore_resources;
use restoring::restore_stamps;

pub(crate) use journal::Journal;
pub use renewal::Renewing;

impl Host {
    /// Finishes an interrupted rollback. Must be called before the machine is observed.
    pub async fn finish_rollback(&self, progress: &dyn Progress) -> Result<Option<RolledBack>> {
        let _lock = self.lock()?;
        match Journal::read(&self.root)? {
            Some(journal) if journal.is_rolling_back() => {
                self.roll_back(journal, None, progress).await.map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Whether an earlier run was interrupted while it rolled back a change.
    pub fn is_rolling_back(&self) -> Result<bool> {
        Ok(Journal::read(&self.root)?.is_some_and(|journal| journal.is_rolling_back()))
    }

    /// Rolls a change back. `why` is the cause of the rollback, unless the journal already contains a cause.
    pub(crate) async fn roll_back(
        &self,
        mut journal: Journal,
        why: Option<String>,
        progress: &dyn Progress,
    ) -> Result<RolledBack> {
        if let Some(why) = why {
            progress.warned(&format!("{why}; rolling back"));
            journal.taken_back = Some(why);
            journal.write(&self.root)?;
        }
        let is_pod = |id: &ResourceId| id.kind == Kind::File && health::is_manifest(&id.name);
        let mut still_wrong = Vec::new();
        self.restore_units(&journal, &mut still_wrong).await?;
        restore_resources(&self.root, &journal, |id| !is_pod(id), &mut still_wrong)?;
        self.restore_volumes(&journal, &mut still_wrong)?;
        note(self.systemd.reload(), &mut still_wrong)?;
        repeat_commands(&*self.commands, &journal, progress, &mut still_wrong)?;
        let not_restarted = self.restart_units(&journal, progress, &mut still_wrong).await?;
        let mut pods: Vec<&ResourceId> = journal.kept.keys().filter(|id| is_pod(id)).collect();
        pods.sort_by_key(|id| health::rank(&id.name));
        for pod in pods {
            restore_resources(&self.root, &journal, |id| id == pod, &mut still_wrong)?;
            if journal.begun.contains(pod) {
                progress.waiting(pod);
                if journal.restarts_pod(pod) {
                    note(
                        end_containers_of(&*self.pods, &pod.name, &present_texts(&self.root)),
                        &mut still_wrong,
                    )?;
                }
                self.wait_for_pod_of_before(&journal, pod, &mut still_wrong).await?;
            }
        }
        restore_stamps(&self.root, &journal)?;
        // A unit that did not restart may still run the changed version. Remove the record of its last start (its stamp), so that the next
        // run restarts the unit.
        for unit in &not_restarted {
            Stamp::Unit.put_back(&self.root, unit, None)?;
        }
        self.record_rollback(&journal, still_wrong)
    }

    async fn wait_for_pod_of_before(
        &self,
        journal: &Journal,
        pod: &ResourceId,
        still_wrong: &mut Vec<String>,
    ) -> Result<()> {
        let Some(component) = health::of_manifest(&pod.name, &present_texts(&self.root)) else {
            return Ok(());
        };
        let expected = journal.pod_before(pod).map_or(Expected::Any, Expected::Same);
        note(self.wait_until_healthy(&component, expected).await, still_wrong)
    }

    fn record_rollback(&self, journal: &Journal, still_wrong: Vec<String>) -> Result<RolledBack> {
        let mut record = self.record()?;
        let rolled_back = RolledBack {
            at: self.timestamp(),
            config_hash: journal.attempt.config_hash.clone(),
            back_to: record.config_hash.clone(),
            problem: journal.taken_back.clone().unwrap_or_default(),
            still_wrong,
            desired: journal.attempt.desired.clone(),
        };
        record.unclaim();
        shred_begun(&self.root)?;
        if journal.attempt.is_renewal() {
            return record_renewal_rolled_back(&self.root, record, rolled_back);
        }
        record.failure =
            Some(Failure::new(rolled_back.at.clone(), failure::Kind::RolledBack, &rolled_back.to_string()));
        // A failed repair of the last good state does not replace the record of a change that was rejected earlier. So that change stays
        // rejected, and every run retries the repair.
        let is_of_last_good = record.is_settled_with(&journal.attempt);
        if record.rolled_back.is_none() || !is_of_last_good {
            record.rolled_back = Some(rolled_back.clone());
        }
        record.write(&self.root)?;
        Journal::end(&self.root)?;
        Ok(rolled_back)
    }
}

/// Adds the error of an unhealthy or failed component to `still_wrong`, so that the rollback of other components continues.
fn note(outcome: Result<()>, still_wrong: &mut Vec<String>) -> Result<()> {
    match outcome {
        Err(error)
            if error.is_refusal() || matches!(error, Error::Unhealthy { .. } | Error::Unasked { .. }) =>
        {
            still_wrong.push(error.to_string());
            Ok(())
        }
        other => other,
    }
}
