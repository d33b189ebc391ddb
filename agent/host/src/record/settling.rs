//! Claims what a plan writes, and settles the final state.

use std::collections::{BTreeMap, BTreeSet};

use kops_agent_plan::diff::{Action, Keeping, Kept, Plan};
use kops_agent_plan::resource::{Content, DesiredState, File, Kind, Resource, ResourceId, Unit};
use kops_agent_spec::digest::sha256_hex;

use super::Record;
use super::begun::Begun;
use super::claim::{Claim, Left};
use super::decided::Decided;
use crate::digests::digest;
use crate::error::Result;
use crate::places::{boot_text, is_kept_when_written, path_of};
use crate::root::{Entry, Root};

impl Record {
    /// Adds to the record the resources that a plan writes. `written` contains the SHA-256 of written files, by path.
    pub(crate) fn claim(
        &mut self,
        root: &Root,
        plan: &Plan,
        desired: &DesiredState,
        written: &BTreeMap<String, String>,
    ) -> Result<()> {
        for step in &plan.steps {
            let resource = desired.get(&step.resource);
            let is_recorded = has_record(step.resource.kind) && !resource.is_some_and(is_shipped);
            if is_recorded && step.action != Action::Remove {
                // systemd may already know the unit, although the agent's unit file is new. This file then hides a package's unit file at
                // another path, or replaces a file that is backed up.
                let is_written_over = step.resource.kind == Kind::Unit
                    && (is_kept_when_written(root, step)
                        || root.metadata(&path_of(root, &step.resource))?.is_none());
                let was_there = step.action != Action::Create && !is_written_over;
                let claim =
                    self.resources.entry(step.resource.clone()).or_insert_with(|| Claim::new(was_there));
                // A mount ends with the boot. If the agent mounts the resource now, the mount is the agent's own, even if another program
                // mounted it in an earlier boot.
                claim.was_there &= was_there || !step.resource.kind.is_mount();
                claim.begun = resource.and_then(|resource| begun(resource, written)).or(claim.begun.take());
            }
        }
        for id in &plan.adopted {
            self.resources.entry(id.clone()).or_insert_with(|| Claim::new(false)).was_there = false;
        }
        Ok(())
    }

    /// Records the final state of all desired resources, and removes all other entries. `written` contains the SHA-256 of files that this
    /// run wrote, by path.
    #[cfg(test)]
    pub(crate) fn settle(
        &mut self,
        root: &Root,
        desired: &DesiredState,
        written: &BTreeMap<String, String>,
    ) -> Result<()> {
        self.settle_keeping(root, desired, written, &[])
    }

    /// Like `settle`, for a plan that could not repair all resources. An unrepaired resource keeps its earlier entry, because the agent did
    /// not cause its current state.
    pub(crate) fn settle_keeping(
        &mut self,
        root: &Root,
        desired: &DesiredState,
        written: &BTreeMap<String, String>,
        kept: &[Kept],
    ) -> Result<()> {
        let is_unmended = |id: &ResourceId| {
            kept.iter().any(|kept| kept.resource == *id && kept.keeping == Keeping::Unmended)
        };
        let mut settled = BTreeMap::new();
        let recorded = desired.iter().filter(|(id, resource)| has_record(id.kind) && !is_shipped(resource));
        for (id, resource) in recorded {
            let before = self.resources.get(id);
            if let Some(claim) = before.filter(|claim| claim.left.is_some() && is_unmended(id)) {
                settled.insert(id.clone(), Claim { begun: None, ..claim.clone() });
                continue;
            }
            // If a correct resource has no claim, no recorded run has written it. So it is not the agent's own.
            let was_there = before.is_none_or(|claim| claim.was_there);
            let known = before.and_then(|claim| claim.left.as_ref());
            if let Some(left) = left(root, id, resource, known, written)? {
                settled.insert(id.clone(), Claim { was_there, left: Some(left), begun: None });
            }
        }
        self.resources = settled;
        Ok(())
    }

