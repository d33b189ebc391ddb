//! Doing what a plan says.

mod changing;
mod files;
mod pods;
mod removals;
mod starts;
mod units;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read};
use std::sync::Arc;

use flate2::bufread::MultiGzDecoder;
use kops_agent_plan::diff::{
    Action, CONTAINER_RUNTIME, Change, Kept, ObservedState, Plan, Stage, Step, Summary,
};
use kops_agent_plan::resource::{DesiredState, Image, KernelModule, Kind, Mount, Resource, ResourceId};
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
use crate::secrets::Secrets;
use crate::staged::{sweep, sweep_below, write_file};
use crate::stamps::{STATE, Stamp};
use crate::system::apart::apart;
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
    /// A part, beside whatever else there is: nothing is recorded.
    Part,
}

impl<'a> Scope<'a> {
    /// What a state was decided without, where that is known of it.
    fn without(self) -> Option<&'a BTreeSet<String>> {
        match self {
            Scope::Node { without, .. } => Some(without),
            Scope::LastApplied { .. } | Scope::Part => None,
        }
    }

    /// `NodeupConfigHash` of the configuration that the state follows from, where it is a whole node's.
    pub(crate) fn config_hash(self) -> Option<&'a str> {
        match self {
            Scope::Node { config_hash, .. } | Scope::LastApplied { config_hash } => Some(config_hash),
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
        let prepared = prepare(self, plan, desired, secrets, downloads, progress).await?;
        let written = prepared.written();
        self.sweep(desired, &record)?;
        if scope != Scope::Part && record.is_first_sight() {
            let resources = desired.iter().map(|(_, resource)| resource);
            let observed = Observer::new(self, &prepared.certificates, secrets, resources)?.all()?;
            self.note_baseline(&record, desired, observed)?;
        }
        let changing = self.begin_change(plan, desired, &record, &written, scope)?;
        let is_unread = record.has_begun(is_read_by_systemd);
        if scope != Scope::Part && !plan.is_empty() {
            record.note_begun(desired, scope.without());
            record.claim(&self.root, plan, desired, &written)?;
            record.write(&self.root)?;
        }
        let starts = Starts::of(desired);
        let run = Run {
            host: self,
            plan,
            desired,
            secrets,
            prepared: &prepared,
            progress,
            changing,
            is_unread,
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
        self.register(desired, secrets, progress).await?;
        run.removals().await?;
        run.move_units()?;
        report.applied.extend(plan.stage(Stage::Removals).map(|step| step.resource.clone()));
        let failures = run.starts.failures();
        drop(run);
        drop(prepared);
        if let Some(config_hash) = scope.config_hash() {
            let is_told = matches!(scope, Scope::Node { .. })
                && (record.failure.is_some() || record.rolled_back.is_some() || record.superseded.is_some());
            let is_settled = !is_told && !record.is_begun() && record.config_hash == config_hash;
            // A run that had nothing to do leaves the record as it is.
            if !(plan.is_empty() && plan.kept.is_empty() && is_settled) {
                if let Scope::Node { known_hashes, .. } = scope {
                    record.known_hashes = known_hashes.clone();
                    record.failure = None;
                    record.rolled_back = None;
                    record.superseded = None;
                }
                record.note_settled(desired, scope.without());
                self.settle(record, desired, &written, config_hash, &plan.kept, failures.as_ref())?;
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
        config_hash: &str,
        kept: &[Kept],
        failures: Option<&Error>,
    ) -> Result<()> {
        record.settle_keeping(&self.root, desired, written, kept)?;
        let is_new = record.config_hash != config_hash;
        record.converged_since = match failures {
            None if is_new || record.converged_since.is_none() => Some(self.timestamp()),
            Some(_) if is_new => None,
            _ => record.converged_since,
        };
        record.config_hash = config_hash.to_owned();
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
                .filter(|step| step.action != Action::Remove)
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
            Stage::Mounts => self.each(steps, Run::mount),
            Stage::Files => {
                self.files(steps)?;
                for (step, _) in steps {
                    self.wait_after(step).await?;
                }
                self.ipv6_prefix(steps).await
            }
            Stage::Kernel => self.each(steps, Run::module),
            // They are asked for again by the next run.
            Stage::Images if self.starts.has_failed(CONTAINER_RUNTIME) => Ok(()),
            Stage::Images => self.images(steps).await,
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

    fn mount(&self, resource: &Resource) -> Result<()> {
        match resource {
            Resource::Mount(mount) => {
                if !self.is_mounted(mount)? {
                    self.host.root.make_dirs(&mount.path)?;
                    self.host.mounts.mount(mount)?;
                }
                self.host.mount_at_boot(mount)
            }
            Resource::BindMount(bind) => {
                self.host.root.make_dirs(&bind.source)?;
                self.host.root.make_dirs(&bind.path)?;
                self.host.mounts.bind(bind)
            }
            _ => Ok(()),
        }
    }

    /// Whether a volume is mounted. Another that is mounted there would be hidden, with whatever writes to it.
    fn is_mounted(&self, mount: &Mount) -> Result<bool> {
        let Some(found) = self.host.mounts.mounted(mount)? else { return Ok(false) };
        if (&found.device, &found.filesystem) == (&mount.device, &mount.filesystem) {
            return Ok(true);
        }
        Err(Error::Path {
            doing: "mount",
            path: mount.device.clone(),
            reason: format!(
                "{} is mounted at {} already, as {}; unmount it, or choose another path",
                found.device, mount.path, found.filesystem
            ),
        })
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

    async fn images(&self, steps: &Steps<'_>) -> Result<()> {
        let images = Arc::clone(&self.host.images);
        apart("waiting for the container runtime", move || images.wait_until_ready()).await?;
        self.each(steps, Run::image)
    }

    fn image(&self, resource: &Resource) -> Result<()> {
        let Resource::Image(Image { name, sources, sha256 }) = resource else { return Ok(()) };
        if sources.is_empty() {
            return self.host.images.pull(name);
        }
        let (file, url) = self.prepared.open(sha256)?;
        let mut archive = BufReader::new(file);
        let beginning = archive.fill_buf().map_err(|error| Error::path("read", url, error))?;
        if beginning.starts_with(&[0x1f, 0x8b]) {
            self.load(name, &mut MultiGzDecoder::new(archive))?;
        } else {
            self.load(name, &mut archive)?;
        }
        Stamp::Image.write(&self.host.root, name, sha256)
    }

    fn load(&self, name: &str, archive: &mut dyn Read) -> Result<()> {
        self.host.images.load(name, archive)
    }
}
