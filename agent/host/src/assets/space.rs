//! Checks the free disk space before the first byte is downloaded.

use std::collections::BTreeMap;

use super::error::DownloadError;
use crate::error::Result;
use crate::root::{Dir, Root};

/// The ratio of an archive's unpacked size to its packed size. Go programs are the largest part of a node, and compress to between a half
/// and a quarter of their size.
const UNPACKED: u64 = 3;

/// The required space on each file system.
#[derive(Debug, Default)]
pub(super) struct Space(BTreeMap<u64, Need>);

#[derive(Debug)]
struct Need {
    folder: String,
    needed: u64,
    free: u64,
}

impl Space {
    /// Adds `bytes` to the required space of the file system that contains `dir`.
    pub(super) fn add(&mut self, dir: &Dir, bytes: u64) -> Result<()> {
        let (device, free) = dir.free_space()?;
        let need = self.0.entry(device).or_insert_with(|| Need { folder: dir.shown(""), needed: 0, free });
        need.needed = need.needed.saturating_add(bytes);
        Ok(())
    }

    pub(super) fn check(&self) -> Result<(), DownloadError> {
        match self.0.values().find(|need| need.needed > need.free) {
            None => Ok(()),
            Some(Need { folder, needed, free }) => {
                Err(DownloadError::NoSpace { folder: folder.clone(), needed: *needed, free: *free })
            }
        }
    }
}

/// The nearest existing directory above a path.
pub(super) fn nearest(root: &Root, path: &str) -> Result<Option<Dir>> {
    let mut above = path.trim_end_matches('/');
    while let Some((shorter, _)) = above.rsplit_once('/') {
        if let Some(dir) = root.dir(shorter)? {
            return Ok(Some(dir));
        }
        above = shorter;
    }
    Ok(None)
}

/// Estimates the size of the files that are made from a download of this size.
pub(super) fn unpacked(size: u64, wholes: usize, has_members: bool) -> u64 {
    let wholes = size.saturating_mul(wholes as u64);
    let members = if has_members { size.saturating_mul(UNPACKED) } else { 0 };
    wholes.saturating_add(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needed_space_adds_up_by_file_system() {
        let temp = tempfile::tempdir().unwrap();
        let root = Root::open(temp.path()).unwrap();
        let dir = root.make_dirs("/var/cache").unwrap();
        let (_, free) = dir.free_space().unwrap();
        let mut space = Space::default();
        space.add(&dir, free / 2).unwrap();
        space.check().unwrap();
        space.add(&nearest(&root, "/opt/cni/bin/x").unwrap().unwrap(), free / 2).unwrap();
        space.add(&dir, u64::MAX).unwrap();
        let error = space.check().unwrap_err().to_string();
        assert!(
            error.contains("/var/cache:") && error.contains("needed") && error.contains("free"),
            "{error}"
        );
    }

    #[test]
    fn archives_grow_and_copies_add_up() {
        assert_eq!(unpacked(10, 2, false), 20);
        assert_eq!(unpacked(10, 1, true), 40);
        assert_eq!(unpacked(u64::MAX, 2, true), u64::MAX);
    }
}
