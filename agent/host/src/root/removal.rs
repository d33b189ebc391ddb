//! Removes directory trees, and overwrites secrets before their removal.

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

/// The maximum number of nested folders that are open at a time. Programs nest fewer folders. A process can have this many files open.
const DEEPEST: usize = 32;
/// The maximum number of a directory's names in memory.
const NAMES_AT_ONCE: usize = 10_000;
/// The name prefix of folders that were nested deeper than `DEEPEST` and were moved to the topmost folder. A number follows the prefix.
const LIFTED: &str = ".kops-agent-removing-";
/// The maximum length of a path in a message, in characters.
const LONGEST_SHOWN: usize = 400;

/// The maximum size of a file that is overwritten, in bytes. A larger file contains no key, and is only removed.
const LARGEST_SECRET: u64 = 1 << 20;

impl Root {
    /// Removes a directory with its content. Fails if something is mounted in the directory; the content of the mount stays. If `path` is a
    /// link, the link and its target stay, and only the content of the target is removed.
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
    /// Overwrites a regular file and removes it. A file of another type, or with other hard links, is only removed. Despite the
    /// overwriting, older blocks of the disk may still contain the content.
    pub(crate) fn shred(&self, name: &str) -> Result<()> {
        if let Some(Entry::File(metadata)) = self.entry(name)?
            && metadata.size <= LARGEST_SECRET
            && self.names_of(name)? == 1
        {
            let flags = OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
            let overwrite = || -> io::Result<()> {
                let mut file = File::from(openat(&self.fd, name, flags, Mode::empty())?);
                // Another user who owns the folder may have replaced the file.
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

    /// Opens a directory in this directory. Fails with `EXDEV` if it is on another mount.
    fn open_on_same_mount(&self, name: &CStr) -> nix::Result<OwnedFd> {
        let how = OpenHow::new()
            .flags(DIRECTORY | OFlag::O_NOFOLLOW)
            .resolve(ResolveFlag::RESOLVE_NO_XDEV | ResolveFlag::RESOLVE_BENEATH);
        match openat2(&self.fd, name, how) {
            // openat2 is missing in kernels before 5.6, such as RHEL 8's, and in some sandboxes.
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

    /// Removes the content of this directory that is on the same mount. Device numbers do not distinguish mounts: a host folder that is
    /// bind-mounted for a pod often has the same device number.
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

    /// Clears a directory that is `depth` folders below `top`. A container may nest any number of folders, and each open folder needs a
    /// file descriptor. So folders that are nested deeper than [`DEEPEST`] are moved to `top`, and removed there.
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
        // The name may contain any bytes, because a container chose it.
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
            // Something is bind-mounted over this file, as Kubernetes' `subPath` does.
            Err(Errno::EBUSY) => Err(is_mounted()),
            Err(error) => Err(Error::path("remove", shown(), error)),
        }
    }

    /// Moves a directory into `top`, under a free name.
    fn lift(&self, name: &CStr, top: &Dir, lifted: &mut u64) -> nix::Result<()> {
        loop {
            *lifted += 1;
            let free = format!("{LIFTED}{lifted}");
            match renameat(&self.fd, name, &top.fd, free.as_str()) {
                // An entry of this name exists, because an earlier run was interrupted. Try the next number.
                Err(Errno::EEXIST | Errno::ENOTEMPTY | Errno::ENOTDIR) => {}
                other => return other,
            }
        }
    }
}

/// The mount ID of an open file, from `/proc/self/fdinfo` (proc_pid_fdinfo(5)).
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

    /// The number of nested folders. A process cannot have so many folders open, and a path cannot contain them. The innermost folder
    /// contains a file.
    const LEVELS: usize = 5000;
    /// The variable that makes the test run as its own child process. Its value is the folder of the tree.
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
    fn a_deep_tree_is_removed_with_few_descriptors() {
        if let Some(folder) = std::env::var_os(CHILD) {
            return Root::open(folder.as_ref()).unwrap().remove_tree("/top").unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().join("top");
        fs::create_dir_all(top.join("emptydir")).unwrap();
        dig(&top.join("emptydir"), "a");
        dig(&top, &"n".repeat(255));
        // An interrupted run had moved this folder.
        fs::create_dir_all(top.join(format!("{LIFTED}1/left"))).unwrap();
        fs::write(top.join(format!("{LIFTED}2")), "").unwrap();
        let name = format!("{}::a_deep_tree_is_removed_with_few_descriptors", module_path!());
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
    fn the_error_of_a_removal_has_bounded_length() {
        let machine = Root::open("/".as_ref()).unwrap().dir("/").unwrap().unwrap();
        let deep = Dir { fd: machine.fd, shown: format!("/\u{1b}[2J{}", "n".repeat(9000)) };
        let error = deep.clear_one(c"proc", &deep, 0, &mut 0).unwrap_err().to_string();
        assert!(error.contains("something is mounted there") && error.len() < 600, "{error}");
        assert!(!error.contains('\u{1b}'), "{error:?}");
    }

    #[test]
    fn without_openat2_mounts_and_links_are_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("directory")).unwrap();
        std::os::unix::fs::symlink("directory", folder.path().join("link")).unwrap();
        let root = Root::open(folder.path()).unwrap();
        let here = root.dir("/").unwrap().unwrap();
        here.open_and_compare_mounts(c"directory").unwrap();
        assert!(here.open_and_compare_mounts(c"link").is_err());
        // procfs is mounted on every machine.
        let machine = Root::open("/".as_ref()).unwrap().dir("/").unwrap().unwrap();
        assert_eq!(machine.open_and_compare_mounts(c"proc").err(), Some(Errno::EXDEV));
        assert_eq!(machine.open_on_same_mount(c"proc").err(), Some(Errno::EXDEV));
    }
}
