//! Removing more than a name: whole directories, and secrets with what is in them.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{Mode, SFlag, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::{DIRECTORY, Dir, Entry, Root};
use crate::error::{Error, Result};

/// Files of more bytes are no keys, and are not overwritten before they go.
const LARGEST_SECRET: u64 = 1 << 20;

impl Root {
    /// Removes a directory with everything in it, up to whatever is mounted there. Where a link leads to it, both stay,
    /// and only what is in it goes.
    ///
    /// # Errors
    /// Something is mounted in it, or cannot be removed.
    pub(crate) fn remove_tree(&self, path: &str) -> Result<()> {
        let Some(dir) = self.dir(path)? else { return Ok(()) };
        dir.clear()?;
        match self.parent(path)? {
            Some((above, name)) if matches!(above.entry(&name)?, Some(Entry::Directory(_))) => {
                above.remove_dir_if_empty(&name)
            }
            _ => Ok(()),
        }
    }
}

impl Dir {
    /// Overwrites a regular file and removes it; one of any other type, or one that has another name besides, is only
    /// removed. It may still be in older blocks of the disk, as with every program that overwrites files.
    pub(crate) fn shred(&self, name: &str) -> Result<()> {
        if let Some(Entry::File(metadata)) = self.entry(name)?
            && metadata.size <= LARGEST_SECRET
            && self.names_of(name)? == 1
        {
            let flags = OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
            let overwrite = || -> io::Result<()> {
                let mut file = File::from(openat(&self.fd, name, flags, Mode::empty())?);
                // The folder's owner may have put another file there meanwhile.
                let found = file.metadata()?;
                if !found.is_file() || found.nlink() != 1 || found.ino() != metadata.inode {
                    return Ok(());
                }
                let zeros = vec![0; usize::try_from(metadata.size).unwrap_or_default()];
                file.write_all(&zeros)?;
                file.sync_all()
            };
            overwrite().map_err(|error| Error::path("overwrite", self.shown(name), error))?;
        }
        self.remove(name)
    }

    /// A directory in this one; `EXDEV` where it is another mount's.
    fn open_on_same_mount(&self, name: &CStr) -> nix::Result<OwnedFd> {
        let how = OpenHow::new()
            .flags(DIRECTORY | OFlag::O_NOFOLLOW)
            .resolve(ResolveFlag::RESOLVE_NO_XDEV | ResolveFlag::RESOLVE_BENEATH);
        match openat2(&self.fd, name, how) {
            // Kernels before 5.6, as of RHEL 8, and sandboxes that do not know the call.
            Err(Errno::ENOSYS | Errno::EPERM) => self.open_and_compare_mounts(name),
            other => other,
        }
    }

    fn open_and_compare_mounts(&self, name: &CStr) -> nix::Result<OwnedFd> {
        let fd = openat(&self.fd, name, DIRECTORY | OFlag::O_NOFOLLOW, Mode::empty())?;
        match mount_id(&fd)? == mount_id(&self.fd)? {
            true => Ok(fd),
            false => Err(Errno::EXDEV),
        }
    }

    /// Removes everything in this directory, as far as it is of the same mount: a folder of the host that is bound into
    /// a pod is on the same file system as often as not, which its device number would not tell.
    fn clear(&self) -> Result<()> {
        for name in self.raw_names()? {
            let shown = name.to_string_lossy().into_owned();
            let stat = match fstatat(&self.fd, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::ENOENT) => continue,
                Err(error) => return Err(Error::path("look at", self.shown(&shown), error)),
            };
            let is_directory =
                SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) == SFlag::S_IFDIR;
            let is_mounted = || Error::Path {
                doing: "remove",
                path: self.shown(&shown),
                reason: "something is mounted there; unmount it and run again".into(),
            };
            if is_directory {
                match self.open_on_same_mount(&name) {
                    Ok(fd) => Dir { fd, shown: self.shown(&shown) }.clear()?,
                    Err(Errno::EXDEV) => return Err(is_mounted()),
                    Err(error) => return Err(self.failed("open the directory", &shown)(error)),
                }
            }
            let flags = if is_directory { UnlinkatFlags::RemoveDir } else { UnlinkatFlags::NoRemoveDir };
            match unlinkat(&self.fd, name.as_c_str(), flags) {
                Ok(()) | Err(Errno::ENOENT) => {}
                // A file that is bound over another, as by subPath.
                Err(Errno::EBUSY) => return Err(is_mounted()),
                Err(error) => return Err(Error::path("remove", self.shown(&shown), error)),
            }
        }
        Ok(())
    }
}

/// The mount that an open file is of, by `/proc/self/fdinfo` (proc_pid_fdinfo(5)).
fn mount_id(fd: &OwnedFd) -> nix::Result<u64> {
    let read = fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()));
    let info = read.map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    id.ok_or(Errno::ENOTSUP)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn without_openat2_a_directory_is_opened_and_another_mounts_and_a_link_are_not() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("directory")).unwrap();
        std::os::unix::fs::symlink("directory", folder.path().join("link")).unwrap();
        let root = Root::open(folder.path()).unwrap();
        let here = root.dir("/").unwrap().unwrap();
        here.open_and_compare_mounts(c"directory").unwrap();
        assert!(here.open_and_compare_mounts(c"link").is_err());
        // The kernel's own file system is mounted on every machine.
        let machine = Root::open("/".as_ref()).unwrap().dir("/").unwrap().unwrap();
        assert_eq!(machine.open_and_compare_mounts(c"proc").err(), Some(Errno::EXDEV));
        assert_eq!(machine.open_on_same_mount(c"proc").err(), Some(Errno::EXDEV));
    }
}
