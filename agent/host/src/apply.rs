//! Doing what a plan says.

mod changing;
mod files;
mod images;
mod pods;
mod removals;
mod starts;
mod units;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};

use kops_agent_plan::diff::{Action, Change, Kept, ObservedState, Plan, Stage, Step, Summary};
use kops_agent_plan::resource::{DesiredState, KernelModule, Kind, Resource, ResourceId};
use kops_agent_plan::unit_files::is_read_by_systemd;

pub(crate) use files::restarts_the_agent;

use changing::Changing;
use starts::Starts;
pub use starts::Waits;
pub(crate) use starts::late;

use crate::assets::{Downloads, Progress};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::observe::{Observer, boot_text};
use crate::prepare::{Prepared, find, hashes_of, prepare};
use crate::record::{Failure, Record, Superseded, written_file};
use crate::rollback::Attempt;
use crate::secrets::Secrets;
use crate::staged::{sweep, sweep_below, write_file};
use crate::stamps::{STATE, Stamp};
use crate::system::kernel::boot_file;

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Report {
    /// The resources that were dealt with, in order.
    pub applied: Vec<ResourceId>,
    /// How much it was.
    pub summary: Summary,
    /// The units whose start was asked for and that take their time; nothing of the node depends on them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub starting: Vec<String>,
    /// What was left as it is, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Kept>,
}

/// The state that a run leads to; `None` where it is no whole node's. A machine that is put right, or whose certificates are
/// renewed, stays in the one that it is in.
fn attempt(scope: Scope<'_>, desired: &DesiredState, record: &Record) -> Option<Attempt> {
    let config_hash = scope.config_hash()?;
    match (scope, &record.settled_state) {
        (Scope::Renewal { .. }, None) => None,
        (Scope::LastApplied { .. } | Scope::Renewal { .. }, Some(settled)) => {
            Some(Attempt::known(settled, config_hash))
        }
        _ => Some(Attempt::new(desired, config_hash)),
    }
}

/// How much of the machine a desired state describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// Everything that is the agent's: what it left and is not desired any more was planned to be removed, and how
    /// everything is left is recorded.
    Node {
        /// `NodeupConfigHash` of the configuration that the state follows from.
        config_hash: &'a str,
        /// The hashes of downloads that were told, by URL.
        known_hashes: &'a BTreeMap<String, String>,
        /// URLs of files of the store that the state was decided without, because they may not be read.
        without: &'a BTreeSet<String>,
    },
    /// What was last applied, again, because what is wanted now is not known or may not be applied: the same as
    /// [`Scope::Node`], and what is recorded of failures and of a change that was rolled back stays.
    LastApplied {
        /// `NodeupConfigHash` of the configuration that was last applied.
        config_hash: &'a str,
    },
    /// The certificates of a node that has converged to the configuration of this hash, and what reads them
    /// ([`kops_agent_plan::diff::renewal`]): how that is left is recorded, and nothing else is.
    Renewal {
        /// `NodeupConfigHash` of the configuration that was last applied.
        config_hash: &'a str,
    },
    /// A part, beside whatever else there is: nothing is recorded.
    Part,
}

impl<'a> Scope<'a> {
    /// What a state was decided without, where that is known of it.
    fn without(self) -> Option<&'a BTreeSet<String>> {
        match self {
            Scope::Node { without, .. } => Some(without),
            Scope::LastApplied { .. } | Scope::Renewal { .. } | Scope::Part => None,
        }
    }

    /// `NodeupConfigHash` of the configuration that the state follows from, where it is a whole node's.
    pub(crate) fn config_hash(self) -> Option<&'a str> {
        match self {
            Scope::Node { config_hash, .. }
            | Scope::LastApplied { config_hash }
            | Scope::Renewal { config_hash } => Some(config_hash),
            Scope::Part => None,
        }
    }
}

