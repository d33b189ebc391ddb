//! dnf, and yum on machines without dnf.

use std::collections::BTreeSet;

use super::locks::{LockFile, Waiting, held};
use crate::error::{Error, Result};
use crate::system::commands::{ask, run};

/// The locks of dnf and yum. Both wait for these locks by themselves, but do not say which process holds a lock.
const LOCKS: [LockFile<'static>; 3] = [
    LockFile::Numbered("/var/cache/dnf/metadata_lock.pid"),
    LockFile::Numbered("/var/lib/dnf/rpmdb_lock.pid"),
    LockFile::Numbered("/var/run/yum.pid"),
];
/// rpm's lock for a transaction, in the folder of its database. dnf does not wait for this lock.
const TRANSACTION_LOCK: &str = ".rpm.lock";

/// A lock of dnf, yum or rpm that a process holds, and this process. `None` if no process holds a lock.
pub(super) fn lock_holder() -> Result<Option<(String, String)>> {
    let transaction = transaction_lock()?;
    held(&[&LOCKS[..], &[LockFile::Locked(&transaction)]].concat())
}

fn transaction_lock() -> Result<String> {
    let database = run(&["rpm", "--eval", "%{_dbpath}"])?;
    Ok(format!("{}/{TRANSACTION_LOCK}", database.trim()))
}

/// The name under which rpm lists a package argument of dnf. `None` for groups, patterns, URLs and package files.
pub(super) fn listed(package: &str) -> Option<&str> {
    let is_file = package.starts_with('/') && package.ends_with(".rpm");
    let is_other = package.starts_with('@') || package.contains("://") || package.contains(['*', '?', '[']);
    (!is_file && !is_other).then_some(package)
}

/// Filters `packages` to the installed ones: by name, with or without a version, or provided by another package.
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

/// Fetches packages into dnf's cache, which keeps them until the next transaction (dnf(8), `--downloadonly`).
pub(super) fn fetch(installer: &str, packages: &[&str]) -> Result<()> {
    if let Some((path, holder)) = lock_holder()? {
        return Err(Error::Path { doing: "take the lock", path, reason: format!("{holder} holds it") });
    }
    run(&[&[installer, "install", "--assumeyes", "--downloadonly"], options(installer), packages].concat())
        .map(drop)
}

pub(super) fn install(installer: &str, packages: &[&str], waiting: Waiting<'_>) -> Result<()> {
    let transaction = transaction_lock()?;
    waiting.for_locks(&[&LOCKS[..], &[LockFile::Locked(&transaction)]].concat())?;
    run(&[&[installer, "install", "--assumeyes"], options(installer), packages].concat()).map(drop)
}

fn options(installer: &str) -> &'static [&'static str] {
    if installer.ends_with("dnf") { &["--setopt=install_weak_deps=False"] } else { &[] }
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
