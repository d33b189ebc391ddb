//! The directory below which everything is read and written, as a capability.
//!
//! Paths resolve as if the root were `/`: neither a symbolic link nor `..` leads out of it (openat2's
//! `RESOLVE_IN_ROOT`). Links of other users are not followed ([`way`]). Every file operation is relative to an open
//! directory, and never follows a link in the last component.

mod entry;
pub(crate) mod labels;
mod removal;
mod way;

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat, renameat};
use nix::libc::{nlink_t, uid_t};
use nix::sys::stat::{Mode, SFlag, fchmod, fstat, fstatat, mkdirat};
use nix::sys::statvfs::{FsFlags, fstatvfs};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, fsync, geteuid, linkat, symlinkat, unlinkat};

use crate::error::{Error, Result};
use crate::selinux::Policy;

pub(crate) use entry::{Entry, Metadata};

const DIRECTORY: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

/// The suffix in the names of incomplete files.
pub(crate) const TEMPORARY: &str = ".kops-agent";

/// The temporary name of a file while it is written.
pub(crate) fn temporary_name(name: &str) -> String {
    format!(".{name}{TEMPORARY}")
}

/// The directory that stands for `/`.
#[derive(Clone)]
pub(crate) struct Root {
    fd: Arc<OwnedFd>,
    path: Arc<PathBuf>,
    /// The UIDs whose links are followed: root's, and the agent's own UID. On every node, the agent runs as root.
    followed: [uid_t; 2],
    /// The SELinux policy, read on first use.
    policy: Arc<OnceLock<Option<Policy>>>,
    /// The folder in which the agent writes units, found on first use.
    units: Arc<OnceLock<&'static str>>,
    /// The agent's units in the folder of administrators' units, found on first use.
    own_in_etc: Arc<OnceLock<BTreeSet<String>>>,
}

