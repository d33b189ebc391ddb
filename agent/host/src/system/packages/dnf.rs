//! dnf, and yum where there is no dnf yet.

use std::collections::BTreeSet;

use super::locks::{LockFile, Waiting, held};
use crate::error::Result;
use crate::system::commands::{ask, run};

/// dnf's own locks, and yum's; they wait for each other by themselves, but do not tell for which process.
const LOCKS: [LockFile<'static>; 3] = [
    LockFile::Numbered("/var/cache/dnf/metadata_lock.pid"),
    LockFile::Numbered("/var/lib/dnf/rpmdb_lock.pid"),
    LockFile::Numbered("/var/run/yum.pid"),
];
/// The lock that rpm takes for a transaction, in the folder of its database; for this one dnf does not wait.
const TRANSACTION_LOCK: &str = ".rpm.lock";

/// The lock that a process holds, and that process.
pub(super) fn lock_holder() -> Result<Option<(String, String)>> {
    let transaction = transaction_lock()?;
    held(&[&LOCKS[..], &[LockFile::Locked(&transaction)]].concat())
}

fn transaction_lock() -> Result<String> {
    let database = run(&["rpm", "--eval", "%{_dbpath}"])?;
    Ok(format!("{}/{TRANSACTION_LOCK}", database.trim()))
}

/// What rpm can be asked for of what dnf is to install; `None` for groups, patterns, URLs and files of packages.
pub(super) fn listed(package: &str) -> Option<&str> {
    let is_file = package.starts_with('/') && package.ends_with(".rpm");
    let is_other = package.starts_with('@') || package.contains("://") || package.contains(['*', '?', '[']);
    (!is_file && !is_other).then_some(package)
}

/// Those that are installed: by name, with or without a version, or as what another package provides.
pub(super) fn installed(packages: &[&str]) -> Result<BTreeSet<String>> {
    let mut installed = BTreeSet::new();
    for package in packages {
        // rpm understands `name-version-release.arch` by itself.
        let is_known = |options: &[&str]| -> Result<bool> {
            Ok(ask(&[&["rpm", "--query"], options, &["--", package]].concat())?.status.success())
        };
        if is_known(&[])? || is_known(&["--whatprovides"])? {
            installed.insert((*package).to_owned());
        }
    }
    Ok(installed)
}

pub(super) fn install(installer: &str, packages: &[&str], waiting: Waiting<'_>) -> Result<()> {
    let transaction = transaction_lock()?;
    waiting.for_locks(&[&LOCKS[..], &[LockFile::Locked(&transaction)]].concat())?;
    let weak = "--setopt=install_weak_deps=False";
    let options: &[&str] = if installer.ends_with("dnf") { &[weak] } else { &[] };
    run(&[&[installer, "install", "--assumeyes"], options, packages].concat()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rpm_is_asked_for_packages_and_for_files_that_they_bring() {
        for package in ["vim", "vim-9.1-2.el9.x86_64", "/usr/bin/vim"] {
            assert_eq!(listed(package), Some(package));
        }
        for package in ["@development-tools", "kernel-modules-*", "https://h/a.rpm", "/opt/agent.rpm"] {
            assert_eq!(listed(package), None, "{package}");
        }
    }
}
