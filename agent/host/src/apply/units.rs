//! The stages of units.
//!
//! First, all unit files are written, systemd reads them once, and units are enabled or disabled. These actions wait
//! for no unit. Then each unit is started or restarted in its stage and order ([`super::starts`] says which ones the
//! run waits for). A started unit is stamped with the digest of the files that it has read. If the run waits for a
//! unit, the stamp follows only when the unit is healthy. If the run is interrupted before the stamp, the next run
//! starts or restarts the unit again.

use kops_agent_plan::diff::{Action, CONTAINER_RUNTIME, Change, KUBELET, PATH, Stage, Step, unit_reading};
use kops_agent_plan::health;
use kops_agent_plan::resource::{Kind, Resource, ResourceId, Unit};
use kops_agent_plan::timeline::Work;

use super::run::{Run, Steps};
use super::starts::is_merely_started;
use crate::error::{Error, Result};
use crate::places::{unit_path, upstreams_unit_path};
use crate::prepare::find;
use crate::selinux::FileKind;
use crate::staged::{Staged, place};
use crate::stamps::Stamp;
use crate::system::systemd::Act;
use crate::unit_files::keep_replaced;

impl Run<'_> {
    pub(super) fn install_units(&self) -> Result<()> {
        let stages = [Stage::Runtime, Stage::Services];
        let steps = stages.iter().flat_map(|stage| self.plan.stage(*stage));
        let mut units: Vec<(&Step, &Unit)> = Vec::new();
        for step in steps.filter(|step| step.action != Action::Remove) {
            if let Resource::Unit(unit) = find(self.desired, &step.resource)? {
                units.push((step, unit));
            }
        }
        if units.is_empty() {
            return Ok(());
        }
        let _step = self.host.measure(Work::Other, "unit files");
        self.write_units(&units)?;
        for (step, unit) in units {
            self.enable(unit, step)?;
        }
        // An earlier run may have been interrupted after it wrote unit files. So systemd reads all unit files, even if this run has written
        // no unit file.
        self.host.systemd.reload()
    }

    fn write_units(&self, units: &[(&Step, &Unit)]) -> Result<()> {
        let mut sealed = Vec::new();
        for (step, Unit { name, text, .. }) in units {
            let Some(text) = text else { continue };
            let path = unit_path(&self.host.root, name);
            if step.writes() || step.changes.iter().any(is_access) {
                let record = self.host.record()?;
                match record.is_own(&step.resource) {
                    true => self.host.renew_replaced(&path, &step.resource, &record)?,
                    false => keep_replaced(&self.host.root, &path, &step.resource, text.as_bytes())?,
                }
                let owner = self.host.users.owner_ids(&path, "root", "root")?;
                let mut staged = Staged::new(&self.host.root, &path, 0o644, owner)?;
                staged.write(text.as_bytes())?;
                sealed.push(staged.seal()?);
            } else {
                self.host.root.mend_label(&path, FileKind::File)?;
            }
        }
        place(sealed)
    }

    fn enable(&self, unit: &Unit, step: &Step) -> Result<()> {
        let systemd = &self.host.systemd;
        for change in &step.changes {
            let outcome = match change {
                // Do not enable this unit: at the next boot, it would start before its missing volume is mounted.
                Change::Enable if self.kept_down_by(&unit.name).is_some() => continue,
                Change::Enable => systemd.enable(&unit.name),
                Change::Disable => systemd.disable(&unit.name),
                _ => continue,
            };
            match outcome {
                Err(error) if error.is_refusal() => self.starts.note_failed(&unit.name, &error),
                outcome => outcome?,
            }
        }
        Ok(())
    }

    pub(super) async fn units(&self, steps: &Steps<'_>) -> Result<()> {
        for (step, resource) in steps {
            if let Resource::Unit(unit) = resource {
                self.progress.applying(step);
                self.unit(unit, step).await?;
            }
        }
        Ok(())
    }

    async fn unit(&self, unit: &Unit, step: &Step) -> Result<()> {
        let Some(act) = step.changes.iter().find_map(act) else { return Ok(()) };
        if let Some(path) = self.kept_down_by(&unit.name).filter(|_| act != Act::Stop) {
            let reason = format!(
                "the volume of {path} is not mounted; a later mount would hide the files that the unit writes"
            );
            let doing = act.name();
            self.starts.note_failed(&unit.name, &Error::Unit { doing, unit: unit.name.clone(), reason });
            return Ok(());
        }
        self.note_begun(&step.resource)?;
        let digest = self.digest_of(unit)?;
        if !self.starts.is_awaited(&unit.name) || self.has_to_be_left(act, &unit.name) {
            self.leave_job(act, unit, digest);
            return Ok(());
        }
        if let (Act::Start, Some(digest)) = (act, &digest) {
            self.note_read_by_start(unit, digest)?;
        }
        let ended = match self.wait_for_job(act, &unit.name, digest.as_deref()).await {
            Ok(()) => {
                let well = self.wait_after(step).await;
                if well.is_err() {
                    Stamp::Unit.put_back(&self.host.root, &unit.name, None)?;
                }
                well
            }
            refused => refused,
        };
        match ended {
            Ok(()) => self.host.note_started(act, &unit.name, digest.as_deref()),
            Err(error) => self.component_failed(unit, step, error),
        }
    }

    /// Records the digest of the files that a stopped unit is about to read. If the run ends during a slow start of the unit, the next run
    /// waits for this start and does not restart the unit. If the unit has stopped in the meantime, the next run starts the unit despite
    /// the recorded digest.
    fn note_read_by_start(&self, unit: &Unit, digest: &str) -> Result<()> {
        match self.host.systemd.states(&[&unit.name])?.first() {
            Some(state) if !state.running => Stamp::Unit.write(&self.host.root, &unit.name, digest),
            _ => Ok(()),
        }
    }

    /// Handles the failure of a unit that pods wait for. If a change of a working node caused the failure, returns an error, which rolls
    /// the change back. After any other failure, the run continues, and the health checks of the runtime and kubelet show whether they work
    /// without the failed unit. A change does not cause the failure of a unit that did not run before: a hook, for example, may always
    /// fail. The runtime and kubelet are exceptions from this rule.
    fn component_failed(&self, unit: &Unit, step: &Step, error: Error) -> Result<()> {
        // A full disk or a lost connection to systemd is not a failure of the unit.
        if !error.is_refusal() && !matches!(error, Error::Unhealthy { .. }) {
            return Err(error);
        }
        let is_pods_own = [CONTAINER_RUNTIME, KUBELET].contains(&unit.name.as_str());
        let ran_before = !step.changes.iter().any(|change| matches!(change, Change::Start));
        let is_to_blame = (is_pods_own || ran_before) && !is_merely_started(self.plan, &step.resource);
        if self.changing.is_none() || !is_to_blame {
            self.starts.note_failed(&unit.name, &error);
            return Ok(());
        }
        Err(match error {
            Error::Unhealthy { .. } => error,
            refused => self.host.unhealthy(&health::of_unit(&unit.name, &|_| None), &refused.to_string()),
        })
    }

    /// The digest of the files that a unit would read if the unit started now. The digest is recorded when the unit starts.
    fn digest_of(&self, unit: &Unit) -> Result<Option<String>> {
        let own = ResourceId::new(Kind::Unit, &unit.name);
        let read = unit.restarted_by.iter().chain([&own]).filter_map(|id| self.desired.get(id));
        Ok(unit_reading(unit, &self.found(read)?).map(|reading| reading.to_string()))
    }

    /// An earlier agent version wrote unit files into a folder where they override upstream's units. Moves these files to upstream's
    /// folder. The move comes last, so that an interrupted run does not change which unit file is used.
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
                keep_replaced(&self.host.root, &to, &step.resource, &text)?;
                staged.write(&text)?;
                place(vec![staged.seal()?])?;
                self.host.remove_from_overrides(name, *enabled)?;
            }
        }
        Ok(())
    }
}

/// Whether a change is about the mode or owner of a unit file.
fn is_access(change: &Change) -> bool {
    matches!(change, Change::Set { field, .. } if field != PATH)
}

fn act(change: &Change) -> Option<Act> {
    match change {
        Change::Start => Some(Act::Start),
        Change::Stop => Some(Act::Stop),
        Change::Restart { .. } => Some(Act::Restart),
        _ => None,
    }
}