impl Root {
    /// Opens a directory as a root. Creates the directory if it is missing.
    pub(crate) fn open(path: &Path) -> Result<Root> {
        let shown = path.display().to_string();
        // No other user may write to a new root, whatever the umask.
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o755).create(path);
        made.map_err(|error| Error::path("make the directory", &shown, error))?;
        let fd = nix::fcntl::open(path, DIRECTORY, Mode::empty())
            .map_err(|error| Error::path("open the directory", &shown, error))?;
        Ok(Root {
            fd: Arc::new(fd),
            path: Arc::new(path.to_owned()),
            followed: [0, geteuid().as_raw()],
            policy: Arc::default(),
            units: Arc::default(),
            own_in_etc: Arc::default(),
        })
    }

    /// The full path of a path in this root, for messages and for programs that the agent runs.
    pub(crate) fn shown(&self, path: &str) -> String {
        let root = self.path.display().to_string();
        format!("{}/{}", root.trim_end_matches('/'), path.trim_start_matches('/'))
    }

    /// The folder in which upstream writes units. Only the first call calls `find`.
    pub(crate) fn units_folder(&self, find: fn(&Root) -> &'static str) -> &'static str {
        self.units.get_or_init(|| find(self))
    }

    /// The agent's units in the folder of administrators' units. Only the first call calls `find`.
    pub(crate) fn own_units_in_etc(&self, find: fn(&Root) -> BTreeSet<String>) -> &BTreeSet<String> {
        self.own_in_etc.get_or_init(|| find(self))
    }

    /// Treats every link as a link of another user.
    #[cfg(test)]
    pub(crate) fn following_none(self) -> Root {
        Root { followed: [uid_t::MAX; 2], ..self }
    }

    pub(crate) fn is_machine(&self) -> bool {
        self.path.as_path() == Path::new("/")
    }

    /// The directory at `path`. Creates the directory and its parents with mode 0755 if they are missing.
    pub(crate) fn make_dirs(&self, path: &str) -> Result<Dir> {
        if let Some(dir) = self.reach(path)? {
            return Ok(dir);
        }
        let (above, name) = split(path)?;
        self.make_dir(&self.make_dirs(above)?, name)
    }

    /// The path of the directory at `path` in this root, with all links resolved; `None` if the directory does not exist.
    pub(crate) fn real_path(&self, path: &str) -> Result<Option<String>> {
        let Some(dir) = self.dir(path)? else { return Ok(None) };
        let place = |fd: BorrowedFd<'_>| {
            let at = format!("/proc/self/fd/{}", fd.as_raw_fd());
            std::fs::read_link(at).map_err(|error| Error::path("find", self.shown(path), error))
        };
        let (root, real) = (place(self.fd.as_fd())?, place(dir.fd.as_fd())?);
        let real = real.strip_prefix(root).map(|below| format!("/{}", below.display()));
        // If a link leads to a directory outside the root, the result is `/`.
        Ok(Some(real.unwrap_or_else(|_| "/".to_owned())))
    }

    /// The directory that contains `path`, and the last name of `path`; `None` if that directory does not exist.
    pub(crate) fn parent(&self, path: &str) -> Result<Option<(Dir, String)>> {
        let (above, name) = split(path)?;
        Ok(self.dir(above)?.map(|dir| (dir, name.to_owned())))
    }

    /// The directory that contains `path`, and the last name of `path`. Creates the directory if it is missing.
    pub(crate) fn make_parent(&self, path: &str) -> Result<(Dir, String)> {
        let (above, name) = split(path)?;
        Ok((self.make_dirs(above)?, name.to_owned()))
    }

    /// The content of a small regular file; `None` if there is no such file.
    pub(crate) fn read(&self, path: &str) -> Result<Option<Vec<u8>>> {
        let Some((dir, name)) = self.parent(path)? else { return Ok(None) };
        match dir.entry(&name)? {
            Some(Entry::File(_)) => dir.read(&name).map(Some),
            _ => Ok(None),
        }
    }

    /// Opens a regular file for reading, and follows links within the root; `None` if the path does not exist. Does not block if the path
    /// is a pipe or device.
    pub(crate) fn open_file(&self, path: &str) -> Result<Option<File>> {
        const READ: OFlag =
            OFlag::O_RDONLY.union(OFlag::O_NONBLOCK).union(OFlag::O_NOCTTY).union(OFlag::O_CLOEXEC);
        let failed = |error: io::Error| Error::path("read", self.shown(path), error);
        let relative = path.trim_start_matches('/');
        let resolve = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        let opened = match openat2(&*self.fd, relative, OpenHow::new().flags(READ).resolve(resolve)) {
            Err(Errno::ENOSYS | Errno::EPERM) if self.is_machine() => {
                openat(&*self.fd, relative, READ, Mode::empty())
            }
            Err(Errno::ENOSYS | Errno::EPERM) => match self.parent(path)? {
                Some((dir, name)) => openat(&dir.fd, name.as_str(), READ | OFlag::O_NOFOLLOW, Mode::empty()),
                None => Err(Errno::ENOENT),
            },
            other => other,
        };
        let file = match opened {
            Ok(fd) => File::from(fd),
            Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(None),
            Err(error) => return Err(failed(error.into())),
        };
        match file.metadata().map_err(failed)?.is_file() {
            true => Ok(Some(file)),
            false => Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"))),
        }
    }

    /// The mode and owner of a regular file; `None` if there is no such file.
    pub(crate) fn metadata(&self, path: &str) -> Result<Option<Metadata>> {
        let Some((dir, name)) = self.parent(path)? else { return Ok(None) };
        Ok(match dir.entry(&name)? {
            Some(Entry::File(metadata)) => Some(metadata),
            _ => None,
        })
    }

    /// When the path was last modified; `None` if the path does not exist. For a link, returns the time of the link itself.
    pub(crate) fn modified(&self, path: &str) -> Result<Option<SystemTime>> {
        let Some((dir, name)) = self.parent(path)? else { return Ok(None) };
        match fstatat(&dir.fd, name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => {
                let since = u64::try_from(stat.st_mtime).ok().map(Duration::from_secs);
                let part = Duration::from_nanos(u64::try_from(stat.st_mtime_nsec).unwrap_or_default());
                Ok(since.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since + part)))
            }
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(Error::path("look at", dir.shown(&name), error)),
        }
    }

    /// Whether a regular file has mode 0644 and belongs to the agent's user.
    pub(crate) fn is_for_all_to_read(&self, path: &str) -> Result<bool> {
        let is_so = |metadata: Metadata| metadata.mode == 0o644 && metadata.uid == geteuid().as_raw();
        Ok(self.metadata(path)?.is_some_and(is_so))
    }
}

/// Splits a path into the path of its directory and the last name.
fn split(path: &str) -> Result<(&str, &str)> {
    let trimmed = path.trim_end_matches('/');
    match trimmed.rsplit_once('/') {
        Some((above, name)) if path.starts_with('/') && !matches!(name, "" | "." | "..") => Ok((above, name)),
        _ => Err(Error::Path {
            doing: "use",
            path: path.into(),
            reason: "it is not an absolute path with a name at its end".into(),
        }),
    }
}

pub(crate) struct Dir {
    fd: OwnedFd,
    shown: String,
}

impl Dir {
    /// The full path of a name in this directory, for messages.
    pub(crate) fn shown(&self, name: &str) -> String {
        if name.is_empty() {
            self.shown.clone()
        } else {
            format!("{}/{name}", self.shown.trim_end_matches('/'))
        }
    }