    /// Records the final state of the given desired resources. The entries of other resources stay.
    pub(crate) fn settle_only<'a>(
        &mut self,
        root: &Root,
        ids: impl Iterator<Item = &'a ResourceId>,
        desired: &DesiredState,
        written: &BTreeMap<String, String>,
    ) -> Result<()> {
        for id in ids {
            let (Some(resource), Some(claim)) = (desired.get(id), self.resources.get(id)) else { continue };
            if let Some(left) = left(root, id, resource, claim.left.as_ref(), written)? {
                let settled = Claim { was_there: claim.was_there, left: Some(left), begun: None };
                self.resources.insert(id.clone(), settled);
            }
        }
        Ok(())
    }

    /// The desired resources that exist and are not yet the agent's own.
    pub(crate) fn adoptable(&self, root: &Root, desired: &DesiredState) -> Result<Vec<ResourceId>> {
        let mut adoptable = Vec::new();
        for (id, resource) in desired.iter().filter(|(id, _)| has_record(id.kind)) {
            let is_own = self.resources.get(id).is_some_and(|claim| !claim.was_there);
            // Host names and mounts have no file of their own. They count as existing, because an apply creates them if they are
            // missing. A host name without addresses counts as missing, because it has no line in `/etc/hosts`.
            let is_there = match resource {
                Resource::HostsEntry(entry) => !entry.addresses.is_empty(),
                _ if id.kind.is_mount() => true,
                _ => match root.parent(&path_of(root, id))? {
                    Some((dir, name)) => match dir.entry(&name)? {
                        Some(Entry::Symlink(_)) => id.kind != Kind::Unit,
                        entry => entry.is_some(),
                    },
                    None => false,
                },
            };
            if is_there && !is_own && !is_shipped(resource) {
                adoptable.push(id.clone());
            }
        }
        Ok(adoptable)
    }

    /// Whether an interrupted run planned to write this resource but did not write it.
    pub(crate) fn is_still_to_write(&self, root: &Root, id: &ResourceId) -> Result<bool> {
        let Some(begun) = self.resources.get(id).and_then(|claim| claim.begun.as_ref()) else {
            return Ok(false);
        };
        let Some((dir, name)) = root.parent(&path_of(root, id))? else { return Ok(true) };
        Ok(match dir.entry(&name)? {
            Some(entry) => !begun.is_at(&dir, &name, &entry)?,
            None => true,
        })
    }

    /// Records which secrets of the store are in the files that the run is about to write. Also records `without`: the unreadable store
    /// files that have no influence on the written files (`None` if unknown). If an older agent recorded no such data, `decided` stays
    /// unknown until the run finishes.
    pub(crate) fn note_begun(&mut self, desired: &DesiredState, without: Option<&BTreeSet<String>>) {
        let begun = self.decided_now(desired, without);
        self.decided = match self.decided.take() {
            Some(before) => Some(before.and(begun)),
            None if self.is_first_sight() => Some(begun),
            None => None,
        };
    }

    /// Records which secrets of the store are in the files after the run, and which unreadable store files had no influence on these files.
    /// Also records which units must not run. Replaces the data of earlier runs, because the finished run has replaced the files of earlier
    /// runs.
    pub(crate) fn note_settled(&mut self, desired: &DesiredState, without: Option<&BTreeSet<String>>) {
        self.decided = Some(self.decided_now(desired, without));
        let stopped = desired.iter().filter_map(|(_, resource)| match resource {
            Resource::Unit(unit) if !unit.running => Some(unit.name.clone()),
            _ => None,
        });
        self.stopped_units = stopped.collect();
    }

    fn decided_now(&self, desired: &DesiredState, without: Option<&BTreeSet<String>>) -> Decided {
        let before = || self.decided.as_ref().map(|decided| &decided.without);
        let none = BTreeSet::new();
        Decided::from_desired(desired, without.or_else(before).unwrap_or(&none))
    }
}

/// The content that a run will leave, if the resource is a file or link. `written` contains the SHA-256 of written files, by path.
fn begun(resource: &Resource, written: &BTreeMap<String, String>) -> Option<Begun> {
    let text = |text: &str| Some(Begun::File(sha256_hex(text.as_bytes())));
    match resource {
        Resource::File(file) => written.get(&file.path).cloned().map(Begun::File),
        Resource::Unit(unit) => text(unit.text.as_ref()?),
        Resource::KernelModule(module) => text(&boot_text(&module.name)),
        Resource::Symlink(link) => Some(Begun::Symlink(link.target.clone())),
        _ => None,
    }
}

/// Whether resources of a kind are recorded. Files and mounts are recorded. Packages, for example, are not, because other programs may use
/// them.
fn has_record(kind: Kind) -> bool {
    let is_file = matches!(kind, Kind::File | Kind::Unit | Kind::KernelModule | Kind::PackageSource);
    is_file || matches!(kind, Kind::Directory | Kind::Symlink | Kind::HostsEntry) || kind.is_mount()
}

/// Whether the resource is a unit whose file the distribution ships. The agent does not own that file.
fn is_shipped(resource: &Resource) -> bool {
    matches!(resource, Resource::Unit(Unit { text: None, .. }))
}

fn left(
    root: &Root,
    id: &ResourceId,
    resource: &Resource,
    known: Option<&Left>,
    written: &BTreeMap<String, String>,
) -> Result<Option<Left>> {
    // A host without addresses has no line in `/etc/hosts`.
    if let Resource::HostsEntry(entry) = resource {
        return Ok((!entry.addresses.is_empty()).then_some(Left::HostsEntry));
    }
    if id.kind.is_mount() {
        return Ok(Some(Left::Mount));
    }
    let path = path_of(root, id);
    let Some((dir, name)) = root.parent(&path)? else { return Ok(None) };
    Ok(match dir.entry(&name)? {
        Some(Entry::File(metadata)) => {
            let content_is_ours = !matches!(resource, Resource::File(File { create_only: true, .. }));
            let sha256 = match (content_is_ours, known, written.get(&path)) {
                (false, _, _) => None,
                (true, _, Some(sha256)) => Some(sha256.clone()),
                (true, Some(Left::File { sha256: Some(sha256), metadata: known, .. }), None)
                    if known.is_untouched(&metadata) =>
                {
                    Some(sha256.clone())
                }
                (true, _, None) => Some(digest(&dir, &name)?),
            };
            Some(Left::File { sha256, metadata, certificate: has_certificate(resource) })
        }
        Some(Entry::Directory(metadata)) => Some(Left::Directory(metadata)),
        // An operator has replaced the unit's file by a link.
        Some(Entry::Symlink(_)) if id.kind == Kind::Unit => None,
        Some(Entry::Symlink(target)) => Some(Left::Symlink(target)),
        Some(Entry::Special) | None => None,
    })
}

/// Whether the file contains a certificate of the node itself. Such a certificate expires.
fn has_certificate(resource: &Resource) -> bool {
    let Resource::File(file) = resource else { return false };
    matches!(file.content, Content::Certificate(_) | Content::Kubeconfig(_))
}
