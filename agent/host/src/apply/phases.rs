//! The phases of a run. Each phase consumes the phase before it, so the compiler enforces their order: a change is
//! checked before anything is downloaded, downloaded and verified before anything is written, and applied before it
//! counts as the node's state.

use std::collections::{BTreeMap, BTreeSet};

use kops_agent_plan::diff::{Plan, Stage};
use kops_agent_plan::late_pods::{LatePods, late_pods};
use kops_agent_plan::overlap::{self, installing};
use kops_agent_plan::resource::DesiredState;
use kops_agent_plan::timeline::Work;
use kops_agent_plan::unit_files::is_read_by_systemd;
use kops_agent_spec::failure::Failing;

use super::Report;
use super::images::changes_components;
use super::packages::Installing;
use super::run::Run;
use super::scope::{Scope, attempt};
use super::starts::Starts;
use crate::assets::{Downloads, Progress};
use crate::attempt::Attempt;
use crate::certs::Certificates;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::observe::Observer;
use crate::package_files::forget_replaced;
use crate::places::written_file;
use crate::prepare::{Inputs, Preparation, hashes_of};
use crate::record::{Failure, Record};
use crate::rollback::renewal::settle_renewal;
use crate::root::Root;
use crate::secrets::Secrets;
use crate::staged::{sweep, sweep_below};
use crate::stamps::STATE;

/// A plan, and the inputs that all phases read.
#[derive(Clone, Copy)]
pub(super) struct Change<'a> {
    pub(super) host: &'a Host,
    pub(super) plan: &'a Plan,
    pub(super) desired: &'a DesiredState,
    pub(super) secrets: &'a dyn Secrets,
    pub(super) progress: &'a dyn Progress,
    pub(super) scope: Scope<'a>,
}

/// A change that the checks allow. Nothing has been downloaded or written.
pub(super) struct Checked<'a> {
    change: Change<'a>,
    record: Record,
    preparation: Preparation<'a>,
    /// Whether the machine is a working node.
    is_guarded: bool,
}

/// A change whose inputs are all downloaded and verified. The machine is still unchanged. The only exception: on a machine that is not yet
/// a node, the packages may already be installed.
pub(super) struct Prepared<'a> {
    change: Change<'a>,
    record: Record,
    inputs: Inputs<'a>,
    is_guarded: bool,
    has_packages: bool,
    /// Whether systemd has not yet read a changed unit file.
    is_unread: bool,
    /// The names of the images that `load_ahead` has already loaded.
    loaded: BTreeSet<String>,
}

/// A change that has begun. The record contains the change, and everything that the change replaces is backed up.
pub(super) struct Begun<'a> {
    change: Change<'a>,
    record: Record,
    /// The hash of each written file, by path.
    written: BTreeMap<String, String>,
    run: Run<'a>,
}

/// A change with only the removals left to do. The node is healthy.
pub(super) struct Changed<'a> {
    begun: Begun<'a>,
    report: Report,
}

impl<'a> Change<'a> {
    pub(super) fn check(self, record: Record) -> Result<Checked<'a>> {
        let Change { host, plan, desired, secrets, scope, .. } = self;
        host.refuse_what_failed(plan, desired, &record, scope)?;
        let is_guarded = !scope.is_part() && host.works(&record)?;
        if is_guarded {
            host.refuse_other_volumes(plan, desired)?;
        }
        let preparation = Preparation::begin(host, plan, desired, secrets)?;
        Ok(Checked { change: self, record, preparation, is_guarded })
    }

    /// Removes the leftovers of a killed run. Records the current state of the machine, unless a run has already recorded resources. Units
    /// that were started before the node's other resources were known do not count as recorded. Returns true if systemd still has to
    /// reload the files of a desired unit.
    fn note_sight(self, record: &Record, certificates: &Certificates<'_>) -> Result<bool> {
        let Change { host, desired, secrets, scope, .. } = self;
        sweep_all(&host.root, desired, record)?;
        if scope.is_part() || !record.is_first_sight() {
            return Ok(false);
        }
        let resources = desired.iter().map(|(_, resource)| resource);
        let observed = Observer::new(host, certificates, secrets, resources)?.all()?;
        host.note_baseline(record, desired, observed)
    }
}

