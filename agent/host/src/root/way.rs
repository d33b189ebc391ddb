//! Opens directories below a root, and decides which links in their paths are followed.
//!
//! A link is followed if root owns the link and its folder: an operator's `/var/lib/kubelet` may lead to another disk.
//! Any other link can be redirected by the owner of the link or its folder, for example `~/.kube` to `/etc`. The agent
//! would then write, chown and remove files there.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat};
use nix::sys::stat::{Mode, SFlag, fstat};

use super::{DIRECTORY, Dir, Root, split};
use crate::error::{Error, Result};

/// The kernel's limit of links in one path (path_resolution(7)).
const MOST_LINKS: usize = 40;
const ON_THE_WAY: OFlag = OFlag::O_PATH.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    None,
    /// Links that only root can change.
    Roots,
}

/// Why a path does not lead to a directory.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Blocked {
    Errno(Errno),
    /// The path contains a link that is not followed. `path` is the link's path below the root.
    Link {
        path: String,
        target: String,
    },
}

impl From<Errno> for Blocked {
    fn from(errno: Errno) -> Blocked {
        Blocked::Errno(errno)
    }
}

impl Root {
    /// The directory at `path`; `None` if it does not exist, or if `path` contains a link that is not followed.
    pub(crate) fn dir(&self, path: &str) -> Result<Option<Dir>> {
        match self.reach(path) {
            Err(Error::ForeignLink { .. }) => Ok(None),
            other => other,
        }
    }

    /// The directory at `path`; `None` if it does not exist. If `path` contains a link that is not followed, fails with
    /// [`Error::ForeignLink`].
    pub(crate) fn reach(&self, path: &str) -> Result<Option<Dir>> {
        let opened = match self.open_by_no_link(relative(path)) {
            Err(Blocked::Errno(Errno::ELOOP) | Blocked::Link { .. }) => {
                self.walk(relative(path), Links::Roots)
            }
            other => other,
        };
        match opened {
            Ok(fd) => Ok(Some(Dir { fd, shown: self.shown(path.trim_end_matches('/')) })),
            Err(Blocked::Errno(Errno::ENOENT)) => Ok(None),
            Err(Blocked::Errno(error)) => Err(Error::path("open the directory", self.shown(path), error)),
            Err(Blocked::Link { path, target }) => {
                Err(Error::ForeignLink { path: self.shown(&path), target })
            }
        }
    }

    /// The directory that contains `path`, and the last name of `path`; `None` if that directory does not exist. Used for directories that
    /// another user may own. Fails if the directory's path contains a link, because that user could change the target of the link.
    pub(crate) fn parent_without_links(&self, path: &str) -> Result<Option<(Dir, String)>> {
        let (above, name) = split(path)?;
        let shown = self.shown(above);
        match self.open_by_no_link(relative(above)) {
            Ok(fd) => Ok(Some((Dir { fd, shown }, name.to_owned()))),
            Err(Blocked::Errno(Errno::ENOENT)) => Ok(None),
            Err(Blocked::Errno(Errno::ELOOP) | Blocked::Link { .. }) => Err(Error::Path {
                doing: "open the directory",
                path: shown,
                reason: "a link leads there, and its owner can point it anywhere; give the path of the folder itself"
                    .into(),
            }),
            Err(Blocked::Errno(error)) => Err(Error::path("open the directory", shown, error)),
        }
    }

    fn open_by_no_link(&self, relative: &str) -> Result<OwnedFd, Blocked> {
        let resolve = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_SYMLINKS;
        match openat2(&*self.fd, relative, OpenHow::new().flags(DIRECTORY).resolve(resolve)) {
            // openat2 is missing in kernels before 5.6, and in some sandboxes.
            Err(Errno::ENOSYS | Errno::EPERM) => self.walk(relative, Links::None),
            other => Ok(other?),
        }
    }

    /// Opens one directory after another, and checks each link before following it. In the root, `..` is the root itself.
    pub(super) fn walk(&self, relative: &str, links: Links) -> Result<OwnedFd, Blocked> {
        let mut way: Vec<(OwnedFd, String)> = Vec::new();
        let mut left: Vec<String> = relative.rsplit('/').map(str::to_owned).collect();
        let mut followed = 0;
        while let Some(part) = left.pop() {
            let at = way.last().map_or(self.fd.as_fd(), |(fd, _)| fd.as_fd());
            match part.as_str() {
                "" | "." => continue,
                ".." => {
                    way.pop();
                    continue;
                }
                _ => {}
            }
            let error = match openat(at, part.as_str(), ON_THE_WAY | OFlag::O_DIRECTORY, Mode::empty()) {
                Ok(fd) => {
                    way.push((fd, part));
                    continue;
                }
                Err(error) => error,
            };
            // If the name is a link, the kernel reports "not a directory".
            if !matches!(error, Errno::ENOTDIR | Errno::ELOOP) {
                return Err(error.into());
            }
            let (target, is_roots) = self.link(at, &part)?.ok_or(error)?;
            if links == Links::None || !is_roots {
                let above = way.iter().map(|(_, name)| name.as_str());
                let path: Vec<&str> = above.chain([part.as_str()]).collect();
                return Err(Blocked::Link { path: format!("/{}", path.join("/")), target });
            }
            followed += 1;
            if followed > MOST_LINKS {
                return Err(Errno::ELOOP.into());
            }
            if target.starts_with('/') {
                way.clear();
            }
            left.extend(target.rsplit('/').map(str::to_owned));
        }
        let at = way.last().map_or(self.fd.as_fd(), |(fd, _)| fd.as_fd());
        Ok(openat(at, ".", DIRECTORY, Mode::empty())?)
    }

    /// The target of a link, and whether root or the agent's user owns the link and its folder; `None` if `name` is not a link.
    fn link(&self, dir: BorrowedFd<'_>, name: &str) -> nix::Result<Option<(String, bool)>> {
        let link = openat(dir, name, ON_THE_WAY, Mode::empty())?;
        let stat = fstat(&link)?;
        if SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) != SFlag::S_IFLNK {
            return Ok(None);
        }
        let target = readlinkat(&link, "")?.to_string_lossy().into_owned();
        let is_roots = [stat.st_uid, fstat(dir)?.st_uid].iter().all(|owner| self.followed.contains(owner));
        Ok(Some((target, is_roots)))
    }
}

fn relative(path: &str) -> &str {
    match path.trim_matches('/') {
        "" => ".",
        relative => relative,
    }
}
