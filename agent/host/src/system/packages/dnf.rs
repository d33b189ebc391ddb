//! dnf, and yum on machines without dnf.

use std::collections::BTreeSet;

use super::locks::{LockFile, Waiting, held};
use super::versions::PackageVersion;
use crate::error::{Error, Result};
use crate::system::commands::{ask, ask_outliving, refused, run};

/// The locks of dnf and yum. dnf and yum wait for these locks, but do not say which process holds a lock.
const LOCKS: [LockFile<'static>; 3] = [
    LockFile::Numbered("/var/cache/dnf/metadata_lock.pid"),
    LockFile::Numbered("/var/lib/dnf/rpmdb_lock.pid"),
    LockFile::Numbered("/var/run/yum.pid"),
];
/// The format of rpm's output about one package.
const SHOWN: &str = "%{NAME}\\t%{VERSION}-%{RELEASE}\\n";
/// rpm's lock for a transaction, in the folder of its database. dnf does not wait for this lock.
const TRANSACTION_LOCK: &str = ".rpm.lock";

/// A locked lock file of dnf, yum or rpm, and the process that holds the lock. `None` if no process holds a lock.
pub(super) fn lock_holder() -> Result<Option<(String, String)>> {
    let transaction = transaction_lock()?;
    held(&[&LOCKS[..], &[LockFile::Locked(&transaction)]].concat())
}

fn transaction_lock() -> Result<String> {
    let database = run(&["rpm", "--eval", "%{_dbpath}"])?;
    Ok(format!("{}/{TRANSACTION_LOCK}", database.trim()))
}

/// The name under which rpm lists a package. `package` is an argument of `dnf install`. `None` for groups, patterns, URLs
/// and package files.
pub(super) fn listed(package: &str) -> Option<&str> {
    let is_file = package.starts_with('/') && package.ends_with(".rpm");
    let is_other = package.starts_with('@') || package.contains("://") || package.contains(['*', '?', '[']);
    (!is_file && !is_other).then_some(package)
}

/// Filters `packages` to the installed ones. An argument may be a name with or without a version, or a name that
/// another package provides.
pub(super) fn installed(packages: &[&str]) -> Result<BTreeSet<String>> {
    let mut installed = BTreeSet::new();
    for package in packages {
        // `rpm --query` also understands `name-version-release.arch`.
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

/// The installed packages among `names`, in their installed versions.
pub(super) fn versions(names: &[&str]) -> Result<Vec<PackageVersion>> {
    let query = ["rpm", "--query", "--queryformat", SHOWN, "--"];
    // rpm fails if one package is not installed, but still prints the other packages.
    Ok(parse(&ask(&[&query[..], names].concat())?.stdout))
}

/// Reads rpm's output. The line about a package that is not installed has no tab.
fn parse(shown: &str) -> Vec<PackageVersion> {
    let version =
        |(name, version): (&str, &str)| PackageVersion { name: name.to_owned(), version: version.to_owned() };
    shown.lines().filter_map(|line| line.split_once('\t')).map(version).collect()
}

pub(super) fn argument(package: &PackageVersion) -> String {
    format!("{}-{}", package.name, package.version)
}

/// The command by which an operator installs packages in the given versions, which may be older than the installed
/// ones. yum has one verb for newer versions and one for older versions, and both succeed if they have nothing to do.
/// So the command for yum runs both verbs, and then shows the installed versions by `rpm --query`.
pub(super) fn command(installer: &str, packages: &str) -> String {
    let name = installer.trim_start_matches("/usr/bin/");
    match is_dnf(installer) {
        true => format!("{name} install {packages}"),
        false => format!("{name} install {packages}; {name} downgrade {packages}; rpm --query {packages}"),
    }
}

/// Downloads the package lists. Returns the packages whose wanted version is in no repository. yum has no
/// `repoquery` command, so the result for yum is empty. If a package is missing, the next installation fails.
pub(super) fn not_offered(installer: &str, packages: &[PackageVersion]) -> Result<Vec<PackageVersion>> {
    if !is_dnf(installer) {
        run(&[installer, "clean", "expire-cache"])?;
        return Ok(Vec::new());
    }
    run(&[installer, "--quiet", "--refresh", "makecache"])?;
    let mut missing = Vec::new();
    for package in packages {
        if run(&[installer, "--quiet", "repoquery", &argument(package)])?.trim().is_empty() {
            missing.push(package.clone());
        }
    }
    Ok(missing)
}

/// Installs packages in the given versions, which may be older than the installed ones. yum has a separate verb for
/// older versions.
pub(super) fn replace(installer: &str, packages: &[&str], waiting: Waiting<'_>) -> Result<()> {
    let transaction = transaction_lock()?;
    let mut failure = None;
    for verb in ["install", "downgrade"] {
        waiting.for_locks(&[&LOCKS[..], &[LockFile::Locked(&transaction)]].concat())?;
        let command = [&[installer, verb, "--assumeyes"][..], options(installer), packages].concat();
        let outcome = ask_outliving(&command)?;
        // yum exits with 0 even if a newer version stays installed. So the installed versions decide whether the
        // command succeeded.
        if installed(packages)?.len() == packages.len() {
            return Ok(());
        }
        // A verb that has nothing to do exits with 0. So report the last verb that failed, or the first verb if none failed.
        if failure.is_none() || !outcome.status.success() {
            failure = Some(refused(&command, &outcome));
        }
        if is_dnf(installer) {
            break;
        }
    }
    failure.map_or(Ok(()), Err)
}

pub(super) fn install(installer: &str, packages: &[&str], waiting: Waiting<'_>) -> Result<()> {
    let transaction = transaction_lock()?;
    waiting.for_locks(&[&LOCKS[..], &[LockFile::Locked(&transaction)]].concat())?;
    run(&[&[installer, "install", "--assumeyes"], options(installer), packages].concat()).map(drop)
}

fn options(installer: &str) -> &'static [&'static str] {
    if is_dnf(installer) { &["--setopt=install_weak_deps=False"] } else { &[] }
}

fn is_dnf(installer: &str) -> bool {
    installer.ends_with("dnf")
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

    #[test]
    fn versions_are_read_from_rpm_and_named_by_a_hyphen() {
        let present = parse("kops-agent\t0.2.0~rc.1-1\npackage kops-agent-controller is not installed\n");
        assert_eq!(present, [PackageVersion::of_release("kops-agent", "0.2.0-rc.1")]);
        assert_eq!(argument(&present[0]), "kops-agent-0.2.0~rc.1-1");
    }

    #[test]
    fn the_command_for_an_operator_goes_back_and_forth() {
        assert_eq!(command("/usr/bin/dnf", "a-1-1 b-1-1"), "dnf install a-1-1 b-1-1");
        let of_yum = command("/usr/bin/yum", "a-1-1");
        assert_eq!(of_yum, "yum install a-1-1; yum downgrade a-1-1; rpm --query a-1-1");
    }
}
