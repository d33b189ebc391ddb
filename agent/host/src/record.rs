//! The record: what the agent left on this machine, so that it can tell what others changed since, what was its
//! own and is no longer wanted, and which big files need no reading because nothing has touched them.
//!
//! A resource is claimed before it is first written and settled after a run: whatever interrupts a run, nothing of
//! the agent's is left unclaimed. Without the record nothing is lost but this
//! knowledge.

mod begun;
mod decided;
mod reading;

use std::collections::BTreeMap;

use kops_agent_plan::diff::{Action, Keeping, Kept, Owned, OwnedNow, OwnedState, Plan};
use kops_agent_plan::resource::{Content, DesiredState, File, Kind, Resource, ResourceId, Unit};
use serde::{Deserialize, Serialize};

use crate::digests::Digests;
use crate::error::Result;
use crate::hosts_file;
use crate::observe::digest;
use crate::rollback::{Attempt, RolledBack};
use crate::root::{Dir, Entry, Metadata, Root};
use crate::system::kernel::boot_file;
use crate::system::packages::list_path;
use crate::unit_path::{is_kept_when_written, unit_path};
use begun::Begun;
pub use decided::Decided;
use reading::Unknown;

/// What was left on a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Record {
    /// `NodeupConfigHash` of the configuration to which the machine last converged; empty before it did.
    pub config_hash: String,
    /// Since when it is converged to that, in RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub converged_since: Option<String>,
    /// What the last run failed with, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// The change that was taken back since, if one was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rolled_back: Option<RolledBack>,
    /// The configuration of other machines that has taken the place of this one's, if one has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub superseded: Option<Superseded>,
    /// What tells the state that was last settled from all others; `None` where an earlier version of the agent settled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) settled_state: Option<String>,
    /// What tells the state to which a run is under way, or was interrupted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) begun_state: Option<String>,
    /// Why certificates could not be renewed that had to be taken back, and when: they are not tried again at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) renewal_failure: Option<Failure>,
    /// The hashes of downloads that were told, by URL.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub known_hashes: BTreeMap<String, String>,
    /// What of the store is in the files that are on this machine; `None` where that is not known, as after a run of an
    /// agent that did not note it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided: Option<Decided>,
    resources: BTreeMap<ResourceId, Claim>,
    /// What other versions of the agent recorded of a run.
    #[serde(flatten)]
    other: BTreeMap<String, serde_json::Value>,
    #[serde(skip)]
    unknown: Unknown,
    /// Why the record that is there cannot be read, where it cannot be.
    #[serde(skip)]
    pub(crate) unreadable: Option<String>,
    /// Whether a record was lost, now or since the agent came to this machine.
    #[serde(skip)]
    pub(crate) was_lost: bool,
}

/// How a run failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// When, in RFC 3339.
    pub at: String,
    /// With what, and what to do about it.
    pub problem: String,
}

/// A configuration that machines get which are made from now on, while this one is pinned to that of before: as
/// between `kops update cluster` and the rolling update.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Superseded {
    /// Since when that is known, in RFC 3339.
    pub since: String,
    /// `NodeupConfigHash` of the other configuration.
    pub by: String,
}

/// One resource of the agent's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Claim {
    /// Whether something was there before the agent first wrote it.
    #[serde(default, skip_serializing_if = "is_false")]
    was_there: bool,
    /// As it was left; `None` where a run was interrupted before that was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left: Option<Left>,
    /// As a run that is under way, or was interrupted, writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    begun: Option<Begun>,
}

impl Claim {
    fn new(was_there: bool) -> Claim {
        Claim { was_there, left: None, begun: None }
    }
}

/// How a resource was left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Left {
    /// A regular file; that of a unit or of a kernel module, too.
    File {
        /// SHA-256 of its content; `None` where the content is others' business.
        sha256: Option<String>,
        /// Permission bits, owner and group, and by what the kernel tells that it was touched.
        metadata: Metadata,
        /// Whether a certificate of the node's own is in it.
        #[serde(default, skip_serializing_if = "is_false")]
        certificate: bool,
    },
    /// A directory.
    Directory(Metadata),
    /// A symbolic link to this target.
    Symlink(String),
    /// A name in `/etc/hosts`.
    HostsEntry,
    /// Something mounted.
    Mount,
}