impl Host {
    /// Does what `plan` says, which [`kops_agent_plan::diff::diff`] made of `desired` and of what this
    /// host observed. Everything is checked, resolved, downloaded and verified before the first
    /// write. Dropping the future ends a run between two stages.
    ///
    /// An empty plan is worth applying too: it removes what a killed run may have left behind.
    ///
    /// # Errors
    /// The first thing that cannot be done. Whatever was done before it stays, and the next run goes
    /// on from there. Where a component of a node that worked does not come back, everything is put back as it was
    /// ([`Error::RolledBack`]), and that change is refused from then on ([`Error::FailedBefore`]). Units that fail
    /// otherwise are named in the end ([`Error::Units`]).
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
            // What was planned is out of date now.
            return Err(Error::RolledBack(Box::new(rolled_back)));
        }
        let mut record = self.record()?;
        if let Some(why) = &record.unreadable {
            progress.warned(&format!(
                "{why}; it is kept beside the new one, and what is on this machine by now is taken for the machine's own: \
                 nothing of it is removed when it is no longer wanted"
            ));
        }
        self.refuse_what_failed(plan, desired, &record, scope)?;
        let is_guarded = scope != Scope::Part && self.works(&record)?;
        if is_guarded {
            self.refuse_other_volumes(plan, desired)?;
        }
        let mut prepared = prepare(self, plan, desired, secrets, downloads, progress).await?;
        let mut loaded = BTreeSet::new();
        if is_guarded && images::changes_components(plan) {
            if let Some((_, error)) = prepared.undelivered.pop_first() {
                return Err(error);
            }
            loaded = self.load_ahead(plan, desired, &prepared, progress).await?;
        }
        let written = prepared.written();
        self.sweep(desired, &record)?;
        let mut is_unread = record.has_begun(is_read_by_systemd);
        if scope != Scope::Part && record.is_first_sight() {
            let resources = desired.iter().map(|(_, resource)| resource);
            let observed = Observer::new(self, &prepared.certificates, secrets, resources)?.all()?;
            is_unread |= self.note_baseline(&record, desired, observed)?;
        }
        let changing = self.begin_change(plan, desired, &record, &written, scope)?;
        if scope != Scope::Part && !plan.is_empty() {
            self.forget_replaced(plan, &record)?;
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
            self.settle_renewal(record, plan, desired, &written)?;
            return failures.map_or(Ok(report), Err);
        }
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
        // A state that downloads nothing is no node's, but of a unit that is installed first, say.
        if !wanted.is_empty() {
            downloads.trim_cache(&self.root, &wanted)?;
        }
        failures.map_or(Ok(report), Err)
    }

    /// Forgets with what units and static pods were started that are to be started anew, once what they read is written:
    /// one that is interrupted from here on, or does not come back, is due again, even where all that it reads is right
    /// by then.
    fn forget_starts(&self, plan: &Plan) -> Result<()> {
        let is_due = |change: &Change| matches!(change, Change::Start | Change::Restart { .. });
        plan.steps.iter().try_for_each(|step| match step.resource.kind {
            Kind::Unit if step.changes.iter().any(is_due) => {
                Stamp::Unit.put_back(&self.root, &step.resource.name, None)
            }
            Kind::File if step.starts_pod() => Stamp::Pod.put_back(&self.root, &step.resource.name, None),
            _ => Ok(()),
        })
    }

    /// Records how everything was left. A node of which a unit failed that no pod waits for works, and is to be gone
    /// back to when the next change fails.
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
            record.failure = Some(Failure { at: self.timestamp(), problem: failures.to_string() });
        }
        record.write(&self.root)
    }

    /// Records that a run failed, for `status` to tell. A record that cannot be read stays what `status` tells of.
    ///
    /// # Errors
    /// The record cannot be written, or another run is at work: the record is that run's until it ends.
    pub fn note_failure(&self, problem: &str) -> Result<()> {
        let _lock = self.lock()?;
        let mut record = self.record()?;
        // An empty one in its place would tell that nothing is known to be here: a run that settles writes the next.
        if record.unreadable.is_some() {
            return Ok(());
        }
        record.failure = Some(Failure { at: self.timestamp(), problem: problem.to_owned() });
        record.write(&self.root)
    }

    /// Records that the cluster has another configuration for machines that are made from now on, for `status` to tell.
    /// A failure of before is over where this machine has been put right since.
    ///
    /// # Errors
    /// The record cannot be written, or another run is at work.
    pub fn note_superseded(&self, by: &str, is_put_right: bool) -> Result<()> {
        let _lock = self.lock()?;
        let mut record = self.record()?;
        let is_over = is_put_right && record.failure.is_some();
        if record.superseded.as_ref().is_some_and(|superseded| superseded.by == by) && !is_over {
            return Ok(());
        }
        let since = match record.superseded.take() {
            Some(superseded) => superseded.since,
            None => self.timestamp(),
        };
        record.superseded = Some(Superseded { since, by: by.to_owned() });
        if is_over {
            record.failure = None;
        }
        record.write(&self.root)
    }

    /// Removes the beginnings of files that a killed run may have left, also of what has not been wanted since.
    fn sweep(&self, desired: &DesiredState, record: &Record) -> Result<()> {
        let desired = desired.iter().map(|(id, _)| id);
        let recorded = record.claims().map(|(id, _)| id);
        let files: BTreeSet<String> =
            desired.chain(recorded).filter_map(|id| written_file(&self.root, id)).collect();
        files.iter().try_for_each(|path| sweep(&self.root, path))?;
        sweep_below(&self.root, STATE)
    }
}