impl<'a> Checked<'a> {
    /// Downloads and verifies all inputs.
    pub(super) async fn prepare(self, downloads: &Downloads) -> Result<Prepared<'a>> {
        let Checked { change, record, preparation, is_guarded } = self;
        let Change { host, plan, desired, progress, scope, .. } = change;
        let machine = match !scope.is_part() && !is_guarded && !host.runs_kubelet()? {
            true => overlap::Machine::NotYetANode,
            false => overlap::Machine::Node,
        };
        let has_packages = installing(plan, machine) == overlap::Installing::BesideImages;
        let mut is_unread = record.has_begun(is_read_by_systemd);
        let mut inputs = if has_packages {
            is_unread |= change.note_sight(&record, &preparation.certificates)?;
            let (installing, allow) = Installing::begin(host, plan, desired)?;
            installing.beside(preparation.finish(downloads, machine, allow, progress), progress).await?
        } else {
            preparation.finish(downloads, machine, || {}, progress).await?
        };
        let mut loaded = BTreeSet::new();
        if is_guarded && changes_components(plan) {
            if let Some((_, error)) = inputs.undelivered.pop_first() {
                return Err(error);
            }
            let _step = host.measure(Work::Other, "images ahead of the change");
            loaded = host.load_ahead(plan, desired, &inputs, progress).await?;
        }
        if !has_packages {
            is_unread |= change.note_sight(&record, &inputs.certificates)?;
        }
        Ok(Prepared { change, record, inputs, is_guarded, has_packages, is_unread, loaded })
    }
}

impl<'a> Prepared<'a> {
    /// Backs up everything that the change replaces, and records that the change has begun.
    pub(super) async fn begin(self) -> Result<Begun<'a>> {
        let Prepared { change, mut record, inputs, is_guarded, has_packages, is_unread, loaded } = self;
        let Change { host, plan, desired, secrets, progress, scope } = change;
        let written = inputs.written();
        let mut changing = host.begin_change(plan, desired, &record, &written, scope)?;
        if let Some(changing) = &mut changing {
            let unhealthy = host.unhealthy_pods(plan, changing).await?;
            for (pod, why) in &unhealthy {
                progress.warned(&format!(
                    "{pod} was not healthy before this run: {why}. So this run does not wait for it"
                ));
            }
            changing.unhealthy = unhealthy.into_keys().collect();
        }
        if !scope.is_part() && !plan.is_empty() {
            forget_replaced(&host.root, plan, &record)?;
            if !matches!(scope, Scope::Renewal { .. }) {
                record.note_begun(desired, scope.without());
            }
            record.claim(&host.root, plan, desired, &written)?;
            record.begun_state = attempt(scope, desired, &record).map(|attempt| attempt.digest().to_owned());
            if let Scope::LastApplied { .. } = scope {
                record.settled_state = record.begun_state.clone();
            }
            record.write(&host.root)?;
        }
        if scope == Scope::Early {
            record.claim(&host.root, plan, desired, &written)?;
            record.write_early(&host.root)?;
        }
        let starts = Starts::new(desired);
        starts.note_masked(plan);
        let late = match is_guarded || host.waits.api_server.is_zero() {
            true => LatePods::default(),
            false => late_pods(plan, desired),
        };
        let run = Run {
            host,
            plan,
            desired,
            secrets,
            inputs,
            progress,
            changing,
            is_unread,
            loaded,
            has_packages,
            late,
            starts,
        };
        Ok(Begun { change, record, written, run })
    }
}

impl<'a> Begun<'a> {
    /// Applies all stages except removals. If a step fails and requires a rollback, rolls the change back and returns
    /// [`Error::RolledBack`].
    pub(super) async fn change(self) -> Result<Changed<'a>> {
        let Change { host, plan, progress, .. } = self.change;
        let mut report = Report { summary: plan.summary(), kept: plan.kept.clone(), ..Report::default() };
        if let Err(error) = self.run.all(&mut report).await {
            return Err(match self.run.journal_to_roll_back(&error) {
                Some(journal) => {
                    let rolled_back = host.roll_back(journal, Some(error.to_string()), progress).await?;
                    Error::RolledBack(Box::new(rolled_back))
                }
                None => error,
            });
        }
        Ok(Changed { begun: self, report })
    }
}

