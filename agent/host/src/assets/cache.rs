//! The cache directory of downloads. It has complete files, which are verified and named by hash, and parts of files
//! whose download can resume.
//!
//! The content is never trusted: a complete file is hashed on use, a part when its download resumes. So nothing is
//! synced. A file that a power failure damages is removed and downloaded again.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use kops_agent_plan::resource::ArchiveFiles;
use kops_agent_spec::digest::is_sha256_hex;
use nix::fcntl::{Flock, FlockArg};

use super::staging::Staging;
use crate::error::{Error, Result};
use crate::root::{Dir, Entry, Root};

/// The default cache directory. Upstream's nodeup uses the same directory.
const DEFAULT: &str = "/var/cache/nodeup";
const LOCK: &str = ".kops-agent.lock";
const PART: &str = ".part";
const VALIDATOR: &str = ".part.validator";

#[derive(Clone)]
pub(crate) struct Cache {
    pub(super) dir: Arc<Dir>,
    staging: Staging,
    _lock: Arc<Flock<File>>,
}

impl Cache {
    /// Opens the cache in the directory `path` of the machine. Without `path`, opens the default directory below the root. Removes files
    /// that a killed run has unpacked. Fails if another run uses the cache.
    pub(crate) fn open(root: &Root, path: Option<&Path>) -> Result<Cache> {
        let dir = match path {
            Some(path) => Root::open(path)?.make_dirs("/.")?,
            None => root.make_dirs(DEFAULT)?,
        };
        Cache::new(dir)
    }

    pub(crate) fn open_existing(root: &Root, path: Option<&Path>) -> Result<Option<Cache>> {
        let dir = match path {
            Some(path) if path.is_dir() => Root::open(path)?.dir("/")?,
            Some(_) => None,
            None => root.dir(DEFAULT)?,
        };
        dir.map(Cache::new).transpose()
    }

    fn new(dir: Dir) -> Result<Cache> {
        // The lock is on a file that only root can open, and not on the directory, because any user could open and lock the directory.
        let lock = dir.open_or_create(LOCK)?;
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(|_| Error::Path {
            doing: "use",
            path: dir.shown(LOCK),
            reason: "another kops-agent uses this cache; wait until it has finished".into(),
        })?;
        let staging = Staging::open(&dir)?;
        Ok(Cache { dir: Arc::new(dir), staging, _lock: Arc::new(lock) })
    }

    pub(super) fn staging(&self) -> &Staging {
        &self.staging
    }

    /// The file lists of the archives that were unpacked since the last call.
    pub(crate) fn take_seen(&self) -> ArchiveFiles {
        self.staging.take_seen()
    }

    /// Opens a complete download and returns its size.
    pub(crate) fn get(&self, sha256: &str, url: &str) -> Result<Option<(File, u64)>> {
        let name = name(sha256, url);
        match self.dir.entry(&name)? {
            Some(Entry::File(metadata)) => Ok(Some((self.dir.open(&name)?, metadata.size))),
            _ => Ok(None),
        }
    }

    /// Removes a damaged download.
    pub(super) fn remove(&self, sha256: &str, url: &str) -> Result<()> {
        self.dir.remove(&name(sha256, url))
    }

    /// The number of downloaded bytes of an incomplete download.
    pub(super) fn part_size(&self, sha256: &str, url: &str) -> Result<u64> {
        match self.dir.entry(&format!("{}{PART}", name(sha256, url)))? {
            Some(Entry::File(metadata)) => Ok(metadata.size),
            _ => Ok(0),
        }
    }

    /// Opens the file of an incomplete download. Creates the file if it is missing.
    pub(super) fn part(&self, sha256: &str, url: &str) -> Result<Part> {
        let name = name(sha256, url);
        let file = self.dir.open_or_create(&format!("{name}{PART}"))?;
        Ok(Part { dir: Arc::clone(&self.dir), name, file })
    }
}

/// The file name of a download: its hash, and the last path segment of its URL.
fn name(sha256: &str, url: &str) -> String {
    let path = url.split(['?', '#']).next().unwrap_or(url);
    let base = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let base: String = base.chars().map(|c| if is_plain(c) { c } else { '_' }).take(100).collect();
    format!("{sha256}_{base}")
}

/// The hash in the file name of a complete or incomplete download. `None` for files of other programs.
pub(super) fn hash_in(name: &str) -> Option<&str> {
    let (hash, _) = name.split_once('_')?;
    is_sha256_hex(hash).then_some(hash)
}

/// An incomplete download.
pub(super) struct Part {
    dir: Arc<Dir>,
    name: String,
    pub(super) file: File,
}

