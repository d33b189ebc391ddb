//! Applies a plan.

mod changing;
mod components;
mod files;
mod images;
mod jobs;
mod late_pods;
mod packages;
mod pods;
mod removals;
mod report;
mod run;
mod scope;
mod starts;
mod units;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};

use kops_agent_cluster::fleet::Next;
use kops_agent_plan::diff::{Kept, Plan, Stage};
use kops_agent_plan::late_pods::{LatePods, late_pods};
use kops_agent_plan::overlap::{self, installing};
use kops_agent_plan::resource::DesiredState;
use kops_agent_plan::timeline::Work;
use kops_agent_plan::unit_files::is_read_by_systemd;

use images::changes_components;
use packages::Installing;
pub use report::Report;
use run::Run;
pub use scope::Scope;
use scope::attempt;
use starts::Starts;

use crate::assets::{Downloads, Progress};
use crate::attempt::Attempt;
use crate::certs::Certificates;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::observe::Observer;
use crate::package_files::forget_replaced;
use crate::places::written_file;
use crate::prepare::{Preparation, hashes_of};
use crate::record::{Failure, Record, Superseded};
use crate::rollback::renewal::settle_renewal;
use crate::root::Root;
use crate::secrets::Secrets;
use crate::staged::{sweep, sweep_below};
use crate::stamps::STATE;

