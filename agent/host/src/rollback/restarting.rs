//! Restarts the units that a change restarted or stopped. Every wait has a timeout, and kubelet restarts even if
//! other units fail. So a unit that is slow or waits for kubelet does not keep the node down.

use std::collections::BTreeSet;
use std::time::Duration;

use kops_agent_plan::diff::{CONTAINER_RUNTIME, KUBELET, awaited_units};
use kops_agent_plan::health;
use kops_agent_plan::resource::{DesiredState, File, Kind, ResourceId, Unit};
use kops_agent_plan::unit_files::drop_in_of;
use tokio::time::{Instant, timeout, timeout_at};

use super::journal::Journal;
use super::note;
use crate::assets::Progress;
use crate::error::{Error, Result};
use crate::health_wait::Expected;
use crate::host::Host;
use crate::places::present_texts;
use crate::places::unit_path;
use crate::system::systemd::Systemd;
use crate::system::systemd::{Act, Job};
use crate::waits::late;

impl Host {
    /// Restarts, for a rollback, each unit that the change has restarted or stopped. Returns the units that may still run the changed
    /// version.
    pub(super) async fn restart_units(
        &self,
        journal: &Journal,
        progress: &dyn Progress,
        still_wrong: &mut Vec<String>,
    ) -> Result<Vec<String>> {
        let awaited = self.awaited_on_disk(journal)?;
        let mut not_restarted = Vec::new();
        let mut left: Vec<(&str, Job)> = Vec::new();
        let mut limit = self.waits.awaited;
        for unit in units_in_order(journal) {
            let name = unit.name.as_str();
            progress.waiting(unit);
            let job = self.systemd.begin(Act::Restart, name);
            if !awaited.contains(name) {
                left.push((name, job));
                continue;
            }
            let component = health::of_unit(name, &present_texts(&self.root));
            let waited = match timeout(limit, job).await {
                Ok(Ok(())) => self.wait_until_healthy(&component, Expected::Any).await,
                Ok(Err(error)) if error.is_refusal() => Err(self.unhealthy(&component, &error.to_string())),
                Ok(Err(error)) => Err(error),
                Err(_) => {
                    let error = late(Act::Restart, name, limit);
                    // systemd queues the remaining units after this job, so use the short timeout for them.
                    limit = self.waits.others;
                    note_not_restarted(&*self.systemd, name, &mut not_restarted)?;
                    Err(error)
                }
            };
            note(waited, still_wrong)?;
        }
        let until = Instant::now() + self.waits.others;
        for (name, job) in left {
            match timeout_at(until, job).await {
                Ok(outcome) => note(outcome, still_wrong)?,
                Err(_) => note_not_restarted(&*self.systemd, name, &mut not_restarted)?,
            }
        }
        Ok(not_restarted)
    }

    /// Stops a unit. Uses the short timeout (`Waits::others`), which applies to units that pods do not wait for.
    pub(super) async fn stop_in_time(&self, unit: &str) -> Result<()> {
        let limit: Duration = self.waits.others;
        match timeout(limit, self.systemd.begin(Act::Stop, unit)).await {
            Ok(outcome) => outcome,
            Err(_) => Err::<(), Error>(late(Act::Stop, unit, limit)),
        }
    }

    /// The units for which pods wait, according to the current unit files.
    fn awaited_on_disk(&self, journal: &Journal) -> Result<BTreeSet<String>> {
        let record = self.record()?;
        let ids: BTreeSet<&ResourceId> =
            record.claims().map(|(id, _)| id).chain(journal.kept.keys()).collect();
        let text = present_texts(&self.root);
        let mut state = DesiredState::default();
        for id in ids {
            if id.kind == Kind::Unit {
                state.add(match text(&unit_path(&self.root, &id.name)) {
                    Some(text) => Unit::new(id.name.as_str(), text),
                    None => Unit::existing(id.name.as_str()),
                });
            } else if let Some(text) = drop_in_of(id).and_then(|_| text(&id.name)) {
                state.add(File::text(id.name.as_str(), text));
            }
        }
        Ok(awaited_units(&state))
    }
}

fn note_not_restarted(systemd: &dyn Systemd, unit: &str, not_restarted: &mut Vec<String>) -> Result<()> {
    // A unit that is still starting counts as restarted, because it reads the restored files.
    if !systemd.is_starting(unit)? {
        not_restarted.push(unit.to_owned());
    }
    Ok(())
}

/// The units that ran before the change and that the change restarted. The container runtime comes first, and kubelet last.
fn units_in_order(journal: &Journal) -> Vec<&ResourceId> {
    let ran =
        |id: &&ResourceId| journal.kept.get(*id).and_then(|kept| kept.unit).is_some_and(|unit| unit.running);
    let mut units: Vec<&ResourceId> =
        journal.begun.iter().filter(|id| id.kind == Kind::Unit).filter(ran).collect();
    units.sort_by_key(|id| match id.name.as_str() {
        CONTAINER_RUNTIME => 0,
        KUBELET => 2,
        _ => 1,
    });
    units
}