/// One run, and all that it works with.
struct Run<'a> {
    host: &'a Host,
    plan: &'a Plan,
    desired: &'a DesiredState,
    secrets: &'a dyn Secrets,
    prepared: &'a Prepared<'a>,
    progress: &'a dyn Progress,
    /// `None` where components are not waited for.
    changing: Option<Changing>,
    /// Whether a run was interrupted that had written what systemd reads.
    is_unread: bool,
    /// The images that were loaded before anything was changed.
    loaded: BTreeSet<String>,
    starts: Starts,
}

type Steps<'a> = [(&'a Step, &'a Resource)];

impl Run<'_> {
    /// Everything but removals, which come when all is well.
    async fn all(&self, report: &mut Report) -> Result<()> {
        for stage in Stage::ALL.into_iter().filter(|stage| *stage != Stage::Removals) {
            let steps: Vec<(&Step, &Resource)> = self
                .plan
                .stage(stage)
                // What is removed has nothing desired to it.
                .filter(|step| step.action != Action::Remove && !self.is_below_missing(&step.resource))
                .map(|step| Ok((step, find(self.desired, &step.resource)?)))
                .collect::<Result<_>>()?;
            if stage == Stage::Runtime {
                self.install_units()?;
            }
            self.stage(stage, &steps).await?;
            if stage == Stage::Files {
                self.drop_ins()?;
                self.host.forget_starts(self.plan)?;
            }
            report.applied.extend(self.plan.stage(stage).map(|step| step.resource.clone()));
            tokio::task::yield_now().await;
        }
        self.pull_images().await?;
        report.starting = self.collect_jobs().await?;
        for unit in &report.starting {
            self.progress.warned(&format!(
                "{unit} is still being started, and is not waited for; see `systemctl list-jobs`"
            ));
        }
        match self.starts.fatal_failures() {
            // What was kept stays so, for the next run to go on with the change or to take it back.
            Some(error) => Err(error),
            None => self.end_change().await,
        }
    }

    async fn stage(&self, stage: Stage, steps: &Steps<'_>) -> Result<()> {
        if steps.is_empty() {
            return Ok(());
        }
        match stage {
            Stage::Packages => self.packages(steps),
            Stage::Users => self.each(steps, Run::user),
            Stage::Mounts => self.volumes(steps).await,
            Stage::Files => {
                self.files(steps)?;
                for (step, _) in steps {
                    self.wait_after(step).await?;
                }
                self.ipv6_prefix(steps).await
            }
            Stage::Kernel => self.each(steps, Run::module),
            Stage::Images => self.load_images().await,
            Stage::Pods => self.pods(steps).await,
            Stage::Runtime | Stage::Services => self.units(steps).await,
            // Dealt with apart.
            Stage::Removals => Ok(()),
        }
    }

    /// What there is of some resources now, for whatever is about to be started with them.
    fn found<'r>(&'r self, resources: impl Iterator<Item = &'r Resource>) -> Result<ObservedState> {
        Observer::new(self.host, &self.prepared.certificates, self.secrets, resources)?
            .having_written(self.prepared.downloaded().collect())
            .all()
    }

    /// Asks for the addresses of this node's pods, before anything runs that gives them out.
    async fn ipv6_prefix(&self, steps: &Steps<'_>) -> Result<()> {
        let Some((step, _)) = steps.iter().find(|(step, _)| step.resource.kind == Kind::Ipv6Prefix) else {
            return Ok(());
        };
        self.progress.applying(step);
        self.host.remote.assign_ipv6_prefix().await.map_err(|reason| Error::Path {
            doing: "get",
            path: "a range of IPv6 addresses for this node's pods".into(),
            reason,
        })
    }

    fn each(&self, steps: &Steps<'_>, act: fn(&Self, &Resource) -> Result<()>) -> Result<()> {
        steps.iter().try_for_each(|(step, resource)| {
            self.progress.applying(step);
            act(self, resource)
        })
    }

    fn packages(&self, steps: &Steps<'_>) -> Result<()> {
        let mut names = Vec::new();
        for (step, resource) in steps {
            self.progress.applying(step);
            match resource {
                Resource::PackageSource(source) => {
                    let key = self.prepared.key(&source.keyring)?;
                    self.host.packages.add_source(source, key, self.progress)?;
                }
                Resource::Package(package) => names.push(package.name.as_str()),
                _ => {}
            }
        }
        if names.is_empty() {
            return Ok(());
        }
        self.host.packages.install(&names, self.progress)?;
        let installed: BTreeSet<String> = self.host.packages.installed(&names)?;
        match names.iter().find(|name| !installed.contains(**name)) {
            None => Ok(()),
            Some(name) => Err(Error::Path {
                doing: "install",
                path: format!("the package {name}"),
                reason: "the package manager succeeded, and still does not list it as installed".into(),
            }),
        }
    }

    fn user(&self, resource: &Resource) -> Result<()> {
        match resource {
            Resource::Group(group) => self.host.users.set_group(group),
            Resource::User(user) => self.host.users.set_user(user),
            _ => Ok(()),
        }
    }

    fn module(&self, resource: &Resource) -> Result<()> {
        let Resource::KernelModule(module) = resource else { return Ok(()) };
        let KernelModule { name, package } = module;
        let kernel = &self.host.kernel;
        if let Some(package) = package.as_deref().filter(|_| !kernel.has(name))
            // A mirror may no longer have the package of this very kernel.
            && let Err(error) = self.host.packages.install(&[package], self.progress)
        {
            self.progress.warned(&format!("the kernel module {name} may be missing: {error}"));
        }
        if let Some(line) = kernel.forbidden(name)? {
            self.progress.warned(&format!(
                "{line} keeps the kernel module {name} from being loaded at boot, which this node needs; remove it"
            ));
        }
        if kernel.has(name) {
            kernel.load(name)?;
        } else {
            self.progress.warned(&format!("this kernel has no module {name}; going on without it"));
        }
        let text = boot_text(&module.name);
        write_file(&self.host.root, &boot_file(&module.name), 0o644, None, text.as_bytes())
    }
}
