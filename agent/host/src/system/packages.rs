//! The distribution's packages.

use std::collections::BTreeSet;
use std::path::Path;

use super::commands::{ask, refused, run};
use crate::error::{Error, Result};

/// The package manager.
pub trait PackageManager: Send + Sync {
    /// Those of `packages` that are installed.
    ///
    /// # Errors
    /// The package manager cannot be asked.
    fn installed(&self, packages: &[&str]) -> Result<BTreeSet<String>>;

    /// Installs all of `packages`, at once.
    ///
    /// # Errors
    /// One of them cannot be installed.
    fn install(&self, packages: &[&str]) -> Result<()>;
}

/// This machine's package manager, whichever it has.
pub struct Machine;

/// How long to wait for another process to let go of apt's lock: unattended upgrades run at boot.
const APT_LOCK: &str = "DPkg::Lock::Timeout=600";

#[derive(Clone, Copy)]
enum Manager {
    Apt,
    Rpm { installer: &'static str },
}

fn manager() -> Result<Manager> {
    let is_there = |program: &str| Path::new(program).exists();
    if is_there("/usr/bin/apt-get") {
        Ok(Manager::Apt)
    } else if is_there("/usr/bin/dnf") {
        Ok(Manager::Rpm { installer: "/usr/bin/dnf" })
    } else if is_there("/usr/bin/yum") {
        Ok(Manager::Rpm { installer: "/usr/bin/yum" })
    } else {
        Err(Error::Path {
            doing: "find",
            path: "a package manager".into(),
            reason: "this machine has none of apt-get, dnf and yum".into(),
        })
    }
}

impl PackageManager for Machine {
    fn installed(&self, packages: &[&str]) -> Result<BTreeSet<String>> {
        if packages.is_empty() {
            return Ok(BTreeSet::new());
        }
        match manager()? {
            Manager::Apt => {
                let query =
                    ["dpkg-query", "--show", "--showformat=${Package}\\t${db:Status-Abbrev}\\n", "--"];
                // It fails when it does not know one of them, and still tells of the others.
                Ok(installed_debs(&ask(&[&query[..], packages].concat())?.stdout))
            }
            Manager::Rpm { .. } => {
                let query = ["rpm", "--query", "--queryformat", "%{NAME}\\n", "--"];
                let known = ask(&[&query[..], packages].concat())?.stdout;
                let known: BTreeSet<&str> = known.lines().collect();
                Ok(packages.iter().filter(|name| known.contains(**name)).map(|name| (*name).into()).collect())
            }
        }
    }

    fn install(&self, packages: &[&str]) -> Result<()> {
        match manager()? {
            Manager::Apt => install_debs(packages),
            Manager::Rpm { installer } => {
                let weak = "--setopt=install_weak_deps=False";
                let options: &[&str] = if installer.ends_with("dnf") { &[weak] } else { &[] };
                run(&[&[installer, "install", "--assumeyes"], options, packages].concat()).map(drop)
            }
        }
    }
}

/// `ii` is what dpkg says of a package that is wanted and wholly installed.
fn installed_debs(shown: &str) -> BTreeSet<String> {
    let line = |line: &str| {
        let (name, status) = line.split_once('\t')?;
        (status.trim() == "ii").then(|| name.to_owned())
    };
    shown.lines().filter_map(line).collect()
}

fn install_debs(packages: &[&str]) -> Result<()> {
    run(&["apt-get", "-o", APT_LOCK, "update"])?;
    let install = [
        &["apt-get", "-o", APT_LOCK, "-o", "Dpkg::Options::=--force-confold"][..],
        &["install", "--yes", "--no-install-recommends", "--"],
        packages,
    ]
    .concat();
    let outcome = ask(&install)?;
    if outcome.status.success() {
        return Ok(());
    }
    if outcome.stderr.contains("dpkg --configure -a") {
        // An earlier installation was cut off half-way; this is dpkg's own way to finish it.
        run(&["dpkg", "--configure", "-a"])?;
        return run(&install).map(drop);
    }
    Err(refused(&install, &outcome))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_wholly_installed_packages_count() {
        let shown = "chrony\tii \nlogrotate\tiU \nold\trc \nsocat\tii \nnothing\n";
        assert_eq!(installed_debs(shown), BTreeSet::from(["chrony".to_owned(), "socat".to_owned()]));
    }
}
