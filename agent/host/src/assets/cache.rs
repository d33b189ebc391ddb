//! The directory that downloads go to: whole and verified under their hash, or as parts to go on with.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::{BUFFER, for_each_piece, hex};
use crate::error::{Error, Result};
use crate::root::{Dir, Entry, Root};

/// Where downloads are kept, unless told otherwise. Upstream's nodeup keeps them there too.
const DEFAULT: &str = "/var/cache/nodeup";

/// The cache of one run.
#[derive(Clone)]
pub(crate) struct Cache(Arc<Dir>);

impl Cache {
    /// Opens the cache in `path`, a directory of the machine; or below the root, where it is by default.
    pub(crate) fn open(root: &Root, path: Option<&Path>) -> Result<Cache> {
        let dir = match path {
            Some(path) => Root::open(path)?.make_dirs("/.")?,
            None => root.make_dirs(DEFAULT)?,
        };
        Ok(Cache(Arc::new(dir)))
    }

    /// The name of a download: its hash, and what people call it.
    fn name(sha256: &str, url: &str) -> String {
        let path = url.split(['?', '#']).next().unwrap_or(url);
        let base = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let base: String = base.chars().map(|c| if is_plain(c) { c } else { '_' }).take(100).collect();
        format!("{sha256}_{base}")
    }

    /// Opens a download that is there as a whole.
    pub(crate) fn get(&self, sha256: &str, url: &str) -> Result<Option<File>> {
        let name = Cache::name(sha256, url);
        match self.0.entry(&name)? {
            Some(Entry::File(_)) => self.0.open(&name).map(Some),
            _ => Ok(None),
        }
    }

    /// Whether a download is there and unchanged. One that has changed is removed.
    pub(crate) fn holds(&self, sha256: &str, url: &str) -> Result<bool> {
        let name = Cache::name(sha256, url);
        let Some(mut file) = self.get(sha256, url)? else { return Ok(false) };
        let found = for_each_piece(&mut file, |_| Ok::<(), std::io::Error>(()))
            .map_err(|error| Error::path("read", self.0.shown(&name), error))?;
        if found != sha256 {
            self.0.remove(&name)?;
        }
        Ok(found == sha256)
    }

    /// Opens the part of a download that is there, or begins one.
    pub(crate) fn part(&self, sha256: &str, url: &str) -> Result<Part> {
        let name = Cache::name(sha256, url);
        let file = self.0.open_or_create(&part_name(&name))?;
        let mut part = Part { dir: Arc::clone(&self.0), name, file, hasher: Sha256::new(), size: 0 };
        let mut buffer = vec![0; BUFFER];
        loop {
            let size = part.file.read(&mut buffer).map_err(|error| part.failed("read", error))?;
            if size == 0 {
                return Ok(part);
            }
            part.hasher.update(&buffer[..size]);
            part.size += size as u64;
        }
    }
}

fn part_name(name: &str) -> String {
    format!("{name}.part")
}

/// A download that is not complete.
pub(crate) struct Part {
    dir: Arc<Dir>,
    name: String,
    file: File,
    hasher: Sha256,
    size: u64,
}

impl Part {
    fn failed(&self, doing: &'static str, error: std::io::Error) -> Error {
        Error::path(doing, self.dir.shown(&part_name(&self.name)), error)
    }

    /// How many bytes there are.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Adds bytes at the end.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|error| self.failed("write", error))?;
        self.hasher.update(bytes);
        self.size += bytes.len() as u64;
        Ok(())
    }

    /// Begins again.
    pub(crate) fn clear(&mut self) -> Result<()> {
        self.file
            .set_len(0)
            .and_then(|()| self.file.seek(SeekFrom::Start(0)))
            .map_err(|error| self.failed("write", error))?;
        (self.hasher, self.size) = (Sha256::new(), 0);
        Ok(())
    }

    /// SHA-256 of all bytes.
    pub(crate) fn sha256(&self) -> String {
        hex(self.hasher.clone().finalize())
    }

    /// The first bytes, for a look at what they are.
    pub(crate) fn beginning(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Only to word an error: what cannot be read is not looked at.
        let _ =
            self.file.seek(SeekFrom::Start(0)).and_then(|_| (&self.file).take(512).read_to_end(&mut bytes));
        let _ = self.file.seek(SeekFrom::End(0));
        bytes
    }

    /// Makes it a whole, once its hash is known to be right.
    pub(crate) fn keep(self) -> Result<()> {
        self.file.sync_all().map_err(|error| self.failed("write", error))?;
        self.dir.rename(&part_name(&self.name), &self.name)?;
        self.dir.sync()
    }

    /// Removes it.
    pub(crate) fn discard(self) -> Result<()> {
        self.dir.remove(&part_name(&self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kops_agent_plan::diff::sha256_hex;

    #[test]
    fn a_part_is_gone_on_with_and_becomes_a_whole() {
        let temp = tempfile::tempdir().unwrap();
        let cache = Cache::open(&Root::open(temp.path()).unwrap(), None).unwrap();
        let (sha256, url) = (sha256_hex(b"hello"), "https://example.com/dir/file?x=1");
        cache.part(&sha256, url).unwrap().write(b"hel").unwrap();
        assert!(!cache.holds(&sha256, url).unwrap());
        let mut part = cache.part(&sha256, url).unwrap();
        assert_eq!(part.size(), 3);
        part.write(b"lo").unwrap();
        assert_eq!(part.sha256(), sha256);
        assert_eq!(part.beginning(), b"hello");
        part.keep().unwrap();
        assert!(cache.holds(&sha256, url).unwrap());
        let path = temp.path().join(format!("var/cache/nodeup/{sha256}_file"));
        std::fs::write(&path, "tampered").unwrap();
        assert!(!cache.holds(&sha256, url).unwrap());
        assert!(!path.exists());
    }

    #[test]
    fn names_are_plain_whatever_the_url() {
        assert_eq!(Cache::name("ab", "https://x/a%2Fb/../c:d/"), "ab_c_d");
        assert_eq!(Cache::name("ab", ""), "ab_");
    }
}
