//! Hashes files on all cores. A process hashes a file again only if the file was touched.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::thread::available_parallelism;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use crate::error::{Error, Result};
use crate::root::{Dir, Entry, Metadata, Root};
use crate::staged::in_parallel;

/// The size of one read, in bytes.
const BUFFER: usize = 64 * 1024;

/// How a change of a large file is detected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Depth {
    /// Compares size, inode and times.
    #[default]
    Touched,
    /// Compares every byte.
    Content,
}

/// For each path: the metadata and the SHA-256 of the file when it was last hashed.
#[derive(Default)]
pub(crate) struct Digests(Mutex<BTreeMap<String, (Metadata, String)>>);

impl Digests {
    /// The SHA-256 of the file `name` in `dir`. `path` is the full path of the file.
    pub(crate) fn digest(&self, path: &str, dir: &Dir, name: &str, metadata: &Metadata) -> Result<String> {
        if let Some((read, sha256)) = self.0.lock().get(path)
            && read.is_untouched(metadata)
        {
            return Ok(sha256.clone());
        }
        let sha256 = digest(dir, name)?;
        self.0.lock().insert(path.to_owned(), (*metadata, sha256.clone()));
        Ok(sha256)
    }

    /// Reads these files concurrently, one per core. Skips paths that are not regular files.
    pub(crate) fn read_ahead(&self, root: &Root, paths: &[String]) -> Result<()> {
        let cores = available_parallelism().map_or(1, usize::from);
        in_parallel(cores, paths, |path| {
            if let Some((dir, name)) = root.parent(path)?
                && let Some(Entry::File(metadata)) = dir.entry(&name)?
            {
                self.digest(path, &dir, &name, &metadata)?;
            }
            Ok(())
        })
    }
}

pub(crate) fn digest(dir: &Dir, name: &str) -> Result<String> {
    for_each_piece(&mut dir.open(name)?, |_| Ok::<(), std::io::Error>(()))
        .map_err(|error| Error::path("read", dir.shown(name), error))
}

/// Reads `reader` to its end in pieces. Returns the SHA-256.
pub(crate) fn for_each_piece<E: From<io::Error>>(
    reader: &mut dyn Read,
    mut piece: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<String, E> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; BUFFER];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(hex::encode(hasher.finalize())),
            Ok(size) => {
                hasher.update(&buffer[..size]);
                piece(&buffer[..size])?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use kops_agent_spec::digest::sha256_hex;

    use super::*;

    #[test]
    fn a_file_is_read_again_only_when_it_was_touched() {
        let temp = tempfile::tempdir().unwrap();
        let root = Root::open(temp.path()).unwrap();
        let digests = Digests::default();
        let paths: Vec<String> = (0..20).map(|number| format!("/{number}")).collect();
        paths[..19].iter().for_each(|path| std::fs::write(temp.path().join(&path[1..]), path).unwrap());
        digests.read_ahead(&root, &paths).unwrap();
        assert_eq!(digests.0.lock().len(), 19);

        let (dir, name) = root.parent("/7").unwrap().unwrap();
        let of = || match dir.entry(&name).unwrap() {
            Some(Entry::File(metadata)) => digests.digest("/7", &dir, &name, &metadata).unwrap(),
            _ => panic!("not a file"),
        };
        assert_eq!(of(), sha256_hex(b"/7"));
        digests.0.lock().get_mut("/7").unwrap().1 = "known".into();
        assert_eq!(of(), "known");
        std::fs::write(temp.path().join("7"), "another").unwrap();
        assert_eq!(of(), sha256_hex(b"another"));
    }
}
