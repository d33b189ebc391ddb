//! The current state of recorded resources.

use kops_agent_plan::diff::{Owned, OwnedNow, OwnedState};
use kops_agent_plan::resource::{Kind, ResourceId};

use super::Record;
use super::claim::{Claim, Left};
use crate::digests::{Digests, digest};
use crate::error::Result;
use crate::hosts_file;
use crate::places::path_of;
use crate::root::{Dir, Entry, Metadata, Root};

impl Record {
    /// The current state of all recorded resources. Mounts count as present. With `deep`, also reads large files that have not been
    /// touched.
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

    /// Whether a run wrote this resource, and no other program has changed it since.
    pub(crate) fn is_as_left(&self, root: &Root, id: &ResourceId) -> Result<bool> {
        let Some(claim) = self.resources.get(id) else { return Ok(false) };
        Ok(now(root, id, claim, "", None)? == OwnedNow::AsLeft)
    }

    /// The paths of the files whose content is recorded, largest first.
    fn largest_first(&self, root: &Root) -> Vec<String> {
        let known = |(id, claim): (&ResourceId, &Claim)| match &claim.left {
            Some(Left::File { sha256: Some(_), metadata, .. }) => Some((metadata.size, path_of(root, id))),
            _ => None,
        };
        let mut files: Vec<(u64, String)> = self.resources.iter().filter_map(known).collect();
        files.sort_by_key(|(size, _)| std::cmp::Reverse(*size));
        files.into_iter().map(|(_, path)| path).collect()
    }
}

fn now(root: &Root, id: &ResourceId, claim: &Claim, hosts: &str, deep: Option<&Digests>) -> Result<OwnedNow> {
    if id.kind == Kind::HostsEntry {
        let is_there = hosts_file::find(hosts, &id.name).is_some();
        return Ok(if is_there { OwnedNow::AsLeft } else { OwnedNow::Gone });
    }
    if id.kind.is_mount() {
        // For a mount, the record has no details that could be compared. So the mount counts as unchanged.
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
            // If a file has no recorded hash, the agent only creates it and does not manage its content, as for a log. A repair would not
            // remove differences, so they are ignored.
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
        // An interrupted run has not recorded the state of this resource.
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
        Some(digests) => digests.digest(path, dir, name, metadata)? != sha256,
    })
}

impl Metadata {
    fn add_differences(&self, now: &Metadata, how: &mut Vec<String>) {
        if self.mode != now.mode {
            how.push("mode".to_owned());
        }
        if (self.uid, self.gid) != (now.uid, now.gid) {
            how.push("owner".to_owned());
        }
    }
}
