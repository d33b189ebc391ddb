//! Finds the files of manifests in the folders and files that the user names.
//!
//! In CI, a pull request may have links to any file of the machine. A link is followed only if it leads to a file in the working directory, or
//! in the folder that the user names.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Result;
use kops_agent_spec::failure::{Failure, Kind};

use super::told::{Severity, Told};
use crate::findings::Finding;

/// Maximum number of files in one check.
const MOST_FILES: usize = 10_000;
/// Maximum number of links on the way to one file. Linux has this limit, too.
const MOST_LINKS: usize = 40;
const LEADS_OUT: &str = "is a link that leads out of the working directory, so it is not followed; replace it by the manifests, or name its target with --manifests";

#[derive(Default)]
pub(super) struct Files {
    /// The path of each file, and whether the user named this path.
    pub(super) is_named: BTreeMap<PathBuf, bool>,
    /// Whether a folder or a link could not be read.
    pub(super) lacks_files: bool,
}

impl Files {
    /// Adds a file that the user did not name.
    fn add(&mut self, path: PathBuf) {
        self.is_named.entry(path).or_insert(false);
    }
}

/// Finds all manifest files among these files and folders. Fails if a link in a path leads out of the working directory, or if there are
/// too many files.
pub(super) fn files(paths: &[PathBuf], told: &mut Told) -> Result<Files> {
    let working = fs::canonicalize(".").map_err(|error| {
        Failure::new(Kind::Io, format!("cannot read the working directory: {error}; change to another one"))
    })?;
    let mut files = Files::default();
    for path in paths {
        let refused = |problem: &str| {
            Failure::new(Kind::WrongUsage, format!("--manifests {}: {problem}", path.display()))
        };
        match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(refused("no such file or folder").into());
            }
            // The error is reported when the file is read.
            Err(_) => drop(files.is_named.insert(path.clone(), true)),
            Ok(_) if leaves(path, &working) => {
                return Err(refused(
                    "a link in this path leads out of the working directory; name its target",
                )
                .into());
            }
            Ok(metadata) if metadata.is_dir() => add_files(path, &working, &mut files, told)?,
            Ok(metadata) if metadata.is_file() => drop(files.is_named.insert(path.clone(), true)),
            Ok(_) => {
                return Err(refused("is neither a file nor a folder; write the manifests into a file").into());
            }
        }
    }
    Ok(files)
}

/// Whether a link in the working directory leads a named path out of the working directory. A pull request may contain such a link. If the
/// user names a path outside the working directory, links outside the working directory are allowed.
fn leaves(path: &Path, working: &Path) -> bool {
    !is_inside(path, working) && has_link_inside(&working.join(path), working, MOST_LINKS)
}

fn is_inside(path: &Path, working: &Path) -> bool {
    fs::canonicalize(path).is_ok_and(|target| target.starts_with(working))
}

/// Whether a path contains a link that is in the working directory. The path may reach this link through links outside the working
/// directory.
fn has_link_inside(path: &Path, working: &Path, most: usize) -> bool {
    // A path with a slash at its end names the target of a link. `components` removes this slash.
    let path: PathBuf = path.components().collect();
    path.ancestors().any(|link| {
        let (Ok(target), Some(folder)) = (fs::read_link(link), link.parent()) else { return false };
        is_inside(folder, working) || most > 0 && has_link_inside(&folder.join(target), working, most - 1)
    })
}

/// Adds the manifests of a folder and its subfolders. Hidden folders, such as `.git`, and links to folders are left out. Fails if there are
/// too many files.
fn add_files(named: &Path, working: &Path, files: &mut Files, told: &mut Told) -> Result<()> {
    let root = fs::canonicalize(named).unwrap_or_else(|_| working.to_owned());
    let mut folders = vec![named.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries: io::Result<Vec<fs::DirEntry>> = fs::read_dir(&folder).and_then(Iterator::collect);
        let entries = entries.unwrap_or_else(|error| {
            files.lacks_files = true;
            told.add(Severity::Error, unreadable(&folder, &error));
            Vec::new()
        });
        for entry in entries {
            let path = entry.path();
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let is_manifest = path
                .extension()
                .is_some_and(|name| ["yaml", "yml", "json"].iter().any(|known| name == *known));
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(path),
                Ok(kind) if kind.is_symlink() => match fs::canonicalize(&path) {
                    Ok(target)
                        if !target.starts_with(working)
                            && !target.starts_with(&root)
                            && (is_manifest || target.is_dir()) =>
                    {
                        let file = path.display().to_string();
                        let problem = LEADS_OUT.to_owned();
                        told.add(Severity::NotChecked, Finding { file, problem, ..Finding::default() });
                    }
                    Ok(target) if is_manifest && target.is_file() => files.add(path),
                    Err(error) if is_manifest => {
                        files.lacks_files = true;
                        told.add(Severity::Error, unreadable(&path, &error));
                    }
                    _ => {}
                },
                Ok(kind) if !kind.is_file() => {}
                // An error is reported when the file is read.
                _ if is_manifest => files.add(path),
                _ => {}
            }
        }
        if files.is_named.len() > MOST_FILES {
            let problem = format!(
                "--manifests {}: more than 10,000 files end with .yaml, .yml or .json; check fewer folders at once",
                named.display()
            );
            return Err(Failure::new(Kind::WrongSetting, problem).into());
        }
    }
    Ok(())
}

/// The finding about a path that the operating system refuses to read. The path may have manifests of kOps.
pub(super) fn unreadable(path: &Path, error: &io::Error) -> Finding {
    let file = path.display().to_string();
    let problem = format!("cannot be read: {error}; correct its permissions or, if it is a link, its target");
    Finding { file, problem, ..Finding::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_files_has_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("x.yaml"), "").unwrap();
        let refused = |others: usize| {
            let is_named = (0..others).map(|number| (PathBuf::from(number.to_string()), false)).collect();
            let mut files = Files { is_named, lacks_files: false };
            add_files(folder.path(), folder.path(), &mut files, &mut Told::default()).err()
        };
        assert!(refused(MOST_FILES - 1).is_none());
        let problem = refused(MOST_FILES).unwrap().to_string();
        assert!(problem.contains(": more than 10,000 files end with .yaml, .yml or .json; "), "{problem}");
    }
}
