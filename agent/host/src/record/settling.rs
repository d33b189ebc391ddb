//! Claiming what a plan writes, and settling how it was left.

use std::collections::{BTreeMap, BTreeSet};

use kops_agent_plan::diff::{Action, Keeping, Kept, Plan};
use kops_agent_plan::digest::sha256_hex;
use kops_agent_plan::resource::{Content, DesiredState, File, Kind, Resource, ResourceId, Unit};

use super::Record;
use super::begun::Begun;
use super::claim::{Claim, Left};
use super::decided::Decided;
use crate::digests::digest;
use crate::error::Result;
use crate::places::{boot_text, is_kept_when_written, path_of};
use crate::root::{Entry, Root};

impl Record {
    /// Claims what a plan writes. `written` has the hashes of the files that are written, by path.
    ///
    /// # Errors
    /// It cannot be looked at what is there yet.
    pub(crate) fn claim(
        &mut self,
        root: &Root,
        plan: &Plan,
        desired: &DesiredState,
        written: &BTreeMap<String, String>,
    ) -> Result<()> {
        for step in &plan.steps {
            let resource = desired.get(&step.resource);
            let is_recorded = has_record(step.resource.kind) && !resource.is_some_and(is_brought);
            if is_recorded && step.action != Action::Remove {
                // systemd may know a unit from a package's file, which is elsewhere, or is kept to be put back.
                let is_written_over = step.resource.kind == Kind::Unit
                    && (is_kept_when_written(root, step)
                        || root.metadata(&path_of(root, &step.resource))?.is_none());
                let was_there = step.action != Action::Create && !is_written_over;
                let claim =
                    self.resources.entry(step.resource.clone()).or_insert_with(|| Claim::new(was_there));
                // No mount outlives a boot: it belongs to the program that mounts it.
                claim.was_there &= was_there || !step.resource.kind.is_mount();
                claim.begun = resource.and_then(|resource| begun(resource, written)).or(claim.begun.take());
            }
        }
        for id in &plan.adopted {
            self.resources.entry(id.clone()).or_insert_with(|| Claim::new(false)).was_there = false;
        }
        Ok(())
    }

    /// Notes how everything desired was left, and forgets everything else. `written` has the hashes of files that
    /// are known because they have just been written, by path.
    #[cfg(test)]
    pub(crate) fn settle(
        &mut self,
        root: &Root,
        desired: &DesiredState,
        written: &BTreeMap<String, String>,
    ) -> Result<()> {
        self.settle_keeping(root, desired, written, &[])
    }

    /// The same after a plan that could not put right everything: of that it stays recorded how it was left before, for
    /// that it is otherwise is no doing of the agent's.
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
        let recorded = desired.iter().filter(|(id, resource)| has_record(id.kind) && !is_brought(resource));
        for (id, resource) in recorded {
            let before = self.resources.get(id);
            if let Some(claim) = before.filter(|claim| claim.left.is_some() && is_unmended(id)) {
                settled.insert(id.clone(), Claim { begun: None, ..claim.clone() });
                continue;
            }
            // What was as it should be before the agent ever wrote it is not the agent's doing.
            let was_there = before.is_none_or(|claim| claim.was_there);
            let known = before.and_then(|claim| claim.left.as_ref());
            if let Some(left) = left(root, id, resource, known, written)? {
                settled.insert(id.clone(), Claim { was_there, left: Some(left), begun: None });
            }
        }
        self.resources = settled;
        Ok(())
    }

    /// Notes how these were left, of what is desired. All else stays recorded as it is.
    ///
    /// # Errors
    /// It cannot be looked at how they were left.
    pub(crate) fn settle_only<'a>(
        &mut self,
        root: &Root,
        ids: impl Iterator<Item = &'a ResourceId>,
        desired: &DesiredState,
        written: &BTreeMap<String, String>,
    ) -> Result<()> {
        for id in ids.filter(|id| written.contains_key(&path_of(root, id))) {
            let (Some(resource), Some(claim)) = (desired.get(id), self.resources.get(id)) else { continue };
            if let Some(left) = left(root, id, resource, claim.left.as_ref(), written)? {
                let settled = Claim { was_there: claim.was_there, left: Some(left), begun: None };
                self.resources.insert(id.clone(), settled);
            }
        }
        Ok(())
    }

    /// What of the desired is there and not the agent's yet.
    pub(crate) fn adoptable(&self, root: &Root, desired: &DesiredState) -> Result<Vec<ResourceId>> {
        let mut adoptable = Vec::new();
        for (id, resource) in desired.iter().filter(|(id, _)| has_record(id.kind)) {
            let is_own = self.resources.get(id).is_some_and(|claim| !claim.was_there);
            // Files do not tell of names and mounts; what is missing of them is made. A host without addresses has no line.
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
            if is_there && !is_own && !is_brought(resource) {
                adoptable.push(id.clone());
            }
        }
        Ok(adoptable)
    }

    /// Whether an interrupted run was to write a file and has not.
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

    /// Notes what is about to go into files. `without` is `None` where that is not known of the state. Where an older
    /// agent has left more than is noted, it stays unknown until the run settles.
    pub(crate) fn note_begun(&mut self, desired: &DesiredState, without: Option<&BTreeSet<String>>) {
        let begun = self.decided_now(desired, without);
        self.decided = match self.decided.take() {
            Some(before) => Some(before.and(begun)),
            None if self.is_first_sight() => Some(begun),
            None => None,
        };
    }

    /// Notes what has gone into files, now that nothing else is left of earlier runs, and which units do not run.
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
        Decided::of(desired, without.or_else(before).unwrap_or(&none))
    }
}

/// What is left of a resource, where that is a file or a link. `written` has the hashes of the files that the run
/// writes, by path.
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

/// Whether resources of a kind are recorded: what is in files, and nothing that others may use by now.
fn has_record(kind: Kind) -> bool {
    let is_file = matches!(kind, Kind::File | Kind::Unit | Kind::KernelModule | Kind::PackageSource);
    is_file || matches!(kind, Kind::Directory | Kind::Symlink | Kind::HostsEntry) || kind.is_mount()
}

/// Whether it is a unit whose file the distribution brings: that is none of the agent's.
fn is_brought(resource: &Resource) -> bool {
    matches!(resource, Resource::Unit(Unit { text: None, .. }))
}

fn left(
    root: &Root,
    id: &ResourceId,
    resource: &Resource,
    known: Option<&Left>,
    written: &BTreeMap<String, String>,
) -> Result<Option<Left>> {
    // Of a host without addresses there is no line.
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
        // In the place of a unit it is an operator's.
        Some(Entry::Symlink(_)) if id.kind == Kind::Unit => None,
        Some(Entry::Symlink(target)) => Some(Left::Symlink(target)),
        Some(Entry::Special) | None => None,
    })
}

/// Whether the file holds a certificate of the node's own, which expires.
fn has_certificate(resource: &Resource) -> bool {
    let Resource::File(file) = resource else { return false };
    matches!(file.content, Content::Certificate(_) | Content::Kubeconfig(_))
}
