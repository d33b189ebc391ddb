//! The distribution's packages.

use std::collections::BTreeSet;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::commands::{Outcome, ask, refused, run};
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
/// What apt says where that does not make it wait, which is for the locks of its lists and its archives.
const DIRECTORY_IS_LOCKED: &str = "Unable to lock directory";
const LOCK_PATIENCE: Duration = Duration::from_secs(600);
const LOCK_PAUSE: Duration = Duration::from_secs(1);

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
    let update = ["apt-get", "-o", APT_LOCK, "update"];
    let outcome = while_locked(LOCK_PATIENCE, LOCK_PAUSE, || ask(&update))?;
    if !outcome.status.success() {
        return Err(refused(&update, &outcome));
    }
    let install = [
        &["apt-get", "-o", APT_LOCK, "-o", "Dpkg::Options::=--force-confold"][..],
        &["install", "--yes", "--no-install-recommends", "--"],
        packages,
    ]
    .concat();
    let outcome = while_locked(LOCK_PATIENCE, LOCK_PAUSE, || ask(&install))?;
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

/// Tries again for as long as somebody else has a lock that apt itself does not wait for.
fn while_locked(
    patience: Duration,
    pause: Duration,
    attempt: impl Fn() -> Result<Outcome>,
) -> Result<Outcome> {
    let since = Instant::now();
    loop {
        let outcome = attempt()?;
        let is_locked = !outcome.status.success() && outcome.stderr.contains(DIRECTORY_IS_LOCKED);
        if !is_locked || since.elapsed() >= patience {
            return Ok(outcome);
        }
        sleep(pause);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// How often it is tried with a program that finds the lock held so often.
    fn attempts(held: u32, patience: Duration, says: &str) -> (u32, bool) {
        let attempts = Cell::new(0);
        let outcome = while_locked(patience, Duration::ZERO, || {
            attempts.set(attempts.get() + 1);
            let script = format!("echo '{says}' >&2; exit 100");
            ask(&["sh", "-c", if attempts.get() > held { "true" } else { &script }])
        });
        (attempts.get(), outcome.unwrap().status.success())
    }

    #[test]
    fn locks_that_apt_does_not_wait_for_are_waited_for() {
        let locked = "E: Unable to lock directory /var/lib/apt/lists/";
        assert_eq!(attempts(2, Duration::MAX, locked), (3, true));
        assert_eq!(attempts(2, Duration::ZERO, locked), (1, false));
        assert_eq!(attempts(2, Duration::MAX, "E: Unable to locate package nosuch"), (1, false));
    }

    #[test]
    fn only_wholly_installed_packages_count() {
        let shown = "chrony\tii \nlogrotate\tiU \nold\trc \nsocat\tii \nnothing\n";
        assert_eq!(installed_debs(shown), BTreeSet::from(["chrony".to_owned(), "socat".to_owned()]));
    }
}