impl Part {
    fn beside(&self, suffix: &str) -> String {
        format!("{}{suffix}", self.name)
    }

    pub(super) fn failed(&self, doing: &'static str, error: std::io::Error) -> Error {
        Error::path(doing, self.dir.shown(&self.beside(PART)), error)
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|error| self.failed("write", error))
    }

    pub(super) fn clear(&mut self) -> Result<()> {
        self.dir.remove(&self.beside(VALIDATOR))?;
        self.file
            .set_len(0)
            .and_then(|()| self.file.seek(SeekFrom::Start(0)))
            .map(drop)
            .map_err(|error| self.failed("write", error))
    }

    /// Notes the URL of this incomplete download, and the server's identifier of the file's version (`ETag`; RFC 9110, section 8.8.3).
    /// With this identifier, the next run can request the missing bytes of the same version.
    pub(super) fn note_validator(&self, from: &str, validator: Option<&str>) -> Result<()> {
        let name = self.beside(VALIDATOR);
        self.dir.remove(&name)?;
        let Some(validator) = validator else { return Ok(()) };
        self.dir
            .create_new(&name)?
            .write_all(format!("{from}\n{validator}\n").as_bytes())
            .map_err(|error| Error::path("write", self.dir.shown(&name), error))
    }

    /// The URL and the server's version identifier that [`Part::note_validator`] wrote. `None` if there is no complete note.
    pub(super) fn validator(&self) -> Result<Option<(String, String)>> {
        let name = self.beside(VALIDATOR);
        if !matches!(self.dir.entry(&name)?, Some(Entry::File(_))) {
            return Ok(None);
        }
        let text = String::from_utf8(self.dir.read(&name)?).unwrap_or_default();
        Ok(text.trim_end().split_once('\n').map(|(from, validator)| (from.to_owned(), validator.to_owned())))
    }

    /// Renames the file of the partial download to the name of a complete download. The caller has verified the hash.
    pub(super) fn keep(self) -> Result<()> {
        self.dir.remove(&self.beside(VALIDATOR))?;
        self.dir.rename(&self.beside(PART), &self.name)
    }

    pub(super) fn discard(self) -> Result<()> {
        self.dir.remove(&self.beside(VALIDATOR))?;
        self.dir.remove(&self.beside(PART))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

    #[test]
    fn a_part_is_resumed_and_completed() {
        let temp = tempfile::tempdir().unwrap();
        let cache = Cache::open(&Root::open(temp.path()).unwrap(), None).unwrap();
        let url = "https://example.com/dir/file?x=1";
        let mut part = cache.part(HASH, url).unwrap();
        part.write(b"hel").unwrap();
        part.note_validator(url, Some("\"v1\"")).unwrap();
        assert_eq!(part.validator().unwrap(), Some((url.to_owned(), "\"v1\"".to_owned())));
        assert_eq!(cache.part_size(HASH, url).unwrap(), 3);
        assert!(cache.get(HASH, url).unwrap().is_none());
        let mut part = cache.part(HASH, url).unwrap();
        part.file.seek(SeekFrom::End(0)).unwrap();
        part.write(b"lo").unwrap();
        part.keep().unwrap();
        assert_eq!(cache.get(HASH, url).unwrap().unwrap().1, 5);
        let names = cache.dir.names().unwrap();
        assert_eq!(names, [LOCK.to_owned(), format!("{HASH}_file"), "staging".into()]);
        cache.part(HASH, url).unwrap().discard().unwrap();
        assert_eq!(cache.part_size(HASH, url).unwrap(), 0);
    }

    #[test]
    fn file_names_are_plain_whatever_the_url() {
        assert_eq!(name("ab", "https://x/a%2Fb/../c:d/"), "ab_c_d");
        assert_eq!(name("ab", ""), "ab_");
        assert_eq!(hash_in(&format!("{HASH}_x.part")), Some(HASH));
        for foreign in ["staging", "ab_x", &format!("sha256:{HASH}_x"), &HASH.to_uppercase()] {
            assert_eq!(hash_in(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn two_runs_cannot_share_a_cache() {
        let temp = tempfile::tempdir().unwrap();
        let root = Root::open(temp.path()).unwrap();
        assert!(Cache::open_existing(&root, None).unwrap().is_none());
        let cache = Cache::open(&root, None).unwrap();
        let error = Cache::open_existing(&root, None).err().unwrap().to_string();
        assert!(error.contains("/var/cache/nodeup") && error.contains("another kops-agent"), "{error}");
        drop(cache);
        assert!(Cache::open_existing(&root, None).unwrap().is_some());
    }
}
