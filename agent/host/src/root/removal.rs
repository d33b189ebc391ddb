//! Removing more than a name: whole directories, and secrets with what is in them.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;

use kops_agent_spec::terminal::one_line;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2, renameat};
use nix::sys::stat::{Mode, SFlag, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::{DIRECTORY, Dir, Entry, Root};
use crate::error::{Error, Result};

/// How many folders in each other are open at a time: more than programs make, and fewer than a process may have open.
const DEEPEST: usize = 32;
/// How many names of a directory are in memory at a time.
const NAMES_AT_ONCE: usize = 10_000;
/// How folders are named in the topmost one that were deeper than that, with a number at the end.
const LIFTED: &str = ".kops-agent-removing-";
/// How much of a path is told, in characters.
const LONGEST_SHOWN: usize = 400;

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
        let mut lifted = 0;
        loop {
            let before = lifted;
            self.clear_below(self, 0, &mut lifted)?;
            if lifted == before {
                return Ok(());
            }
        }
    }

    /// The same, `depth` folders below `top`. What is deeper than [`DEEPEST`] is lifted into `top`, to be removed from there:
    /// a container makes as many folders in each other as it likes, and each of them would take a descriptor.
    fn clear_below(&self, top: &Dir, depth: usize, lifted: &mut u64) -> Result<()> {
        loop {
            let names = self.some_names(NAMES_AT_ONCE)?;
            for name in &names {
                self.clear_one(name, top, depth, lifted)?;
            }
            if names.len() < NAMES_AT_ONCE {
                return Ok(());
            }
        }
    }

    fn clear_one(&self, name: &CStr, top: &Dir, depth: usize, lifted: &mut u64) -> Result<()> {
        // A container has given the name, of any bytes.
        let shown = || one_line(&self.shown(&name.to_string_lossy()), LONGEST_SHOWN);
        let stat = match fstatat(&self.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::ENOENT) => return Ok(()),
            Err(error) => return Err(Error::path("look at", shown(), error)),
        };
        let is_directory = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) == SFlag::S_IFDIR;
        let is_mounted = || Error::Path {
            doing: "remove",
            path: shown(),
            reason: "something is mounted there; unmount it and run again".into(),
        };
        if is_directory {
            match self.open_on_same_mount(name) {
                Ok(_) if depth == DEEPEST => {
                    return self.lift(name, top, lifted).map_err(|error| match error {
                        Errno::EBUSY | Errno::EXDEV => is_mounted(),
                        error => Error::path("remove", shown(), error),
                    });
                }
                Ok(fd) => Dir { fd, shown: shown() }.clear_below(top, depth + 1, lifted)?,
                Err(Errno::EXDEV) => return Err(is_mounted()),
                Err(error) => return Err(Error::path("open the directory", shown(), error)),
            }
        }
        let flags = if is_directory { UnlinkatFlags::RemoveDir } else { UnlinkatFlags::NoRemoveDir };
        match unlinkat(&self.fd, name, flags) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            // A file that is bound over another, as by subPath.
            Err(Errno::EBUSY) => Err(is_mounted()),
            Err(error) => Err(Error::path("remove", shown(), error)),
        }
    }

    /// Gives a directory a name of its own in `top`, where no other has it.
    fn lift(&self, name: &CStr, top: &Dir, lifted: &mut u64) -> nix::Result<()> {
        loop {
            *lifted += 1;
            let free = format!("{LIFTED}{lifted}");
            match renameat(&self.fd, name, &top.fd, free.as_str()) {
                // A run that was interrupted has left it.
                Err(Errno::EEXIST | Errno::ENOTEMPTY | Errno::ENOTDIR) => {}
                other => return other,
            }
        }
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
    use std::path::Path;
    use std::process::Command;

    use nix::sys::stat::mkdirat;

    use super::*;

    /// More folders in each other than a process may have files open, or a path may be long, with a file in the last.
    const LEVELS: usize = 5000;
    /// Says to the test that it is its own child, and where the tree is.
    const CHILD: &str = "KOPS_AGENT_TEST_REMOVES";

    fn dig(at: &Path, name: &str) {
        let mut dir = nix::fcntl::open(at, DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..LEVELS {
            mkdirat(&dir, name, Mode::S_IRWXU).unwrap();
            dir = openat(&dir, name, DIRECTORY, Mode::empty()).unwrap();
        }
        openat(&dir, "file", OFlag::O_CREAT, Mode::S_IRWXU).unwrap();
    }

    #[test]
    fn a_deep_tree_goes_with_few_descriptors() {
        if let Some(folder) = std::env::var_os(CHILD) {
            return Root::open(folder.as_ref()).unwrap().remove_tree("/top").unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().join("top");
        fs::create_dir_all(top.join("emptydir")).unwrap();
        dig(&top.join("emptydir"), "a");
        dig(&top, &"n".repeat(255));
        // Left by a run that was interrupted.
        fs::create_dir_all(top.join(format!("{LIFTED}1/left"))).unwrap();
        fs::write(top.join(format!("{LIFTED}2")), "").unwrap();
        let name = format!("{}::a_deep_tree_goes_with_few_descriptors", module_path!());
        let name = name.split_once("::").unwrap().1;
        let limited = "ulimit -n 100 && exec \"$0\" --exact \"$1\" --nocapture";
        let this = std::env::current_exe().unwrap();
        let mut child = Command::new("sh");
        child.args(["-c", limited]).arg(this).arg(name).env(CHILD, folder.path());
        let ended = child.output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        assert!(String::from_utf8_lossy(&ended.stdout).contains("1 passed"), "{ended:?}");
        assert!(!top.exists());
    }

    #[test]
    fn what_cannot_be_removed_is_told_in_a_line_of_some_length() {
        let machine = Root::open("/".as_ref()).unwrap().dir("/").unwrap().unwrap();
        let deep = Dir { fd: machine.fd, shown: format!("/\u{1b}[2J{}", "n".repeat(9000)) };
        let error = deep.clear_one(c"proc", &deep, 0, &mut 0).unwrap_err().to_string();
        assert!(error.contains("something is mounted there") && error.len() < 600, "{error}");
        assert!(!error.contains('\u{1b}'), "{error:?}");
    }

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
