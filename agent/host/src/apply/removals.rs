//! The last stage: what the agent left at an earlier time and nobody wants any more.

use kops_agent_plan::diff::{Change, Plan, Stage, Step};
use kops_agent_plan::resource::Kind;

use super::Run;
use crate::error::Result;
use crate::record::file_path;

impl Run<'_> {
    pub(super) fn removals(&self, plan: &Plan) -> Result<()> {
        let steps: Vec<&Step> = plan.stage(Stage::Removals).collect();
        for step in &steps {
            self.progress.applying(step);
            for change in &step.changes {
                match change {
                    Change::Stop => self.host.systemd.stop(&step.resource.name)?,
                    Change::Disable => self.host.systemd.disable(&step.resource.name)?,
                    Change::Remove | Change::RemoveIfEmpty => self.remove(step)?,
                    _ => {}
                }
            }
        }
        if steps.iter().any(|step| step.resource.kind == Kind::Unit) {
            self.host.systemd.reload()?;
        }
        Ok(())
    }

    fn remove(&self, step: &Step) -> Result<()> {
        let id = &step.resource;
        if id.kind == Kind::HostsEntry {
            return self.hosts(&[&id.name]);
        }
        let path = file_path(id).unwrap_or_else(|| id.name.clone());
        let Some((dir, name)) = self.host.root.parent(&path)? else { return Ok(()) };
        match id.kind {
            Kind::Directory => dir.remove_dir_if_empty(&name)?,
            _ => dir.remove(&name)?,
        }
        dir.sync()
    }
}
