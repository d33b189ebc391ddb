//! The file systems of a node's folders.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use kops_agent_plan::doctor::{Disk, Seen};
use nix::sys::statvfs::{FsFlags, statvfs};

use super::unreadable;

/// The file systems of `folders`. Several folders on one file system give one entry, with the first of these folders.
/// `folders` has the size of the files that will be written to each folder, in bytes. A missing folder is on the file
/// system of its closest existing parent.
pub(super) fn disks(root: &Path, folders: &[(String, u64)]) -> Seen<Vec<Disk>> {
    let mut disks: Vec<Disk> = Vec::new();
    let mut known: BTreeMap<u64, usize> = BTreeMap::new();
    for (folder, needed) in folders {
        let place = nearest(root, folder);
        let metadata = std::fs::metadata(&place).map_err(|error| unreadable(&place, error))?;
        if let Some(disk) = known.get(&metadata.dev()).and_then(|at| disks.get_mut(*at)) {
            disk.needed = disk.needed.saturating_add(*needed);
            continue;
        }
        let found = statvfs(&place).map_err(|error| unreadable(&place, error.into()))?;
        known.insert(metadata.dev(), disks.len());
        let unit = found.fragment_size();
        disks.push(Disk {
            path: folder.clone(),
            free: found.blocks_available().saturating_mul(unit),
            total: found.blocks().saturating_mul(unit),
            free_inodes: found.files_available(),
            inodes: found.files(),
            is_read_only: found.flags().contains(FsFlags::ST_RDONLY),
            needed: *needed,
        });
    }
    Ok(disks)
}

/// The closest existing folder at or above a path.
fn nearest(root: &Path, folder: &str) -> PathBuf {
    let mut place = root.join(folder.trim_start_matches('/'));
    while !place.is_dir() && place != root && place.pop() {}
    place
}
