//! The stages of units.
//!
//! Their files are written first, systemd reads them once, and then each unit is dealt with in turn.
//! A unit that was started is stamped with the digest of what it has read: whatever interrupts a run
//! before that, the next one starts or restarts the unit again.

use kops_agent_plan::diff::{Change, restart_digest};
use kops_agent_plan::resource::{Resource, Unit};

use super::{Run, Steps};
use crate::error::Result;
use crate::observe::{Observer, unit_path};
use crate::selinux::FileKind;
use crate::staged::{Staged, place};
use crate::stamps::Stamp;

impl Run<'_> {
    pub(super) fn units(&self, steps: &Steps<'_>) -> Result<()> {
        let mut sealed = Vec::new();
        for (step, resource) in steps {
            if let Resource::Unit(Unit { name, text: Some(text), .. }) = resource
                && step.writes()
            {
                let path = unit_path(name);
                let owner = self.host.users.owner_ids(&path, "root", "root")?;
                let mut staged = Staged::new(&self.host.root, &path, 0o644, owner)?;
                staged.write(text.as_bytes())?;
                sealed.push(staged.seal()?);
            } else if let Resource::Unit(Unit { name, text: Some(_), .. }) = resource {
                self.host.root.mend_label(&unit_path(name), FileKind::File)?;
            }
        }
        place(sealed)?;
        // Always, and not only for what was written now: an earlier run may have been interrupted
        // between the writing and this.
        self.host.systemd.reload()?;
        for (step, resource) in steps {
            if let Resource::Unit(unit) = resource {
                self.progress.applying(step);
                self.unit(unit, &step.changes)?;
            }
        }
        Ok(())
    }

    fn unit(&self, unit: &Unit, changes: &[Change]) -> Result<()> {
        let systemd = &self.host.systemd;
        for change in changes {
            match change {
                Change::Enable => systemd.enable(&unit.name)?,
                Change::Disable => systemd.disable(&unit.name)?,
                Change::Stop => systemd.stop(&unit.name)?,
                Change::Start => self.run_unit(unit, || systemd.start(&unit.name))?,
                Change::Restart { .. } => self.run_unit(unit, || systemd.restart(&unit.name))?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Starts or restarts a unit, and stamps it with what it found.
    fn run_unit(&self, unit: &Unit, act: impl FnOnce() -> Result<()>) -> Result<()> {
        let read = unit.restarted_by.iter().filter_map(|id| self.desired.get(id));
        let found = Observer::new(self.host, &self.prepared.certificates, self.secrets, read)?
            .having_written(self.prepared.downloaded().collect())
            .all()?;
        let digest = restart_digest(unit, &found);
        act()?;
        match digest {
            Some(digest) => Stamp::Unit.write(&self.host.root, &unit.name, &digest),
            None => Ok(()),
        }
    }
}
