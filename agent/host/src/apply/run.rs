//! Applies a plan, one stage after another.

use std::collections::BTreeSet;

use kops_agent_plan::diff::{Action, Change, ObservedState, Plan, Stage, Step};
use kops_agent_plan::late_pods::LatePods;
use kops_agent_plan::resource::{DesiredState, KernelModule, Kind, Resource};
use kops_agent_plan::timeline::Work;

use super::Report;
use super::changing::Changing;
use super::starts::Starts;
use crate::assets::Progress;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::observe::Observer;
use crate::places::boot_text;
use crate::prepare::{Inputs, find};
use crate::root::Root;
use crate::secrets::Secrets;
use crate::staged::write_file;
use crate::stamps::Stamp;
use crate::system::kernel::boot_file;

pub(super) struct Run<'a> {
    pub(super) host: &'a Host,
    pub(super) plan: &'a Plan,
    pub(super) desired: &'a DesiredState,
    pub(super) secrets: &'a dyn Secrets,
    pub(super) inputs: Inputs<'a>,
    pub(super) progress: &'a dyn Progress,
    /// How the run waits for healthy components, and the journal of the change. `None` if the run does not wait for healthy components.
    pub(super) changing: Option<Changing>,
    /// Whether systemd has not yet read changed unit files. Either an interrupted run changed these files, or another program changed them
    /// before the first run on this machine.
    pub(super) is_unread: bool,
    /// The images that were loaded before the change began.
    pub(super) loaded: BTreeSet<String>,
    /// Whether the packages were installed during the downloads.
    pub(super) has_packages: bool,
    /// The pods that are delayed until the API server answers.
    pub(super) late: LatePods,
    pub(super) starts: Starts,
}

pub(super) type Steps<'a> = [(&'a Step, &'a Resource)];

impl Run<'_> {
    /// Runs all stages except removals. Removals follow when the node is healthy.
    pub(super) async fn all(&self, report: &mut Report) -> Result<()> {
        for stage in Stage::ALL.into_iter().filter(|stage| *stage != Stage::Removals) {
            let steps: Vec<(&Step, &Resource)> = self
                .plan
                .stage(stage)
                // A resource to remove has no desired state.
                .filter(|step| step.action != Action::Remove && !self.is_below_missing(&step.resource))
                .filter(|step| !self.is_late(step))
                .map(|step| Ok((step, find(self.desired, &step.resource)?)))
                .collect::<Result<_>>()?;
            if stage == Stage::Runtime {
                self.install_units()?;
            }
            self.stage(stage, &steps).await?;
            if stage == Stage::Files {
                self.drop_ins()?;
                forget_starts(&self.host.root, self.plan)?;
            }
            report.applied.extend(self.plan.stage(stage).map(|step| step.resource.clone()));
            tokio::task::yield_now().await;
        }
        // The run waits for images, jobs and delayed pods concurrently, so that none of them delays the others.
        let (pulled, starting, late) =
            tokio::join!(self.pull_images(), self.collect_jobs(), self.late_pods());
        pulled?;
        report.starting = starting?;
        late?;
        for unit in &report.starting {
            self.progress.warned(&format!(
                "{unit} is still starting, and this run does not wait for it; see `systemctl list-jobs`"
            ));
        }
        match self.starts.fatal_failures() {
            // Keep the journal, so that the next run continues or rolls back the change.
            Some(error) => Err(error),
            None => self.end_change().await,
        }
    }

    async fn stage(&self, stage: Stage, steps: &Steps<'_>) -> Result<()> {
        if steps.is_empty() {
            return Ok(());
        }
        let _step = is_one_step(stage).then(|| self.host.measure(Work::Other, stage.name()));
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
            // The function `removals` handles this stage.
            Stage::Removals => Ok(()),
        }
    }

    /// Observes the resources that a unit or pod is about to read.
    pub(super) fn found<'r>(
        &'r self,
        resources: impl Iterator<Item = &'r Resource>,
    ) -> Result<ObservedState> {
        Observer::new(self.host, &self.inputs.certificates, self.secrets, resources)?
            .having_written(self.inputs.downloaded().collect())
            .all()
    }

    /// Asks the cloud for the pods' IPv6 addresses. This must happen before the start of the program that assigns the addresses.
    async fn ipv6_prefix(&self, steps: &Steps<'_>) -> Result<()> {
        let Some((step, _)) = steps.iter().find(|(step, _)| step.resource.kind == Kind::Ipv6Prefix) else {
            return Ok(());
        };
        self.progress.applying(step);
        self.host.remote.assign_ipv6_prefix().await.map_err(|failure| Error::Path {
            doing: "get",
            path: "a range of IPv6 addresses for this node's pods".into(),
            reason: failure.to_string(),
        })
    }

    fn each(&self, steps: &Steps<'_>, act: fn(&Self, &Resource) -> Result<()>) -> Result<()> {
        steps.iter().try_for_each(|(step, resource)| {
            self.progress.applying(step);
            act(self, resource)
        })
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
            // This may fail: a mirror may no longer have the package for the running kernel.
            && let Err(error) = self.host.packages.install(&[package], self.progress)
        {
            self.progress.warned(&format!("the kernel module {name} may be missing: {error}"));
        }
        if let Some(line) = kernel.forbidden(name)? {
            self.progress.warned(&format!(
                "{line} keeps the kernel module {name} from loading at boot; this node needs the module: remove that line"
            ));
        }
        if kernel.has(name) {
            kernel.load(name)?;
        } else {
            self.progress.warned(&format!("this kernel has no module {name}; this run continues without it"));
        }
        let text = boot_text(&module.name);
        write_file(&self.host.root, &boot_file(&module.name), 0o644, None, text.as_bytes())
    }
}

/// Whether the timing of a run shows a stage as one step. In other stages, each package or unit is a step.
fn is_one_step(stage: Stage) -> bool {
    !matches!(stage, Stage::Packages | Stage::Runtime | Stage::Services)
}

/// Deletes the stamps of the units and static pods that will start or restart. A stamp records the last start. Must be called before the
/// unit files and manifests are written. Without a stamp, the next run retries an interrupted or failed restart, although all files are
/// already right.
fn forget_starts(root: &Root, plan: &Plan) -> Result<()> {
    let is_due = |change: &Change| matches!(change, Change::Start | Change::Restart { .. });
    plan.steps.iter().try_for_each(|step| match step.resource.kind {
        Kind::Unit if step.changes.iter().any(is_due) => {
            Stamp::Unit.put_back(root, &step.resource.name, None)
        }
        Kind::File if step.starts_pod() => Stamp::Pod.put_back(root, &step.resource.name, None),
        _ => Ok(()),
    })
}