impl Changed<'_> {
    /// Removes unwanted resources, and records the node's new state. At the end, fails if the run had failures that did not stop it.
    pub(super) async fn settle(self, downloads: &Downloads) -> Result<Report> {
        let Changed { begun: Begun { change, mut record, written, run }, mut report } = self;
        let Change { host, plan, desired, secrets, progress, scope } = change;
        if let Scope::Renewal { .. } = scope {
            let failures = run.starts.failures();
            settle_renewal(&host.root, record, plan, desired, &written)?;
            return failures.map_or(Ok(report), Err);
        }
        if scope == Scope::Early {
            record.settle_only(
                &host.root,
                plan.steps.iter().map(|step| &step.resource),
                desired,
                &written,
            )?;
            record.write_early(&host.root)?;
        }
        let _step = host.measure(Work::Other, "removals and record");
        host.register(desired, secrets, progress).await?;
        run.removals().await?;
        run.move_units()?;
        report.applied.extend(plan.stage(Stage::Removals).map(|step| step.resource.clone()));
        let failures = run.starts.failures();
        drop(run);
        if let Some(attempt) = attempt(scope, desired, &record) {
            settle(change, record, &written, &attempt, failures.as_ref())?;
        }
        let wanted = hashes_of(desired);
        // A run of scope `Part` does not know which downloads the rest of the node needs.
        if !scope.is_part() && !wanted.is_empty() {
            downloads.trim_cache(&host.root, &wanted)?;
        }
        failures.map_or(Ok(report), Err)
    }
}

/// Records the final state of all resources. The rollback of a later change restores this state. If the run had nothing to do, the
/// record stays unchanged. Some failures do not stop a run, such as the failure of a unit that no pod waits for. After such a failure, the
/// record contains both the state and the failure.
fn settle(
    change: Change<'_>,
    mut record: Record,
    written: &BTreeMap<String, String>,
    attempt: &Attempt,
    failures: Option<&Error>,
) -> Result<()> {
    let Change { host, plan, desired, scope, .. } = change;
    let is_told = matches!(scope, Scope::Node { .. })
        && (record.failure.is_some() || record.rolled_back.is_some() || record.superseded.is_some());
    let is_same = record.config_hash == attempt.config_hash()
        && record.settled_state.as_deref() == Some(attempt.digest());
    if plan.is_empty() && plan.kept.is_empty() && is_same && !is_told && !record.is_begun() {
        return Ok(());
    }
    if let Scope::Node { known_hashes, .. } = scope {
        record.known_hashes = known_hashes.clone();
        record.failure = None;
        record.rolled_back = None;
        record.renewal_failure = None;
        record.superseded = None;
    }
    record.note_settled(desired, scope.without());
    record.settle_keeping(&host.root, desired, written, &plan.kept)?;
    let is_new = record.config_hash != attempt.config_hash();
    record.converged_since = match failures {
        None if is_new || record.converged_since.is_none() => Some(host.timestamp()),
        Some(_) if is_new => None,
        _ => record.converged_since,
    };
    record.config_hash = attempt.config_hash().to_owned();
    record.settled_state = Some(attempt.digest().to_owned());
    record.begun_state = None;
    if let Some(failures) = failures {
        record.failure = Some(Failure::new(host.timestamp(), failures.kind(), &failures.to_string()));
    }
    record.write(&host.root)
}

/// Removes the temporary files of killed runs, also for resources that are no longer desired.
fn sweep_all(root: &Root, desired: &DesiredState, record: &Record) -> Result<()> {
    let desired = desired.iter().map(|(id, _)| id);
    let recorded = record.claims().map(|(id, _)| id);
    let files: BTreeSet<String> = desired.chain(recorded).filter_map(|id| written_file(root, id)).collect();
    files.iter().try_for_each(|path| sweep(root, path))?;
    sweep_below(root, STATE)
}
