//! Files for other programs, in folders that those programs own.
//!
//! The owner of such a folder may change it at any time: links, pipes, another folder in its place. So the agent opens
//! the folder once, without following links, and does everything in the opened folder. It never opens or overwrites an
//! existing file there, and it leaves the folder's owner and mode unchanged.

use std::fs::File;
use std::io::Write as _;

use crate::error::{Error, Result};
use crate::host::Host;
use crate::root::{Dir, set_mode, temporary_name};

impl Host {
    /// Atomically writes a world-readable file into a folder that may belong to another user. The file is not synced, because the agent
    /// rewrites it regularly. Fails if the folder is missing, or if the path of the folder contains a link.
    pub fn publish(&self, path: &str, content: &[u8]) -> Result<()> {
        let (dir, name) = self.root.parent_without_links(path)?.ok_or_else(|| Error::Path {
            doing: "write",
            path: self.root.shown(path),
            reason: "there is no such folder; create it for the program that reads the file".into(),
        })?;
        let temporary = temporary_name(&name);
        // A file of this name may exist, from a killed run or from another user. If it is a link, the removal does not affect the link's
        // target.
        dir.remove(&temporary)?;
        let file = dir.create_new(&temporary)?;
        let written = fill(&dir, &temporary, file, content).and_then(|()| dir.rename(&temporary, &name));
        if written.is_err() {
            // If the removal also fails, only the error of the write is reported.
            let _ = dir.remove(&temporary);
        }
        written
    }

    /// Whether a published file exists. The agent does not write through links, so a file behind a link does not count.
    pub fn is_published(&self, path: &str) -> Result<bool> {
        match self.root.parent_without_links(path) {
            Ok(None) => Ok(false),
            Ok(Some((dir, name))) => Ok(dir.entry(&name)?.is_some()),
            Err(error) => {
                log::warn!("{error}; kops-agent does not remove {}", self.root.shown(path));
                Ok(false)
            }
        }
    }

    /// Removes a published file. Does not overwrite it first: it contains no secret, and may be a hard link to another user's file.
    pub(crate) fn withdraw(&self, path: &str) -> Result<()> {
        match self.root.parent_without_links(path)? {
            Some((dir, name)) => dir.remove(&temporary_name(&name)).and_then(|()| dir.remove(&name)),
            None => Ok(()),
        }
    }
}

fn fill(dir: &Dir, name: &str, mut file: File, content: &[u8]) -> Result<()> {
    file.write_all(content)
        .and_then(|()| set_mode(&file, 0o644))
        .map_err(|error| Error::path("write", dir.shown(name), error))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
    use std::path::{Path, PathBuf};

    use super::*;

    const FILE: &str = "/var/lib/reader/metrics.prom";

    /// A machine with a folder for the published file. The folder belongs to the program that reads this file.
    fn machine() -> (tempfile::TempDir, Host, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("var/lib/reader");
        fs::create_dir_all(&folder).unwrap();
        let host = Host::scratch(root.path()).unwrap();
        (root, host, folder)
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_published_file_is_world_readable_and_the_folder_stays_unchanged() {
        let (_root, host, folder) = machine();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o751)).unwrap();
        let other = folder.join("other");
        fs::write(&other, "other").unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(0o4755)).unwrap();
        for text in ["a longer one", "short"] {
            host.publish(FILE, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(folder.join("metrics.prom")).unwrap(), text);
        }
        assert_eq!(mode(&folder.join("metrics.prom")), 0o644);
        assert_eq!((mode(&folder), mode(&other)), (0o751, 0o4755));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "no temporary file is left");
    }

    #[test]
    fn planted_entries_are_replaced_and_neither_followed_nor_written() {
        let (root, host, folder) = machine();
        let victim = root.path().join("victim");
        let plant = |name: &str, hard: bool| {
            let at = folder.join(name);
            if hard { fs::hard_link(&victim, at).unwrap() } else { symlink("/victim", at).unwrap() }
        };
        for hard in [false, true] {
            fs::write(&victim, "victim").unwrap();
            fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).unwrap();
            plant("metrics.prom", hard);
            plant(&temporary_name("metrics.prom"), hard);
            host.publish(FILE, b"metrics").unwrap();
            let written = fs::symlink_metadata(folder.join("metrics.prom")).unwrap();
            assert!(written.is_file() && written.nlink() == 1, "{written:?}");
            assert_eq!((fs::read_to_string(&victim).unwrap(), mode(&victim)), ("victim".into(), 0o600));
            fs::remove_file(folder.join("metrics.prom")).unwrap();
            plant("metrics.prom", hard);
            assert!(host.is_published(FILE).unwrap());
            host.withdraw(FILE).unwrap();
            assert!(!folder.join("metrics.prom").exists() && !host.is_published(FILE).unwrap());
            assert_eq!(fs::read_to_string(&victim).unwrap(), "victim");
        }
        // If the temporary name cannot be removed, `publish` fails.
        fs::create_dir(folder.join(temporary_name("metrics.prom"))).unwrap();
        assert!(host.publish(FILE, b"metrics").unwrap_err().to_string().contains("cannot remove"));
    }

    #[test]
    fn nothing_is_published_into_a_missing_or_linked_folder() {
        let (root, host, folder) = machine();
        fs::remove_dir(&folder).unwrap();
        let error = host.publish(FILE, b"metrics").unwrap_err().to_string();
        assert!(error.contains("there is no such folder") && !folder.exists(), "{error}");

        let etc = root.path().join("etc");
        fs::create_dir(&etc).unwrap();
        symlink("../../etc", &folder).unwrap();
        let error = host.publish(FILE, b"metrics").unwrap_err().to_string();
        assert!(error.contains("a link leads there"), "{error}");
        fs::write(etc.join("metrics.prom"), "of another program").unwrap();
        assert!(!host.is_published(FILE).unwrap());
        host.withdraw(FILE).unwrap_err();
        assert_eq!(fs::read_dir(&etc).unwrap().count(), 1);
        // `publish` also rejects a link in the path of the folder, and a pipe in place of the folder.
        fs::remove_file(&folder).unwrap();
        fs::rename(root.path().join("var/lib"), root.path().join("var/other")).unwrap();
        fs::create_dir(root.path().join("var/other/reader")).unwrap();
        symlink("other", root.path().join("var/lib")).unwrap();
        assert!(host.publish(FILE, b"metrics").unwrap_err().to_string().contains("a link leads there"));
        let pipe = root.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(host.publish("/pipe/metrics.prom", b"metrics").unwrap_err().to_string().contains("pipe"));
    }
}
