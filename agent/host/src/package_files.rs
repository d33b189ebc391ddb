//! Files that packages installed. The agent overwrites some of them, as upstream does, and deletes none. They are
//! removed with their packages.

use std::collections::{BTreeMap, BTreeSet};

use kops_agent_plan::diff::{OwnedState, Plan};
use kops_agent_plan::resource::{DesiredState, Kind, ResourceId};

use crate::error::Result;
use crate::host::Host;
use crate::places::path_of;
use crate::record::Record;
use crate::root::Root;
use crate::stamps::Stamp;

impl Host {
    /// The existing desired resources that become the agent's own. Empty unless the host adopts resources ([`Host::adopting`]). Files of
    /// packages never become the agent's own, even if other programs have changed them.
    pub fn adoptable(&self, desired: &DesiredState) -> Result<Vec<ResourceId>> {
        if !self.adopts {
            return Ok(Vec::new());
        }
        let mut adoptable = self.record()?.adoptable(&self.root, desired)?;
        let of_packages = self.of_packages(adoptable.iter())?;
        adoptable.retain(|id| !of_packages.contains(id));
        Ok(adoptable)
    }

    /// The agent's recorded resources, for a plan of `desired`. A package's file that is no longer desired counts as existing before the
    /// agent, even if an earlier version of the agent recorded the file as its own.
    pub fn owned_beside(&self, desired: &DesiredState) -> Result<OwnedState> {
        let mut owned = self.owned()?;
        let goes = owned.iter().filter(|(id, owned)| !owned.was_there && desired.get(id).is_none());
        for id in self.of_packages(goes.map(|(id, _)| id))? {
            if let Some(owned) = owned.get_mut(&id) {
                owned.was_there = true;
            }
        }
        Ok(owned)
    }

    /// The given resources whose files belong to packages. Leaves out a unit if the agent has overwritten its unit file and has backed up
    /// the earlier text.
    pub(crate) fn of_packages<'a>(
        &self,
        ids: impl Iterator<Item = &'a ResourceId>,
    ) -> Result<BTreeSet<ResourceId>> {
        let mut by_path: BTreeMap<String, &ResourceId> = BTreeMap::new();
        for id in ids {
            let is_file =
                matches!(id.kind, Kind::File | Kind::Symlink | Kind::KernelModule | Kind::PackageSource);
            let is_unit = id.kind == Kind::Unit && Stamp::Replaced.read(&self.root, &id.name)?.is_none();
            if is_file || is_unit {
                by_path.insert(path_of(&self.root, id), id);
            }
        }
        let paths: Vec<&str> = by_path.keys().map(String::as_str).collect();
        let owned = self.packages.owned(&paths)?;
        Ok(owned.iter().filter_map(|path| by_path.get(path)).map(|id| (*id).clone()).collect())
    }

    /// Backs up the text that a package has written over the agent's unit, for example in an upgrade. When the agent's unit is removed,
    /// this text is restored.
    pub(crate) fn renew_replaced(&self, path: &str, id: &ResourceId, record: &Record) -> Result<()> {
        let Some(found) = self.root.read(path)?.and_then(|bytes| String::from_utf8(bytes).ok()) else {
            return Ok(());
        };
        let is_others = record.is_edited(id, &kops_agent_spec::digest::sha256_hex(found.as_bytes()));
        if is_others && self.packages.owned(&[path])?.contains(path) {
            return Stamp::Replaced.write(&self.root, &id.name, &found);
        }
        Ok(())
    }
}

/// Removes outdated backups of units. If the plan writes a unit that the record does not contain, the backup of this unit is outdated: the
/// file on the disk is newer.
pub(crate) fn forget_replaced(root: &Root, plan: &Plan, record: &Record) -> Result<()> {
    // If the record was lost, it does not show which files the agent has written.
    if record.was_lost {
        return Ok(());
    }
    let units = plan.steps.iter().filter(|step| step.resource.kind == Kind::Unit && step.writes());
    for step in units.filter(|step| record.claims().all(|(id, _)| *id != step.resource)) {
        Stamp::Replaced.put_back(root, &step.resource.name, None)?;
    }
    Ok(())
}
