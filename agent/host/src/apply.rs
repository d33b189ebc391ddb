//! Applies a plan.

mod changing;
mod components;
mod files;
mod images;
mod jobs;
mod late_pods;
mod packages;
mod phases;
mod pods;
mod removals;
mod run;
mod scope;
mod starts;
mod units;
mod volumes;

use kops_agent_cluster::fleet::Next;
use kops_agent_plan::diff::{Kept, Plan, Summary};
use kops_agent_plan::resource::{DesiredState, ResourceId};
use kops_agent_spec::failure::Kind;

use phases::Change;
pub use scope::Scope;

use crate::assets::{Downloads, Progress};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::record::{Failure, Superseded};
use crate::secrets::Secrets;

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Report {
    /// The resources that the run handled, in the order of the plan's stages.
    pub applied: Vec<ResourceId>,
    pub summary: Summary,
    /// The units that are still starting. No component of the node depends on them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub starting: Vec<String>,
    /// The resources that were left unchanged, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Kept>,
}

impl Host {
    /// Applies `plan`, which [`kops_agent_plan::diff::diff`] made of `desired` and of this host's observations. Before the first write, the
    /// run checks, resolves, downloads and verifies everything. On a machine that is not yet a node, packages are installed during the
    /// downloads of images ([`kops_agent_plan::overlap`]). If the future is dropped, the run stops between two stages, but waits for a
    /// running package manager.
    ///
    /// Callers apply an empty plan, too, because this removes the leftovers of killed runs.
    ///
    /// The run ends at the first step that fails. Completed steps stay, and the next run continues with the failed step. If a component of
    /// a working node does not become healthy, the run rolls everything back ([`Error::RolledBack`]). Later runs reject this change
    /// ([`Error::FailedBefore`]). Other failed units are reported at the end of the run ([`Error::Units`]).
    pub async fn apply(
        &self,
        plan: &Plan,
        desired: &DesiredState,
        secrets: &dyn Secrets,
        downloads: &Downloads,
        progress: &dyn Progress,
        scope: Scope<'_>,
    ) -> Result<Report> {
        let _lock = self.lock()?;
        if let Some(rolled_back) = self.finish_rollback(progress).await? {
            // The rollback made the plan outdated.
            return Err(Error::RolledBack(Box::new(rolled_back)));
        }
        let record = self.record()?;
        if let Some(why) = &record.unreadable {
            progress.warned(&format!(
                "{why}; this run keeps a copy of the old record and writes a new one. kops-agent does not remove the files, \
                 units and packages that are on this machine now, even when they are no longer wanted"
            ));
        }
        let change = Change { host: self, plan, desired, secrets, progress, scope };
        let prepared = change.check(record)?.prepare(downloads).await?;
        prepared.begin().await?.change().await?.settle(downloads).await
    }

    /// Records, for `status`, that a run failed. An unreadable record stays, so that `status` still reports it. Fails if another run holds
    /// the lock, because only the holder of the lock may write the record.
    pub fn note_failure(&self, kind: Kind, problem: &str) -> Result<()> {
        let _lock = self.lock()?;
        let mut record = self.record()?;
        // An empty record in place of the unreadable record would say that the agent owns no files here. Only a run that records the final
        // state of all resources replaces an unreadable record.
        if record.unreadable.is_some() {
            return Ok(());
        }
        record.failure = Some(Failure::new(self.timestamp(), kind, problem));
        record.write(&self.root)
    }

    /// Records, for `status` and for the report to the cluster, that new machines get the configuration with the hash `by`. `next` is the
    /// change of this machine to that configuration, if this run has planned it. If this machine was repaired (`is_put_right`), removes an
    /// earlier failure from the record. Fails if another run holds the lock.
    pub fn note_superseded(&self, by: &str, next: Option<Next>, is_put_right: bool) -> Result<()> {
        let _lock = self.lock()?;
        let mut record = self.record()?;
        // Another run has already applied the configuration `by`.
        if record.config_hash == by {
            return Ok(());
        }
        let is_over = is_put_right && record.failure.is_some();
        let known = record.superseded.take();
        let is_known = known.as_ref().is_some_and(|known| known.by == by);
        if is_known && next.is_none() && !is_over {
            return Ok(());
        }
        let (since, known) = match known {
            Some(known) => (known.since, known.next.filter(|_| is_known)),
            None => (self.timestamp(), None),
        };
        record.superseded = Some(Superseded { since, by: by.to_owned(), next: next.or(known) });
        if is_over {
            record.failure = None;
        }
        record.write(&self.root)
    }

    /// Records that new machines get the same configuration as this machine, if `config_hash` is the hash of this machine's configuration.
    /// Fails if another run holds the lock.
    pub fn note_current(&self, config_hash: &str) -> Result<()> {
        if self.record()?.superseded.is_none() {
            return Ok(());
        }
        let _lock = self.lock()?;
        let mut record = self.record()?;
        if record.config_hash != config_hash {
            return Ok(());
        }
        record.superseded = None;
        record.write(&self.root)
    }
}
