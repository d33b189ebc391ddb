//! Files that somebody changes while they are in use: certificates that are renewed, a configuration that kOps has
//! rendered anew.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often files are looked at.
pub const LOOKED_AT_EVERY: Duration = Duration::from_secs(10);

/// What tells the contents of some files from others, without reading them: inode, size and time of the last write, of
/// each; `None` where there is no file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamps(Vec<Option<(u64, u64, i64, i64)>>);

impl Stamps {
    /// Those of these files.
    pub fn of<P: AsRef<Path>>(files: &[P]) -> Stamps {
        let stamp = |path: &P| {
            let metadata = std::fs::metadata(path).ok()?;
            Some((metadata.ino(), metadata.size(), metadata.mtime(), metadata.mtime_nsec()))
        };
        Stamps(files.iter().map(stamp).collect())
    }
}

/// Waits until one of these files is another than it was at first, and is there.
pub async fn changed(files: &[PathBuf], every: Duration) -> &Path {
    let before: Vec<Stamps> = files.iter().map(|file| Stamps::of(&[file])).collect();
    loop {
        tokio::time::sleep(every).await;
        let changed = |(file, before): &(&PathBuf, &Stamps)| file.exists() && Stamps::of(&[file]) != **before;
        if let Some((file, _)) = files.iter().zip(&before).find(changed) {
            return file;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_that_is_replaced_is_told_and_one_that_goes_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["a", "b"].map(|name| folder.path().join(name));
        files.iter().for_each(|file| std::fs::write(file, "1").unwrap());
        let waiting = changed(&files, Duration::from_millis(1));
        tokio::pin!(waiting);
        // Polled once, it knows what they were.
        tokio::select! {
            biased;
            file = &mut waiting => panic!("{} has not changed", file.display()),
            () = std::future::ready(()) => {}
        }
        std::fs::remove_file(&files[0]).unwrap();
        let new = folder.path().join("new");
        std::fs::write(&new, "2").unwrap();
        std::fs::rename(&new, &files[1]).unwrap();
        assert_eq!(waiting.await, files[1]);
    }
}
