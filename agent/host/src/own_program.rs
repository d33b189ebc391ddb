//! Replaces the program of the agent by another version, and takes the previous one back.
//!
//! The program is a file of the real machine, even if a scratch root stands in for everything else. The new version is complete and
//! verified beside the present one before one rename puts it in place. The present one stays as `NAME.previous`, so an operator can
//! move it back. A process that runs keeps its program until it is restarted.
//!
//! If a package owns the program, the package manager replaces it.

mod note;
mod packages;
mod services;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::assets::{Downloads, Progress, Request, Want};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::root::{Entry, Root, set_mode, temporary_name};
use crate::staged::{Sealed, place};

pub use note::OrderedProgram;
pub use services::Service;

/// The suffix in the file name of the previous version.
const PREVIOUS: &str = ".previous";
/// The maximum size of a program, in bytes. Releases have some 20 MiB. Builds with debug information are ten times as large.
pub const LARGEST_PROGRAM: u64 = 256 << 20;
/// The directory of downloaded programs. Runs have another cache, because a run locks its cache, and a slow download of a program must
/// not block runs.
const CACHE: &str = "/var/cache/nodeup/programs";

/// Another version of the program, complete and verified, in a file in the directory of the present program. Dropping this value removes
/// the file.
pub struct NewProgram(Sealed);

impl NewProgram {
    /// The temporary path of the new program. The program can be run there before it replaces the present program.
    pub fn path(&self) -> String {
        self.0.temporary_path()
    }
}

impl Host {
    /// Whether a package manager owns this file.
    pub fn is_packaged(&self, program: &str) -> Result<bool> {
        Ok(!self.packages.owned(&[program])?.is_empty())
    }

    /// Downloads another version of the program at this path and verifies its SHA-256. The new file gets the owner of the present program.
    /// After the verification, it also gets the present program's mode and SELinux label.
    pub async fn fetch_program(
        &self,
        program: &str,
        (url, sha256): (&str, &str),
        downloads: &Downloads,
        progress: &dyn Progress,
    ) -> Result<NewProgram> {
        let root = real_root()?;
        let present = root.metadata(program)?.ok_or_else(|| Error::Path {
            doing: "replace",
            path: program.to_owned(),
            reason: "it is no regular file".to_owned(),
        })?;
        let owner = Some((present.uid, present.gid));
        let want = Want { path: program.to_owned(), member: None, mode: 0o600, owner };
        let request = Request { sha256: sha256.to_owned(), urls: vec![url.to_owned()], wants: vec![want] };
        self.root.make_dirs(CACHE)?;
        let downloads = downloads.clone().largest(LARGEST_PROGRAM).cache(self.root.shown(CACHE));
        let cache = downloads.open_cache(&self.root)?;
        let ready = downloads.fetch(&self.root, &cache, vec![request], progress).await?;
        let ready = ready.into_iter().next().ok_or_else(|| Error::Path {
            doing: "open",
            path: format!("the download of {program}"),
            reason: "it was verified, but is gone; try again".to_owned(),
        })?;
        let file = ready.dir.open(&ready.name)?;
        set_mode(&file, present.mode)
            .and_then(|()| file.sync_all())
            .map_err(|error| Error::path("set the mode of", ready.dir.shown(&ready.name), error))?;
        let new = Sealed::adopt(&root, program, &ready.dir, &ready.name, present.mode, owner)?;
        label_as_present(&root, program)?;
        drop(cache);
        if let Err(error) = downloads.trim_cache(&self.root, &BTreeSet::from([sha256])) {
            log::debug!("earlier downloads of programs stay: {error}");
        }
        Ok(NewProgram(new))
    }

    /// Replaces the program at this path by the new version. The present program stays as `NAME.previous`.
    pub fn switch_program(&self, program: &str, new: NewProgram) -> Result<()> {
        let (dir, name) = real_root()?.make_parent(program)?;
        let previous = format!("{name}{PREVIOUS}");
        if !dir.has_same(&name, &dir, &previous)? {
            let temporary = temporary_name(&previous);
            dir.remove(&temporary)?;
            if !dir.link_to(&name, &dir, &temporary)? {
                return Err(Error::Path {
                    doing: "keep the present program as",
                    path: dir.shown(&previous),
                    reason: "the file system allows no hard links".to_owned(),
                });
            }
            dir.rename(&temporary, &previous)?;
            dir.sync()?;
        }
        place(vec![new.0])
    }

    /// Replaces the program at this path by the previous version.
    pub fn take_program_back(&self, program: &str) -> Result<()> {
        let (dir, name) = real_root()?.make_parent(program)?;
        dir.rename(&format!("{name}{PREVIOUS}"), &name)?;
        dir.sync()
    }

    /// Writes the program at this path to the disk. rpm does not sync the file, so a power cut could damage the new program.
    pub fn sync_program(&self, program: &str) -> Result<()> {
        let (dir, name) = real_root()?.make_parent(program)?;
        dir.open(&name)?.sync_all().map_err(|error| Error::path("write", program, error))?;
        dir.sync()
    }

    /// Whether the previous version exists in the directory of the program at this path.
    pub fn has_previous_program(&self, program: &str) -> Result<bool> {
        let (dir, name) = real_root()?.make_parent(program)?;
        Ok(matches!(dir.entry(&format!("{name}{PREVIOUS}"))?, Some(Entry::File(_))))
    }

    /// When the program was put at this path. `None` if the path is not a regular file.
    pub fn program_placed(&self, program: &str) -> Result<Option<SystemTime>> {
        let metadata = real_root()?.metadata(program)?;
        Ok(metadata.and_then(|metadata| changed(metadata.changed)))
    }

    /// Removes the temporary file beside the program at this path. This file contains a new version of the program. The file remains if
    /// the agent is killed during a trial run of the new version.
    pub fn remove_tried_program(&self, program: &str) -> Result<()> {
        let (dir, name) = real_root()?.make_parent(program)?;
        dir.remove(&temporary_name(&name))
    }
}

/// Gives the new version the SELinux label of the present program, because the services start with this label. In the policy, this path may
/// have another label.
fn label_as_present(root: &Root, program: &str) -> Result<()> {
    let (dir, name) = root.make_parent(program)?;
    let temporary = temporary_name(&name);
    let new = dir.open(&temporary)?;
    root.copy_label(&dir.open(&name)?, &new, || dir.shown(&temporary))?;
    new.sync_all().map_err(|error| Error::path("write", dir.shown(&temporary), error))
}

fn real_root() -> Result<Root> {
    Root::open(Path::new("/"))
}

fn changed((seconds, nanoseconds): (i64, i64)) -> Option<SystemTime> {
    let since = Duration::new(u64::try_from(seconds).ok()?, u32::try_from(nanoseconds).ok()?);
    SystemTime::UNIX_EPOCH.checked_add(since)
}

#[cfg(test)]
mod tests;
