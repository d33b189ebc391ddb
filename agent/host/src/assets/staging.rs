//! Files in the making: written while their download arrives, in a directory of the cache that only its owner
//! may enter, on the disk early, and moved to where they belong once the download is verified.

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
/// So much of a file is sent on its way to the disk at a time.
const SYNCED_AT_ONCE: usize = 16 << 20;

/// A file that is to be made of a download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Want {
    /// Where it will be.
    pub(crate) path: String,
    /// What of the archive it is; `None` where it is the download itself.
    pub(crate) member: Option<String>,
    pub(crate) mode: u32,
    /// User and group, as far as they are to be set and exist by now.
    pub(crate) owner: Option<(u32, u32)>,
}

#[derive(Clone)]
pub(super) struct Staging {
    dir: Arc<Dir>,
    made: Arc<AtomicU64>,
    seen: Arc<Mutex<ArchiveFiles>>,
}

impl Staging {
    /// Opens it in the cache, empty.
    pub(super) fn open(cache: &Dir) -> Result<Staging> {
        let dir = cache.make_dir(NAME)?;
        dir.set_mode(0o700)?;
        dir.names()?.iter().try_for_each(|name| dir.remove(name))?;
        Ok(Staging { dir: Arc::new(dir), made: Arc::default(), seen: Arc::default() })
    }

    /// Notes the files of an archive that is verified, by its SHA-256.
    pub(super) fn saw(&self, archive: &str, files: BTreeSet<String>) {
        let mut seen = self.seen.lock();
        seen.insert(archive.to_owned(), files);
    }

    /// What was noted of archives since it was last taken.
    pub(super) fn take_seen(&self) -> ArchiveFiles {
        mem::take(&mut *self.seen.lock())
    }

    /// How many bytes are free where files are made.
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
        // After the owner, because a change of owner takes bits away.
        set_mode(&making.file, want.mode).map_err(|error| making.failed("set the mode of", error))?;
        Ok(making)
    }
}

/// A file that is being written. Dropped, it was never there.
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

    /// Adds bytes; from time to time they are sent on their way to the disk.
    pub(super) fn write(&mut self, bytes: &[u8], syncer: &Syncer) -> Result<()> {
        self.file.write_all(bytes).map_err(|error| self.failed("write", error))?;
        self.unsynced += bytes.len();
        if self.unsynced >= SYNCED_AT_ONCE {
            self.unsynced = 0;
            syncer.begin(&self.file, || self.shown());
        }
        Ok(())
    }

    /// That was all of it; it is on the disk once `syncer` has finished. `sha256` is that of its bytes.
    pub(super) fn seal(mut self, sha256: &str, syncer: &Syncer) -> Ready {
        let shown = self.shown();
        sha256.clone_into(&mut self.ready.content);
        syncer.sync(self.file, shown);
        self.ready
    }
}

/// A file that is complete. Dropped before it was moved away, it was never there.
pub(crate) struct Ready {
    /// The directory that it is in.
    pub(crate) dir: Arc<Dir>,
    pub(crate) name: String,
    /// Where it belongs.
    pub(crate) path: String,
    /// SHA-256 of its bytes.
    pub(crate) content: String,
}

impl Drop for Ready {
    fn drop(&mut self) {
        // Gone already where it was moved to its place; else the next run removes what this one cannot.
        let _ = self.dir.remove(&self.name);
    }
}
