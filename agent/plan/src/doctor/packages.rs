//! Checks the package manager: whether another process holds its lock, and whether missing packages are available.

use super::finding::{Finding, Seen};

const PACKAGES: &str = "packages";
const REPOSITORIES: &str = "repositories";

#[derive(Clone, Debug)]
pub struct Packages {
    /// The lock that a process holds. `None` if no process holds a lock.
    pub lock: Seen<Option<PackageLock>>,
    /// The desired packages that are not installed yet. `None` if the desired packages are unknown.
    pub missing: Option<Seen<Vec<String>>>,
    /// The state of the repositories. `None` if no package must be installed.
    pub repositories: Option<Seen<Repositories>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageLock {
    pub path: String,
    /// The process that holds the lock.
    pub holder: String,
}

/// The state of the repositories in the machine's package sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repositories {
    /// The number of repositories that can be read.
    pub answering: usize,
    /// The package manager's messages about repositories that cannot be read.
    pub complaints: Vec<String>,
}

pub(super) fn findings(packages: &Packages) -> Vec<Finding> {
    let missing = packages.missing.iter().filter_map(|missing| of_missing(missing, &packages.repositories));
    [of_lock(&packages.lock)].into_iter().chain(missing).collect()
}

fn of_lock(lock: &Seen<Option<PackageLock>>) -> Finding {
    match lock {
        Ok(None) => Finding::ok(PACKAGES, "no process holds the lock of the package manager"),
        Ok(Some(PackageLock { path, holder })) => Finding::warning(
            PACKAGES,
            format!(
                "{holder} holds the lock of the package manager, {path}; converge waits up to ten minutes \
                 for this lock"
            ),
            "wait until it finishes, or stop it",
        ),
        Err(why) => {
            let what = format!("cannot tell whether the package manager is locked: {why}");
            Finding::unknown(PACKAGES, what, "run as root")
        }
    }
}

fn of_missing(missing: &Seen<Vec<String>>, repositories: &Option<Seen<Repositories>>) -> Option<Finding> {
    let names = match missing {
        Ok(names) if names.is_empty() => return Some(Finding::ok(PACKAGES, "all packages are installed")),
        Ok(names) => names.join(", "),
        Err(why) => {
            let what = format!("cannot tell which packages are missing: {why}");
            return Some(Finding::unknown(PACKAGES, what, "check with the package manager"));
        }
    };
    Some(match repositories.as_ref()? {
        Ok(Repositories { answering: 0, complaints }) => {
            let why = match complaints.is_empty() {
                true => "none is configured".to_owned(),
                false => complaints.join("; "),
            };
            Finding::problem(
                REPOSITORIES,
                format!(
                    "{names} are not installed yet, and the package manager can read no repository: {why}"
                ),
                "fix its list of repositories, the network or its proxy; or use an image that has the packages",
            )
        }
        Ok(Repositories { answering, complaints }) if complaints.is_empty() => Finding::ok(
            REPOSITORIES,
            format!("{names} are not installed yet, and all repositories answer ({answering})"),
        ),
        Ok(Repositories { complaints, .. }) => Finding::warning(
            REPOSITORIES,
            format!(
                "{names} are not installed yet, and some repositories cannot be read: {}",
                complaints.join("; ")
            ),
            "fix the repositories that have these packages; the other repositories do not matter",
        ),
        Err(why) => Finding::unknown(
            REPOSITORIES,
            format!(
                "{names} are not installed yet, and it is unknown whether their repositories answer: {why}"
            ),
            "run `apt-get update` or `dnf makecache`",
        ),
    })
}
