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