    fn failed<'a>(&'a self, doing: &'static str, name: &'a str) -> impl Fn(Errno) -> Error + use<'a> {
        move |error| Error::path(doing, self.shown(name), error)
    }

    /// The file, directory, link or special file of this name, without following a link. `None` if the name does not exist.
    pub(crate) fn entry(&self, name: &str) -> Result<Option<Entry>> {
        let stat = match fstatat(&self.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::ENOENT) => return Ok(None),
            Err(error) => return Err(Error::path("look at", self.shown(name), error)),
        };
        Ok(Some(match SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) {
            SFlag::S_IFREG => Entry::File(stat.into()),
            SFlag::S_IFDIR => Entry::Directory(stat.into()),
            SFlag::S_IFLNK => {
                let target = readlinkat(&self.fd, name).map_err(self.failed("read the link", name))?;
                Entry::Symlink(target.to_string_lossy().into_owned())
            }
            _ => Entry::Special,
        }))
    }

    /// The mode and owner of the directory itself.
    pub(crate) fn metadata(&self) -> Result<Metadata> {
        Ok(fstat(&self.fd).map_err(self.failed("look at", ""))?.into())
    }

    /// Opens a regular file for reading.
    pub(crate) fn open(&self, name: &str) -> Result<File> {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        openat(&self.fd, name, flags, Mode::empty()).map(File::from).map_err(self.failed("read", name))
    }

    /// Reads a whole small file.
    pub(crate) fn read(&self, name: &str) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open(name)?
            .read_to_end(&mut bytes)
            .map_err(|error| Error::path("read", self.shown(name), error))?;
        Ok(bytes)
    }

    /// Creates a file for writing, with mode 0600. Fails if the name exists.
    pub(crate) fn create_new(&self, name: &str) -> Result<File> {
        self.open_for_writing(name, OFlag::O_WRONLY | OFlag::O_EXCL)
    }

    /// Opens a file for reading and writing. A new file gets mode 0600.
    pub(crate) fn open_or_create(&self, name: &str) -> Result<File> {
        self.open_for_writing(name, OFlag::O_RDWR)
    }

    /// Opens a file for appending. A new file gets mode 0600.
    pub(crate) fn open_for_appending(&self, name: &str) -> Result<File> {
        self.open_for_writing(name, OFlag::O_WRONLY | OFlag::O_APPEND)
    }

    fn open_for_writing(&self, name: &str, flags: OFlag) -> Result<File> {
        let flags = flags | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        openat(&self.fd, name, flags, Mode::from_bits_truncate(0o600))
            .map(File::from)
            .map_err(self.failed("write", name))
    }

    /// Opens the directory of this name. If it is missing, creates it with mode 0755.
    pub(crate) fn make_dir(&self, name: &str) -> Result<Dir> {
        match mkdirat(&self.fd, name, Mode::from_bits_truncate(0o755)) {
            Ok(()) => {
                let dir = self.open_dir(name)?;
                // The umask may have cleared bits that other users need.
                dir.set_mode(0o755)?;
                self.sync()?;
                Ok(dir)
            }
            Err(Errno::EEXIST) => self.open_dir(name),
            Err(error) => Err(Error::path("make the directory", self.shown(name), error)),
        }
    }

    fn open_dir(&self, name: &str) -> Result<Dir> {
        openat(&self.fd, name, DIRECTORY | OFlag::O_NOFOLLOW, Mode::empty())
            .map(|fd| Dir { fd, shown: self.shown(name) })
            .map_err(self.failed("open the directory", name))
    }

    pub(crate) fn set_mode(&self, mode: u32) -> Result<()> {
        fchmod(&self.fd, Mode::from_bits_truncate(mode)).map_err(self.failed("set the mode of", ""))
    }

    pub(crate) fn set_owner(&self, uid: u32, gid: u32) -> Result<()> {
        fchown(&self.fd, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
            .map_err(self.failed("set the owner of", ""))
    }

    /// Renames a file within this directory. Replaces an existing file of the new name.
    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<()> {
        renameat(&self.fd, from, &self.fd, to).map_err(self.failed("put in place", to))
    }

    /// Removes a file or link, if it exists.
    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        match unlinkat(&self.fd, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(Error::path("remove", self.shown(name), error)),
        }
    }

    /// A second handle of this directory.
    pub(crate) fn duplicate(&self) -> Result<Dir> {
        let fd =
            self.fd.try_clone().map_err(|error| Error::path("open the directory", self.shown(""), error))?;
        Ok(Dir { fd, shown: self.shown.clone() })
    }

    /// Whether `name` in this directory and `other_name` in `other` are hard links of one file.
    pub(crate) fn has_same(&self, name: &str, other: &Dir, other_name: &str) -> Result<bool> {
        let number = |dir: &Dir, name: &str| match fstatat(&dir.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some((stat.st_dev, stat.st_ino))),
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(Error::path("look at", dir.shown(name), error)),
        };
        let one = number(self, name)?;
        Ok(one.is_some() && one == number(other, other_name)?)
    }

    /// The number of hard links of a file.
    fn names_of(&self, name: &str) -> Result<nlink_t> {
        let stat =
            fstatat(&self.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW).map_err(self.failed("look at", name))?;
        Ok(stat.st_nlink)
    }

    /// The names in this directory, including names that are not UTF-8.
    fn raw_names(&self) -> Result<Vec<CString>> {
        self.some_names(usize::MAX)
    }

    /// At most `most` of the names in this directory.
    fn some_names(&self, most: usize) -> Result<Vec<CString>> {
        let cannot = |error| Error::path("list", self.shown(""), error);
        let fd = openat(&self.fd, ".", DIRECTORY, Mode::empty()).map_err(cannot)?;
        let mut dir = nix::dir::Dir::from_fd(fd).map_err(cannot)?;
        let names = dir.iter().map(|entry| entry.map(|entry| entry.file_name().to_owned()));
        let is_other = |name: &nix::Result<CString>| {
            !name.as_ref().is_ok_and(|name| matches!(name.to_bytes(), b"." | b".."))
        };
        names.filter(is_other).take(most).collect::<nix::Result<_>>().map_err(cannot)
    }

    /// Removes a directory, unless it has content or is in use. An entry that is not a directory, for example a link to one, stays.
    pub(crate) fn remove_dir_if_empty(&self, name: &str) -> Result<()> {
        match unlinkat(&self.fd, name, UnlinkatFlags::RemoveDir) {
            Ok(())
            | Err(Errno::ENOENT | Errno::ENOTEMPTY | Errno::EEXIST | Errno::EBUSY | Errno::ENOTDIR) => Ok(()),
            Err(error) => Err(Error::path("remove the directory", self.shown(name), error)),
        }
    }

    /// Creates a symbolic link. Fails if the name exists.
    pub(crate) fn link(&self, target: &str, name: &str) -> Result<()> {
        symlinkat(target, &self.fd, name).map_err(self.failed("make the link", name))
    }

    /// Creates a hard link in another directory, in which the name must not exist. False if the file systems do not allow the hard link.
    pub(crate) fn link_to(&self, name: &str, to: &Dir, other: &str) -> Result<bool> {
        match linkat(&self.fd, name, &to.fd, other, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::EXDEV | Errno::EPERM | Errno::EMLINK | Errno::EOPNOTSUPP | Errno::ENOSYS) => Ok(false),
            Err(error) => Err(to.failed("make the hard link", other)(error)),
        }
    }

    /// Moves a file to another directory. Replaces an existing file of the new name. False if the other directory is on another file
    /// system.
    pub(crate) fn move_to(&self, from: &str, to: &Dir, name: &str) -> Result<bool> {
        match renameat(&self.fd, from, &to.fd, name) {
            Ok(()) => Ok(true),
            Err(Errno::EXDEV) => Ok(false),
            Err(error) => Err(to.failed("put in place", name)(error)),
        }
    }

    /// All names in this directory, sorted.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let names = self.raw_names()?;
        let mut names: Vec<String> = names.iter().map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        Ok(names)
    }

    /// The device number of the file system, and its free bytes for users other than root.
    pub(crate) fn free_space(&self) -> Result<(u64, u64)> {
        let device = fstat(&self.fd).map_err(self.failed("look at", ""))?.st_dev;
        let space = fstatvfs(&self.fd).map_err(self.failed("read the free space of", ""))?;
        Ok((device, space.blocks_available().saturating_mul(space.fragment_size())))
    }

    /// Whether the directory's file system is mounted for writing.
    pub(crate) fn is_writable(&self) -> bool {
        fstatvfs(&self.fd).is_ok_and(|found| !found.flags().contains(FsFlags::ST_RDONLY))
    }

    /// Syncs the directory, so that its names are on the disk.
    pub(crate) fn sync(&self) -> Result<()> {
        fsync(&self.fd).map_err(self.failed("sync the directory", ""))
    }
}

pub(crate) fn set_owner(file: &File, uid: u32, gid: u32) -> io::Result<()> {
    Ok(fchown(file.as_fd(), Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?)
}

pub(crate) fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    Ok(fchmod(file.as_fd(), Mode::from_bits_truncate(mode))?)
}

#[cfg(test)]
mod tests;
