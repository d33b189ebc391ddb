//! The last stage: removes resources that the agent created earlier and that are no longer desired.

use kops_agent_plan::diff::{Action, Change, Stage, Step};
use kops_agent_plan::resource::Kind;
use kops_agent_plan::unit_files::is_read_by_systemd;

use super::run::Run;
use crate::error::Result;
use crate::hosts_file::remove_entries;
use crate::places::path_of;
use crate::stamps::Stamp;
use crate::system::packages::remove_keys;
use crate::system::systemd::Act;
use crate::unit_files::remove_unit;
use crate::unit_overrides::is_masked;

impl Run<'_> {
    pub(super) async fn removals(&self) -> Result<()> {
        let steps: Vec<&Step> = self.plan.stage(Stage::Removals).collect();
        let is_host = |step: &&&Step| step.resource.kind == Kind::HostsEntry;
        let hosts: Vec<&str> = steps.iter().filter(is_host).map(|step| step.resource.name.as_str()).collect();
        if !hosts.is_empty() {
            // Remove all entries of `/etc/hosts` in one step, because they are in one file.
            remove_entries(&self.host.root, &hosts)?;
        }
        for step in &steps {
            self.progress.applying(step);
            for change in &step.changes {
                match change {
                    Change::Stop => self.wait_for_job(Act::Stop, &step.resource.name, None).await?,
                    Change::Disable if is_masked(&self.host.root, &step.resource.name)? => {}
                    Change::Disable => self.host.systemd.disable(&step.resource.name)?,
                    Change::Remove | Change::RemoveIfEmpty if !is_host(&step) => self.remove(step)?,
                    _ => {}
                }
            }
        }
        if steps.iter().any(|step| is_read_by_systemd(&step.resource)) {
            self.host.systemd.reload()?;
        }
        Ok(())
    }

    /// Removes unwanted drop-ins. If a drop-in was removed or changed, systemd reads all unit files again, including the unit files of other
    /// programs.
    pub(super) fn drop_ins(&self) -> Result<()> {
        let mut is_unread = self.is_unread;
        for step in self.plan.stage(Stage::Files) {
            if step.action == Action::Remove {
                self.progress.applying(step);
                self.remove(step)?;
            }
            is_unread |= is_read_by_systemd(&step.resource)
                && (step.action == Action::Remove || step.changes_content());
        }
        if is_unread { self.host.systemd.reload() } else { Ok(()) }
    }

    fn remove(&self, step: &Step) -> Result<()> {
        if step.resource.kind.is_mount() {
            self.host.no_longer_mount_at_boot(&step.resource.name)?;
            return self.host.mounts.unmount(&step.resource.name);
        }
        let Some((dir, name)) = self.host.root.parent(&path_of(&self.host.root, &step.resource))? else {
            return Ok(());
        };
        match step.resource.kind {
            Kind::Directory => dir.remove_dir_if_empty(&name)?,
            Kind::Unit => {
                // Remove the stamps of the unit, so that they do not apply to a later unit of this name.
                for stamp in [Stamp::Unit, Stamp::Run] {
                    stamp.put_back(&self.host.root, &step.resource.name, None)?;
                }
                remove_unit(&self.host.root, &step.resource, &dir, &name)?;
            }
            Kind::PackageSource => {
                dir.remove(&name)?;
                remove_keys(&self.host.root, &step.resource.name)?;
            }
            _ => dir.remove(&name)?,
        }
        dir.sync()
    }
}
