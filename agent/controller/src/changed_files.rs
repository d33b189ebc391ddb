//! Detects changes of files in use: renewed certificates, or a configuration that kOps has rendered again.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub const LOOKED_AT_EVERY: Duration = Duration::from_secs(10);

/// The inode, size and modification time of each file, to detect changes without reading contents. `None` for a missing file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamps(Vec<Option<(u64, u64, i64, i64)>>);

impl Stamps {
    pub fn new<P: AsRef<Path>>(files: &[P]) -> Stamps {
        let stamp = |path: &P| {
            let metadata = std::fs::metadata(path).ok()?;
            Some((metadata.ino(), metadata.size(), metadata.mtime(), metadata.mtime_nsec()))
        };
        Stamps(files.iter().map(stamp).collect())
    }
}

#[derive(Debug)]
pub struct Watched {
    files: Vec<(PathBuf, Stamps)>,
}

impl Watched {
    /// Takes the stamps of the files. Call this before reading the files. Otherwise a change between the reading and this call is missed.
    pub fn new(files: Vec<PathBuf>) -> Watched {
        let now = |file: PathBuf| {
            let stamps = Stamps::new(&[&file]);
            (file, stamps)
        };
        Watched { files: files.into_iter().map(now).collect() }
    }

    /// Waits until a file exists and has changed since its last check. Returns the path of the file.
    pub async fn changed(&mut self, every: Duration) -> PathBuf {
        loop {
            tokio::time::sleep(every).await;
            for (file, before) in &mut self.files {
                let now = Stamps::new(&[&file]);
                if file.exists() && now != *before {
                    *before = now;
                    return file.clone();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn a_replaced_file_is_a_change_and_a_deleted_file_is_one_once_it_exists_again() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["a", "b"].map(|name| folder.path().join(name));
        files.iter().for_each(|file| std::fs::write(file, "1").unwrap());
        let mut watched = Watched::new(files.to_vec());
        std::fs::remove_file(&files[0]).unwrap();
        let new = folder.path().join("new");
        std::fs::write(&new, "2").unwrap();
        std::fs::rename(&new, &files[1]).unwrap();
        assert_eq!(watched.changed(Duration::from_millis(1)).await, files[1]);

        // `changed` returns each change once. If a deleted file exists again, the file has changed.
        std::fs::write(&files[0], "new").unwrap();
        assert_eq!(watched.changed(Duration::from_millis(1)).await, files[0]);
    }
}
