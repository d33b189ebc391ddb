//! The entries of a directory.

use nix::sys::stat::FileStat;
use serde::{Deserialize, Serialize};

pub(crate) enum Entry {
    File(Metadata),
    Directory(Metadata),
    /// The target of a symbolic link.
    Symlink(String),
    /// A device, socket or pipe.
    Special,
}

impl Entry {
    pub(crate) fn describe(&self) -> String {
        match self {
            Entry::File(_) => "a file".into(),
            Entry::Directory(_) => "a directory".into(),
            Entry::Symlink(target) => format!("a symbolic link to {target}"),
            Entry::Special => "a device, socket or pipe".into(),
        }
    }
}

/// The mode and owner of a file or directory, and the fields that show whether it was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The size in bytes.
    pub(crate) size: u64,
    pub(crate) inode: u64,
    /// When content or metadata last changed (ctime), in seconds and nanoseconds since 1970. Only the kernel sets it.
    pub(crate) changed: (i64, i64),
}

impl From<FileStat> for Metadata {
    fn from(stat: FileStat) -> Metadata {
        Metadata {
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            inode: stat.st_ino,
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

impl Metadata {
    /// Whether a file was unchanged between the reading of `self` and the reading of `now`. This is reliable, because only the kernel sets
    /// the time of change.
    pub(crate) fn is_untouched(&self, now: &Metadata) -> bool {
        (self.inode, self.size, self.changed) == (now.inode, now.size, now.changed)
    }
}