pub(crate) fn is_false(value: &bool) -> bool {
    !value
}

/// Whether big files are read, or taken for unchanged as long as nothing has touched them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Depth {
    /// By size, inode and times.
    #[default]
    Touched,
    /// By every byte.
    Content,
}

impl Record {
    /// Where it is, below the root.
    pub const PATH: &'static str = "/var/lib/kops-agent/record.json";

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
                // No mount outlives a boot: whoever mounts it has it.
                claim.was_there &= was_there || !step.resource.kind.is_mount();
                claim.begun =
                    resource.and_then(|resource| Begun::of(resource, written)).or(claim.begun.take());
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

    /// Forgets that these were begun, of which nothing was written.
    pub(crate) fn forget_begun<'a>(&mut self, ids: impl Iterator<Item = &'a ResourceId>) {
        for id in ids {
            match self.resources.get_mut(id) {
                Some(claim) if claim.left.is_some() => claim.begun = None,
                Some(_) => drop(self.resources.remove(id)),
                None => {}
            }
        }
    }

    /// Whether no run has ever claimed anything here: whatever there is was made by other programs.
    pub(crate) fn is_first_sight(&self) -> bool {
        self.config_hash.is_empty() && self.resources.is_empty()
    }

    /// Whether a file has other content than a run has left it with.
    pub(crate) fn is_edited(&self, id: &ResourceId, content: &str) -> bool {
        match self.resources.get(id).and_then(|claim| claim.left.as_ref()) {
            Some(Left::File { sha256: Some(left), .. }) => left != content,
            _ => false,
        }
    }

    /// Whether a run has settled with something.
    pub(crate) fn is_claimed(&self, id: &ResourceId) -> bool {
        self.resources.get(id).is_some_and(|claim| claim.left.is_some())
    }

    /// Whether something was left by a run that first made it.
    pub(crate) fn is_own(&self, id: &ResourceId) -> bool {
        self.resources.get(id).is_some_and(|claim| !claim.was_there && claim.left.is_some())
    }

    /// What of the desired is there and not the agent's yet.
    pub(crate) fn adoptable(&self, root: &Root, desired: &DesiredState) -> Result<Vec<ResourceId>> {
        let mut adoptable = Vec::new();
        for (id, resource) in desired.iter().filter(|(id, _)| has_record(id.kind)) {
            let is_own = self.resources.get(id).is_some_and(|claim| !claim.was_there);
            // Files do not tell of names and mounts; what is missing of them is made.
            let is_there = id.kind == Kind::HostsEntry
                || id.kind.is_mount()
                || match root.parent(&path_of(root, id))? {
                    Some((dir, name)) => match dir.entry(&name)? {
                        Some(Entry::Symlink(_)) => id.kind != Kind::Unit,
                        entry => entry.is_some(),
                    },
                    None => false,
                };
            if is_there && !is_own && !is_brought(resource) {
                adoptable.push(id.clone());
            }
        }
        Ok(adoptable)
    }

    /// Whether a run was interrupted that wrote any of these.
    pub(crate) fn has_begun(&self, which: impl Fn(&ResourceId) -> bool) -> bool {
        self.resources.iter().any(|(id, claim)| claim.begun.is_some() && which(id))
    }

    /// Forgets what was claimed since everything was last settled: the change that it was for was taken back.
    pub(crate) fn unclaim(&mut self) {
        self.begun_state = None;
        self.resources.retain(|_, claim| claim.left.is_some());
        self.resources.values_mut().for_each(|claim| claim.begun = None);
    }

    /// Whether a run has begun to write something and has not come to its end: it is at work, or was interrupted.
    pub(crate) fn is_begun(&self) -> bool {
        self.resources.values().any(|claim| claim.begun.is_some() || claim.left.is_none())
    }

    /// Whether a run has begun a change to another state than the settled one, and has not come to its end.
    pub(crate) fn has_begun_change(&self) -> bool {
        self.is_begun() && (self.begun_state.is_none() || self.begun_state != self.settled_state)
    }

    /// Whether this is the state that was last settled.
    pub(crate) fn is_settled_with(&self, attempt: &Attempt) -> bool {
        match &self.settled_state {
            Some(settled) => settled == attempt.digest(),
            None => self.config_hash == attempt.config_hash(),
        }
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

    /// The SHA-256 of the content that an interrupted run was to write into a file.
    pub(crate) fn begun_sha256(&self, path: &str) -> Option<&str> {
        self.resources.get(&ResourceId::new(Kind::File, path))?.begun.as_ref()?.sha256()
    }

    /// Whether a file with this content is as the agent left it: to write it is to repair, and no change.
    pub(crate) fn has_left(&self, id: &ResourceId, content: &str) -> bool {
        match self.resources.get(id).and_then(|claim| claim.left.as_ref()) {
            Some(Left::File { sha256, .. }) => sha256.as_deref() == Some(content),
            Some(Left::Symlink(target)) => target == content,
            _ => false,
        }
    }

    /// Everything that was left, as it is now; mounts as if they were there. With `deep`, big files are read although nothing has touched them.
    pub(crate) fn owned(&self, root: &Root, deep: Option<&Digests>) -> Result<OwnedState> {
        if let Some(digests) = deep {
            digests.read_ahead(root, &self.largest_first(root))?;
        }
        let hosts = root.read(hosts_file::PATH)?.unwrap_or_default();
        let hosts = String::from_utf8_lossy(&hosts);
        let mut owned = OwnedState::new();
        for (id, claim) in &self.resources {
            let now = now(root, id, claim, &hosts, deep)?;
            owned.insert(id.clone(), Owned { was_there: claim.was_there, now });
        }
        Ok(owned)
    }

    /// The files whose content is known, by path.
    fn largest_first(&self, root: &Root) -> Vec<String> {
        let known = |(id, claim): (&ResourceId, &Claim)| match &claim.left {
            Some(Left::File { sha256: Some(_), metadata, .. }) => Some((metadata.size, path_of(root, id))),
            _ => None,
        };
        let mut files: Vec<(u64, String)> = self.resources.iter().filter_map(known).collect();
        files.sort_by_key(|(size, _)| std::cmp::Reverse(*size));
        files.into_iter().map(|(_, path)| path).collect()
    }

    /// The SHA-256 that a file of this metadata must have, because nothing has touched it since it was known.
    pub(crate) fn known_sha256(&self, path: &str, metadata: &Metadata) -> Option<&str> {
        match self.resources.get(&ResourceId::new(Kind::File, path))?.left.as_ref()? {
            Left::File { sha256: Some(sha256), metadata: known, .. } if known.is_untouched(metadata) => {
                Some(sha256)
            }
            _ => None,
        }
    }

    /// The SHA-256 of the content with which a file was left, where that is recorded.
    pub(crate) fn left_sha256(&self, path: &str) -> Option<&str> {
        match self.resources.get(&ResourceId::new(Kind::File, path))?.left.as_ref()? {
            Left::File { sha256, .. } => sha256.as_deref(),
            _ => None,
        }
    }

    /// Everything that is recorded, and whether something was there before the agent first wrote it.
    pub(crate) fn claims(&self) -> impl Iterator<Item = (&ResourceId, bool)> {
        self.resources.iter().map(|(id, claim)| (id, claim.was_there))
    }

    /// The units whose files the agent wrote, by name.
    pub(crate) fn units(&self) -> Vec<&str> {
        let units = self.resources.iter().filter(|(id, claim)| id.kind == Kind::Unit && claim.left.is_some());
        units.map(|(id, _)| id.name.as_str()).collect()
    }

    /// The units whose files the agent wrote, by name, and the SHA-256 with which each was left.
    pub(crate) fn unit_texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.resources.iter().filter_map(|(id, claim)| match &claim.left {
            Some(Left::File { sha256: Some(sha256), .. }) if id.kind == Kind::Unit => {
                Some((id.name.as_str(), sha256.as_str()))
            }
            _ => None,
        })
    }

    /// The files that hold certificates of the node's own, by path.
    pub(crate) fn certificates(&self) -> impl Iterator<Item = &str> {
        self.resources.iter().filter_map(|(id, claim)| match &claim.left {
            Some(Left::File { certificate: true, .. }) => Some(id.name.as_str()),
            _ => None,
        })
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

/// Where a recorded resource is: the file that it is, or the path that names it.
pub(crate) fn path_of(root: &Root, id: &ResourceId) -> String {
    file_path(root, id).unwrap_or_else(|| id.name.clone())
}

/// The file that a resource is, where it is one.
fn file_path(root: &Root, id: &ResourceId) -> Option<String> {
    match id.kind {
        Kind::File => Some(id.name.clone()),
        Kind::Unit => Some(unit_path(root, &id.name)),
        Kind::KernelModule => Some(boot_file(&id.name)),
        Kind::PackageSource => Some(list_path(&id.name)),
        _ => None,
    }
}

/// The file that is written anew where a resource is made or changed.
pub(crate) fn written_file(root: &Root, id: &ResourceId) -> Option<String> {
    match id.kind {
        Kind::Symlink => Some(id.name.clone()),
        Kind::HostsEntry => Some(hosts_file::PATH.to_owned()),
        _ => file_path(root, id),
    }
}

fn left(
    root: &Root,
    id: &ResourceId,
    resource: &Resource,
    known: Option<&Left>,
    written: &BTreeMap<String, String>,
) -> Result<Option<Left>> {
    if id.kind == Kind::HostsEntry {
        return Ok(Some(Left::HostsEntry));
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

fn now(root: &Root, id: &ResourceId, claim: &Claim, hosts: &str, deep: Option<&Digests>) -> Result<OwnedNow> {
    if id.kind == Kind::HostsEntry {
        let is_there = hosts_file::find(hosts, &id.name).is_some();
        return Ok(if is_there { OwnedNow::AsLeft } else { OwnedNow::Gone });
    }
    if id.kind.is_mount() {
        // Files do not tell.
        return Ok(OwnedNow::AsLeft);
    }
    let path = path_of(root, id);
    let Some((dir, name)) = root.parent(&path)? else { return Ok(OwnedNow::Gone) };
    let Some(entry) = dir.entry(&name)? else { return Ok(OwnedNow::Gone) };
    let mut how = Vec::new();
    match (&claim.left, &entry) {
        (Some(Left::File { sha256, metadata: known, .. }), Entry::File(metadata)) => {
            if let Some(sha256) = sha256
                && has_other_content(&path, &dir, &name, sha256, known, metadata, deep)?
            {
                how.push("content".to_owned());
            }
            // What was only to be made, as a log, is others' business from then on: nothing would put it right either.
            if sha256.is_some() {
                known.add_differences(metadata, &mut how);
            }
        }
        (Some(Left::Directory(known)), Entry::Directory(metadata)) => {
            known.add_differences(metadata, &mut how)
        }
        (Some(Left::Symlink(known)), Entry::Symlink(target)) if known == target => {}
        (Some(Left::Symlink(_)), Entry::Symlink(_)) => how.push("target".to_owned()),
        (Some(_), _) => how.push("type".to_owned()),
        // A run was interrupted before it was known how it was left.
        (None, _) => how.push("content".to_owned()),
    }
    if let (false, Some(begun)) = (how.is_empty(), &claim.begun)
        && begun.is_at(&dir, &name, &entry)?
    {
        return Ok(OwnedNow::AsLeft);
    }
    Ok(if how.is_empty() { OwnedNow::AsLeft } else { OwnedNow::Changed(how) })
}

fn has_other_content(
    path: &str,
    dir: &Dir,
    name: &str,
    sha256: &str,
    known: &Metadata,
    metadata: &Metadata,
    deep: Option<&Digests>,
) -> Result<bool> {
    if known.size != metadata.size {
        return Ok(true);
    }
    Ok(match deep {
        None if known.is_untouched(metadata) => false,
        None => digest(dir, name)? != sha256,
        Some(digests) => digests.of(path, dir, name, metadata)? != sha256,
    })
}

impl Metadata {
    /// Whether a file that had these was not written since: the kernel sets the time of change, and nobody else.
    pub(crate) fn is_untouched(&self, now: &Metadata) -> bool {
        (self.inode, self.size, self.changed) == (now.inode, now.size, now.changed)
    }

    fn add_differences(&self, now: &Metadata, how: &mut Vec<String>) {
        if self.mode != now.mode {
            how.push("mode".to_owned());
        }
        if (self.uid, self.gid) != (now.uid, now.gid) {
            how.push("owner".to_owned());
        }
    }
}

#[cfg(test)]
mod tests;
