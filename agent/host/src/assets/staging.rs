//! Files in preparation. They are written while their download arrives, in a cache directory that only its owner can
//! enter. Syncing starts early. After the download is verified, the files are moved into place.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kops_agent_plan::resource::ArchiveFiles;
use parking_lot::Mutex;

use super::syncer::Syncer;
use crate::error::{Error, Result};
use crate::root::{Dir, set_mode, set_owner};

const NAME: &str = "staging";
/// How many bytes of a file are written before the next sync starts.
const SYNCED_AT_ONCE: usize = 16 << 20;

/// A file to make from a download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Want {
    /// The final path of the file.
    pub(crate) path: String,
    /// The archive member that contains the content. `None` if the content is the whole download.
    pub(crate) member: Option<String>,
    pub(crate) mode: u32,
    /// The UID and GID of the file. `None` if the owner is not set, or if the file's user does not exist yet.
    pub(crate) owner: Option<(u32, u32)>,
}

#[derive(Clone)]
pub(super) struct Staging {
    dir: Arc<Dir>,
    made: Arc<AtomicU64>,
    seen: Arc<Mutex<ArchiveFiles>>,
}

impl Staging {
    /// Opens an empty staging directory in the cache.
    pub(super) fn open(cache: &Dir) -> Result<Staging> {
        let dir = cache.make_dir(NAME)?;
        dir.set_mode(0o700)?;
        dir.names()?.iter().try_for_each(|name| dir.remove(name))?;
        Ok(Staging { dir: Arc::new(dir), made: Arc::default(), seen: Arc::default() })
    }

    /// Notes the file list of a verified archive, by the archive's SHA-256.
    pub(super) fn saw(&self, archive: &str, files: BTreeSet<String>) {
        let mut seen = self.seen.lock();
        seen.insert(archive.to_owned(), files);
    }

    /// The file lists that were noted since the last call of this function.
    pub(super) fn take_seen(&self) -> ArchiveFiles {
        mem::take(&mut *self.seen.lock())
    }

    pub(super) fn free_space(&self) -> Result<u64> {
        Ok(self.dir.free_space()?.1)
    }

    pub(super) fn begin(&self, want: &Want) -> Result<Making> {
        let name = self.made.fetch_add(1, Ordering::Relaxed).to_string();
        let file = self.dir.create_new(&name)?;
        let ready =
            Ready { dir: Arc::clone(&self.dir), name, path: want.path.clone(), content: String::new() };
        let making = Making { file, unsynced: 0, ready };
        if let Some((uid, gid)) = want.owner {
            set_owner(&making.file, uid, gid).map_err(|error| making.failed("set the owner of", error))?;
        }
        // Set the mode after the owner, because a change of the owner clears mode bits.
        set_mode(&making.file, want.mode).map_err(|error| making.failed("set the mode of", error))?;
        Ok(making)
    }
}

/// A file that is being written. If this value is dropped before `seal`, the file is removed.
pub(super) struct Making {
    file: File,
    unsynced: usize,
    ready: Ready,
}

impl Making {
    fn failed(&self, doing: &'static str, error: std::io::Error) -> Error {
        Error::path(doing, self.shown(), error)
    }

    fn shown(&self) -> String {
        format!("{} for {}", self.ready.dir.shown(&self.ready.name), self.ready.path)
    }

    /// Appends bytes, and starts a sync after each `SYNCED_AT_ONCE` bytes.
    pub(super) fn write(&mut self, bytes: &[u8], syncer: &Syncer) -> Result<()> {
        self.file.write_all(bytes).map_err(|error| self.failed("write", error))?;
        self.unsynced += bytes.len();
        if self.unsynced >= SYNCED_AT_ONCE {
            self.unsynced = 0;
            syncer.begin(&self.file, || self.shown());
        }
        Ok(())
    }

    /// Marks the file as complete. The file is on the disk when `syncer` has finished. `sha256` is the hash of its content.
    pub(super) fn seal(mut self, sha256: &str, syncer: &Syncer) -> Ready {
        let shown = self.shown();
        sha256.clone_into(&mut self.ready.content);
        syncer.sync(self.file, shown);
        self.ready
    }
}

/// A complete file. Dropping this value removes the file, unless it was moved to its final path.
pub(crate) struct Ready {
    pub(crate) dir: Arc<Dir>,
    pub(crate) name: String,
    /// The final path of the file.
    pub(crate) path: String,
    /// The SHA-256 of the content.
    pub(crate) content: String,
}

impl Drop for Ready {
    fn drop(&mut self) {
        // If the file was moved to its final path, there is nothing to remove. If the removal fails, the next run removes the file.
        let _ = self.dir.remove(&self.name);
    }
}
