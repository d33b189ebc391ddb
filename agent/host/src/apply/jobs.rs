//! Requests jobs from systemd, and waits for the jobs that others depend on.

use kops_agent_plan::resource::Unit;
use kops_agent_plan::timeline::Work;
use tokio::time::{Instant, timeout, timeout_at};

use super::run::Run;
use super::starts::UnderWay;
use crate::error::Result;
use crate::host::Host;
use crate::stamps::Stamp;
use crate::system::systemd::Act;
use crate::waits::{Waits, late};

impl Run<'_> {
    /// Requests a systemd job and waits until it ends. `digest` identifies the files that the unit reads.
    pub(super) async fn wait_for_job(&self, act: Act, unit: &str, digest: Option<&str>) -> Result<()> {
        let Waits { awaited, others, .. } = self.host.waits;
        let _step = self.host.measure(Work::Units, format!("{} {unit}", act.name()));
        let limit = if self.starts.state().is_late { others } else { awaited };
        match timeout(limit, self.host.systemd.begin(act, unit)).await {
            Ok(outcome) => outcome,
            Err(_) => {
                self.starts.state().is_late = true;
                self.host.note_begun_start(act, unit, digest)?;
                Err(late(act, unit, limit))
            }
        }
    }

    /// Whether the run must not wait for a job, because the unit waits for the end of this run. The unit may wait directly, or through
    /// another unit that must start first.
    pub(super) fn has_to_be_left(&self, act: Act, unit: &str) -> bool {
        if act == Act::Stop {
            return false;
        }
        let left = self.starts.state().left.clone();
        let is_left = self.host.systemd.waits_for_this_run(unit, &left).unwrap_or_else(|error| {
            log::debug!(
                "cannot tell whether {unit} waits for this run, so this run waits for {unit}: {error}"
            );
            false
        });
        if is_left {
            self.starts.state().left.insert(unit.to_owned());
        }
        is_left
    }

    /// Requests a systemd job without waiting. [`Run::collect_jobs`] collects the job's result.
    pub(super) fn leave_job(&self, act: Act, unit: &Unit, digest: Option<String>) {
        let job = self.host.systemd.begin(act, &unit.name);
        self.starts.state().under_way.push(UnderWay { unit: unit.name.clone(), act, digest, job });
    }

    /// Waits a short time for the jobs that were requested without waiting. Records which units failed. Returns the units whose jobs are
    /// still running. A failed unit is no error.
    pub(super) async fn collect_jobs(&self) -> Result<Vec<String>> {
        let until = Instant::now() + self.host.waits.others;
        let under_way = std::mem::take(&mut self.starts.state().under_way);
        let _step = (!under_way.is_empty()).then(|| self.host.measure(Work::Units, "other units"));
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
    /// Records, after the start of a unit, the digest of the files that the unit read. Also records that a run-once
    /// unit ran in this boot.
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

    /// Records the start of a unit whose job has not ended. Records nothing if the restart may still be queued: the old process then
    /// continues, and the restart stays due.
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
