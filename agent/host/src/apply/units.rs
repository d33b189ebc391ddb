//! The stages of units.
//!
//! Their files are written first, systemd reads them once, and then each unit is dealt with in turn.
//! A unit that was started, and is well where that is waited for, is stamped with the digest of what it has read:
//! whatever interrupts a run before that, the next one starts or restarts the unit again.

use kops_agent_plan::diff::{Change, PATH, Step, restart_digest};
use kops_agent_plan::health;
use kops_agent_plan::resource::{Kind, Resource, ResourceId, Unit};

use super::{Run, Steps};
use crate::error::Result;
use crate::selinux::FileKind;
use crate::staged::{Staged, place};
use crate::stamps::Stamp;
use crate::unit_path::{unit_path, upstreams_unit_path};

impl Run<'_> {
    pub(super) async fn units(&self, steps: &Steps<'_>) -> Result<()> {
        let mut sealed = Vec::new();
        for (step, resource) in steps {
            if let Resource::Unit(Unit { name, text: Some(text), .. }) = resource
                && (step.writes() || step.changes.iter().any(is_access))
            {
                let path = unit_path(&self.host.root, name);
                if !self.host.record()?.is_own(&step.resource) {
                    self.host.keep_replaced(&path, &step.resource, text.as_bytes())?;
                }
                let owner = self.host.users.owner_ids(&path, "root", "root")?;
                let mut staged = Staged::new(&self.host.root, &path, 0o644, owner)?;
                staged.write(text.as_bytes())?;
                sealed.push(staged.seal()?);
            } else if let Resource::Unit(Unit { name, text: Some(_), .. }) = resource {
                self.host.root.mend_label(&unit_path(&self.host.root, name), FileKind::File)?;
            }
        }
        place(sealed)?;
        // Always, and not only for what was written now: an earlier run may have been interrupted
        // between the writing and this.
        self.host.systemd.reload()?;
        for (step, resource) in steps {
            if let Resource::Unit(unit) = resource {
                self.progress.applying(step);
                self.unit(unit, step).await?;
            }
        }
        Ok(())
    }

    async fn unit(&self, unit: &Unit, step: &Step) -> Result<()> {
        let systemd = &self.host.systemd;
        let moves = |change: &Change| matches!(change, Change::Start | Change::Restart { .. } | Change::Stop);
        if step.changes.iter().any(moves) {
            self.note_begun(&step.resource)?;
        }
        for change in &step.changes {
            match change {
                Change::Enable => systemd.enable(&unit.name)?,
                Change::Disable => systemd.disable(&unit.name)?,
                Change::Stop => systemd.stop(&unit.name)?,
                Change::Start => self.run_unit(unit, step, || systemd.start(&unit.name)).await?,
                Change::Restart { .. } => self.run_unit(unit, step, || systemd.restart(&unit.name)).await?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Starts or restarts a unit, and stamps it with what it found once it is well.
    async fn run_unit(&self, unit: &Unit, step: &Step, act: impl FnOnce() -> Result<()>) -> Result<()> {
        let digest = self.digest_of(unit)?;
        match act() {
            Ok(()) => self.wait_after(step).await?,
            // A disk that is full, or a bus that has gone, says nothing of the unit.
            Err(error) if error.is_refusal() && self.changing.is_some() => {
                let component = health::of_unit(&unit.name, &|_| None);
                return Err(self.host.unwell(&component, &error.to_string()));
            }
            Err(error) => return Err(error),
        }
        self.host.note_run(&unit.name)?;
        match digest {
            Some(digest) => Stamp::Unit.write(&self.host.root, &unit.name, &digest),
            None => Ok(()),
        }
    }

    /// The digest of what a unit finds when it is started now.
    fn digest_of(&self, unit: &Unit) -> Result<Option<String>> {
        let own = ResourceId::new(Kind::Unit, &unit.name);
        let read = unit.restarted_by.iter().chain([&own]).filter_map(|id| self.desired.get(id));
        Ok(restart_digest(unit, &self.found(read)?))
    }

    /// Moves units that an earlier version of the agent has written where they win over upstream's. Last of all: until
    /// then a run that does not come to its end leaves the unit as it was.
    pub(super) fn move_units(&self) -> Result<()> {
        for step in &self.plan.steps {
            let is_moved = step
                .changes
                .iter()
                .any(|change| matches!(change, Change::Set { field, .. } if field == PATH));
            if let (true, Some(Resource::Unit(Unit { name, text: Some(_), enabled, .. }))) =
                (is_moved, self.desired.get(&step.resource))
            {
                self.progress.applying(step);
                let to = upstreams_unit_path(&self.host.root, name);
                let owner = self.host.users.owner_ids(&to, "root", "root")?;
                let mut staged = Staged::new(&self.host.root, &to, 0o644, owner)?;
                let text = self.host.root.read(&unit_path(&self.host.root, name))?.unwrap_or_default();
                self.host.keep_replaced(&to, &step.resource, &text)?;
                staged.write(&text)?;
                place(vec![staged.seal()?])?;
                self.host.remove_from_overrides(name, *enabled)?;
            }
        }
        Ok(())
    }
}

/// Whether it is about who may read and write a unit's file.
fn is_access(change: &Change) -> bool {
    matches!(change, Change::Set { field, .. } if field != PATH)
}