impl Host {
    /// Applies `plan`, which [`kops_agent_plan::diff::diff`] made of `desired` and of this host's observations.
    /// Everything is checked, resolved, downloaded and verified before the first write. On a machine that is no node
    /// yet, packages are installed during the downloads of images ([`overlap`]). Dropping the future stops the run
    /// between two stages, after a running package manager ends.
    ///
    /// An empty plan is worth applying too: it removes what a killed run left.
    ///
    /// # Errors
    /// The first step that fails. Completed steps stay, and the next run continues from there. If a component of a
    /// working node does not come back, the run rolls everything back ([`Error::RolledBack`]). Later runs refuse that
    /// change ([`Error::FailedBefore`]). Other failed units are reported at the end ([`Error::Units`]).
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
        let mut record = self.record()?;
        if let Some(why) = &record.unreadable {
            progress.warned(&format!(
                "{why}; this run keeps a copy of the old record and writes a new one. kops-agent does not remove the files, \
                 units and packages that are on this machine now, even when they are no longer wanted"
            ));
        }
        self.refuse_what_failed(plan, desired, &record, scope)?;
        let is_guarded = !scope.is_part() && self.works(&record)?;
        if is_guarded {
            self.refuse_other_volumes(plan, desired)?;
        }
        let preparation = Preparation::begin(self, plan, desired, secrets)?;
        let machine = match !scope.is_part() && !is_guarded && !self.runs_kubelet()? {
            true => overlap::Machine::NotYetANode,
            false => overlap::Machine::Node,
        };
        let begins_with_packages = installing(plan, machine) == overlap::Installing::BesideImages;
        let mut is_unread = record.has_begun(is_read_by_systemd);
        let mut prepared = if begins_with_packages {
            is_unread |= self.note_sight(&record, desired, secrets, &preparation.certificates, scope)?;
            let (installing, allow) = Installing::begin(self, plan, desired)?;
            installing.beside(preparation.finish(downloads, machine, allow, progress), progress).await?
        } else {
            preparation.finish(downloads, machine, || {}, progress).await?
        };
        let mut loaded = BTreeSet::new();
        if is_guarded && changes_components(plan) {
            if let Some((_, error)) = prepared.undelivered.pop_first() {
                return Err(error);
            }
            let _step = self.measure(Work::Other, "images ahead of the change");
            loaded = self.load_ahead(plan, desired, &prepared, progress).await?;
        }
        let written = prepared.written();
        if !begins_with_packages {
            is_unread |= self.note_sight(&record, desired, secrets, &prepared.certificates, scope)?;
        }
        let mut changing = self.begin_change(plan, desired, &record, &written, scope)?;
        if let Some(changing) = &mut changing {
            let unhealthy = self.unhealthy_pods(plan, changing).await?;
            for (pod, why) in &unhealthy {
                progress.warned(&format!(
                    "{pod} was not healthy before this run, so this run does not wait for it: {why}"
                ));
            }
            changing.unhealthy = unhealthy.into_keys().collect();
        }
        if !scope.is_part() && !plan.is_empty() {
            forget_replaced(&self.root, plan, &record)?;
            if !matches!(scope, Scope::Renewal { .. }) {
                record.note_begun(desired, scope.without());
            }
            record.claim(&self.root, plan, desired, &written)?;
            record.begun_state = attempt(scope, desired, &record).map(|attempt| attempt.digest().to_owned());
            if let Scope::LastApplied { .. } = scope {
                record.settled_state = record.begun_state.clone();
            }
            record.write(&self.root)?;
        }
        if scope == Scope::Early {
            record.claim(&self.root, plan, desired, &written)?;
            record.write_early(&self.root)?;
        }
        let starts = Starts::of(desired);
        starts.note_masked(plan);
        let run = Run {
            host: self,
            plan,
            desired,
            secrets,
            prepared: &prepared,
            progress,
            changing,
            is_unread,
            loaded,
            has_packages: begins_with_packages,
            late: match is_guarded || self.waits.api_server.is_zero() {
                true => LatePods::default(),
                false => late_pods(plan, desired),
            },
            starts,
        };
        let mut report = Report { summary: plan.summary(), kept: plan.kept.clone(), ..Report::default() };
        if let Err(error) = run.all(&mut report).await {
            return Err(match run.taken_back_by(&error) {
                Some(journal) => {
                    let rolled_back = self.roll_back(journal, Some(error.to_string()), progress).await?;
                    Error::RolledBack(Box::new(rolled_back))
                }
                None => error,
            });
        }
        if let Scope::Renewal { .. } = scope {
            let failures = run.starts.failures();
            settle_renewal(&self.root, record, plan, desired, &written)?;
            return failures.map_or(Ok(report), Err);
        }
        if scope == Scope::Early {
            record.settle_only(
                &self.root,
                plan.steps.iter().map(|step| &step.resource),
                desired,
                &written,
            )?;
            record.write_early(&self.root)?;
        }
        let _step = self.measure(Work::Other, "removals and record");
        self.register(desired, secrets, progress).await?;
        run.removals().await?;
        run.move_units()?;
        report.applied.extend(plan.stage(Stage::Removals).map(|step| step.resource.clone()));
        let failures = run.starts.failures();
        drop(run);
        drop(prepared);
        if let Some(attempt) = attempt(scope, desired, &record) {
            let is_told = matches!(scope, Scope::Node { .. })
                && (record.failure.is_some() || record.rolled_back.is_some() || record.superseded.is_some());
            let is_same = record.config_hash == attempt.config_hash()
                && record.settled_state.as_deref() == Some(attempt.digest());
            let is_settled = !is_told && !record.is_begun() && is_same;
            // A run that had nothing to do leaves the record as it is.
            if !(plan.is_empty() && plan.kept.is_empty() && is_settled) {
                if let Scope::Node { known_hashes, .. } = scope {
                    record.known_hashes = known_hashes.clone();
                    record.failure = None;
                    record.rolled_back = None;
                    record.renewal_failure = None;
                    record.superseded = None;
                }
                record.note_settled(desired, scope.without());
                self.settle(record, desired, &written, &attempt, &plan.kept, failures.as_ref())?;
            }
        }
        let wanted = hashes_of(desired);
        // A run of scope `Part` does not know what the rest of the node downloads.
        if !scope.is_part() && !wanted.is_empty() {
            downloads.trim_cache(&self.root, &wanted)?;
        }
        failures.map_or(Ok(report), Err)
    }

    /// Removes what a killed run left. On the first sight of a machine, records its current state. Returns whether
    /// systemd has yet to read a unit's file.
    fn note_sight(
        &self,
        record: &Record,
        desired: &DesiredState,
        secrets: &dyn Secrets,
        certificates: &Certificates<'_>,
        scope: Scope<'_>,
    ) -> Result<bool> {
        sweep_all(&self.root, desired, record)?;
        if scope.is_part() || !record.is_first_sight() {
            return Ok(false);
        }
        let resources = desired.iter().map(|(_, resource)| resource);
        let observed = Observer::new(self, certificates, secrets, resources)?.all()?;
        self.note_baseline(record, desired, observed)
    }

    /// Records the final state of all resources. A node works even if a unit failed that no pod waits for. If the next
    /// change fails, it rolls back to that node.
    fn settle(
        &self,
        mut record: Record,
        desired: &DesiredState,
        written: &BTreeMap<String, String>,
        attempt: &Attempt,
        kept: &[Kept],
        failures: Option<&Error>,
    ) -> Result<()> {
        record.settle_keeping(&self.root, desired, written, kept)?;
        let is_new = record.config_hash != attempt.config_hash();
        record.converged_since = match failures {
            None if is_new || record.converged_since.is_none() => Some(self.timestamp()),
            Some(_) if is_new => None,
            _ => record.converged_since,
        };
        record.config_hash = attempt.config_hash().to_owned();
        record.settled_state = Some(attempt.digest().to_owned());
        record.begun_state = None;
        if let Some(failures) = failures {
            record.failure = Some(Failure::new(self.timestamp(), &failures.to_string()));
        }
        record.write(&self.root)
    }

    /// Records, for `status`, that a run failed. An unreadable record stays, so that `status` still reports it.
    ///
    /// # Errors
    /// The record cannot be written, or another run holds the lock. The record belongs to that run until it ends.
    pub fn note_failure(&self, problem: &str) -> Result<()> {
        let _lock = self.lock()?;
        let mut record = self.record()?;
        // An empty record in its place would say that the agent left nothing here. Only a run that settles replaces it.
        if record.unreadable.is_some() {
            return Ok(());
        }
        record.failure = Some(Failure::new(self.timestamp(), problem));
        record.write(&self.root)
    }

    /// Records, for `status` and for the report to the cluster, that new machines get another configuration, and the change
    /// to it if this run has planned it. If this machine was repaired since, an earlier failure is over.
    ///
    /// # Errors
    /// The record cannot be written, or another run holds the lock.
    pub fn note_superseded(&self, by: &str, next: Option<Next>, is_put_right: bool) -> Result<()> {
        let _lock = self.lock()?;
        let mut record = self.record()?;
        // Another run has taken that configuration meanwhile.
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

    /// Records that new machines get this machine's configuration, if that is the one with this hash.
    ///
    /// # Errors
    /// The record cannot be written, or another run holds the lock.
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

/// Removes temporary files that a killed run left. This includes files of resources that are no longer desired.
fn sweep_all(root: &Root, desired: &DesiredState, record: &Record) -> Result<()> {
    let desired = desired.iter().map(|(id, _)| id);
    let recorded = record.claims().map(|(id, _)| id);
    let files: BTreeSet<String> = desired.chain(recorded).filter_map(|id| written_file(root, id)).collect();
    files.iter().try_for_each(|path| sweep(root, path))?;
    sweep_below(root, STATE)
}
