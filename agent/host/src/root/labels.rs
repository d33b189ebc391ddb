//! Sets and reads SELinux labels below a root.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use nix::sys::stat::{Mode, mkdirat};
use rustix::fs::{XattrFlags, fgetxattr, fsetxattr, lgetxattr, lsetxattr};
use rustix::io::Errno;

use super::{Dir, Root, temporary_name};
use crate::error::{Error, Result};
use crate::selinux::{FileKind, Policy, is_as_good};

/// The extended attribute that contains the SELinux label (xattr(7)).
const ATTRIBUTE: &str = "security.selinux";
/// The size of the buffer for a label, in bytes. Labels are far smaller.
const LARGEST: usize = 4096;

/// A label that differs from the label in the policy.
pub(crate) struct Mislabelled {
    /// The current label; `None` if the file has no label.
    pub(crate) found: Option<String>,
    pub(crate) wanted: String,
}

impl Root {
    /// The policy, read on first use.
    fn policy(&self) -> Result<Option<&Policy>> {
        if self.policy.get().is_none() {
            let policy = Policy::read(|path| self.read(path))?;
            // If another thread was faster, it has stored an identical policy.
            let _ = self.policy.set(policy);
        }
        Ok(self.policy.get().and_then(Option::as_ref))
    }

    /// The policy's label for `name` in `dir`; `None` if there is no policy, or if the policy has no label for the path.
    pub(crate) fn label(&self, dir: &Dir, name: &str, kind: FileKind) -> Result<Option<String>> {
        let Some(policy) = self.policy()? else { return Ok(None) };
        let real = |fd: BorrowedFd<'_>| {
            let path = std::fs::read_link(proc_path(fd, ""));
            path.map_err(|error| Error::path("find the real path of", dir.shown(name), error))
        };
        let (root, dir) = (real(self.fd.as_fd())?, real(dir.fd.as_fd())?);
        // Resolve links in the path first, as restorecon does.
        let path = dir.strip_prefix(root).unwrap_or(&dir).join(name);
        Ok(policy.label(&format!("/{}", path.display()), kind).map(str::to_owned))
    }

    /// Creates the directory of this name with the policy's label.
    pub(super) fn make_dir(&self, above: &Dir, name: &str) -> Result<Dir> {
        let Some(label) = self.label(above, name, FileKind::Directory)? else { return above.make_dir(name) };
        let temporary = temporary_name(name);
        above.remove_dir_if_empty(&temporary)?;
        mkdirat(&above.fd, temporary.as_str(), Mode::from_bits_truncate(0o755))
            .map_err(above.failed("make the directory", name))?;
        let dir = above.open_dir(&temporary)?;
        self.set_label(&dir.fd, &label, || above.shown(name))?;
        dir.set_mode(0o755)?;
        match nix::fcntl::renameat(&above.fd, temporary.as_str(), &above.fd, name) {
            Ok(()) => above.sync()?,
            // The name exists now. If another program has created the directory, this is fine. If the name is not a directory, the
            // following `open_dir` fails.
            Err(_) => above.remove_dir_if_empty(&temporary)?,
        }
        above.open_dir(name)
    }

    /// Gives a file the label for its final name in `dir`. Returns whether the label was set.
    pub(crate) fn label_file(&self, file: &File, dir: &Dir, name: &str) -> Result<bool> {
        match self.label(dir, name, FileKind::File)? {
            Some(label) => self.set_label(file, &label, || dir.shown(name)),
            None => Ok(false),
        }
    }

    /// Labels a link that still has its temporary name. The label is the policy's label for the final name `name`.
    pub(crate) fn label_link(&self, dir: &Dir, temporary: &str, name: &str) -> Result<()> {
        let Some(label) = self.label(dir, name, FileKind::Symlink)? else { return Ok(()) };
        let path = proc_path(dir.fd.as_fd(), temporary);
        let set = lsetxattr(path, ATTRIBUTE, &as_attribute(&label), XattrFlags::empty());
        self.judge(set, || dir.shown(name)).map(drop)
    }

    /// Corrects the label at a path if it differs from the label in the policy.
    pub(crate) fn mend_label(&self, path: &str, kind: FileKind) -> Result<()> {
        let Some(Mislabelled { wanted, .. }) = self.mislabelled(path, kind)? else { return Ok(()) };
        let Some((dir, name)) = self.parent(path)? else { return Ok(()) };
        let path = proc_path(dir.fd.as_fd(), &name);
        let set = lsetxattr(path, ATTRIBUTE, &as_attribute(&wanted), XattrFlags::empty());
        self.judge(set, || dir.shown(&name)).map(drop)
    }

    /// The label at a path if it differs from the label in the policy.
    pub(crate) fn mislabelled(&self, path: &str, kind: FileKind) -> Result<Option<Mislabelled>> {
        // Check this first, because most machines have no policy.
        if self.policy()?.is_none() {
            return Ok(None);
        }
        let Some((dir, name)) = self.parent(path)? else { return Ok(None) };
        let Some(wanted) = self.label(&dir, &name, kind)? else { return Ok(None) };
        let mut buffer = vec![0; LARGEST];
        let found = match lgetxattr(proc_path(dir.fd.as_fd(), &name), ATTRIBUTE, &mut buffer) {
            Ok(size) => Some(String::from_utf8_lossy(&buffer[..size]).trim_end_matches('\0').to_owned()),
            Err(Errno::NODATA) => None,
            // The path does not exist, or its file system has no labels.
            Err(_) => return Ok(None),
        };
        Ok((!is_as_good(found.as_deref(), &wanted)).then_some(Mislabelled { found, wanted }))
    }

    /// Gives the file `to` the label of the file `from`, if `from` has a label.
    pub(crate) fn copy_label(&self, from: &File, to: &File, shown: impl Fn() -> String) -> Result<()> {
        let mut buffer = vec![0; LARGEST];
        let Ok(size) = fgetxattr(from, ATTRIBUTE, &mut buffer) else { return Ok(()) };
        self.judge(fsetxattr(to, ATTRIBUTE, &buffer[..size], XattrFlags::empty()), shown).map(drop)
    }

    fn set_label(&self, file: impl AsFd, label: &str, shown: impl Fn() -> String) -> Result<bool> {
        self.judge(fsetxattr(file, ATTRIBUTE, &as_attribute(label), XattrFlags::empty()), shown)
    }

    /// Handles the result of setting a label. Returns whether the file now has the label.
    fn judge(&self, set: rustix::io::Result<()>, shown: impl Fn() -> String) -> Result<bool> {
        match set {
            Ok(()) => Ok(true),
            // The file system stores no labels. SELinux uses one label for all its files.
            Err(Errno::NOTSUP) => Ok(false),
            // Only the root user may set labels. If the target is only a folder and not this machine, the agent may run as another user.
            Err(Errno::PERM) if !self.is_machine() => Ok(false),
            Err(error) => Err(Error::path("set the SELinux label of", shown(), error)),
        }
    }
}

/// The `/proc` path of a name in an open directory, or of the directory itself. This path does not depend on links in the directory's path.
fn proc_path(dir: BorrowedFd<'_>, name: &str) -> String {
    format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()).trim_end_matches('/').to_owned()
}

/// The label with a NUL at its end, as libselinux writes it.
fn as_attribute(label: &str) -> Vec<u8> {
    [label.as_bytes(), b"\0"].concat()
}
