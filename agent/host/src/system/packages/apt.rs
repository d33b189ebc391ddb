//! apt and dpkg.

use std::collections::BTreeSet;

use super::locks::{LockFile, Waiting, held};
use super::versions::PackageVersion;
use crate::error::{Error, Result};
use crate::system::commands::{Outcome, ask, ask_outliving, refused, run};

/// The locks of dpkg, of apt's lists and of apt's archives.
const LOCKS: [LockFile<'static>; 4] = [
    LockFile::Locked("/var/lib/dpkg/lock-frontend"),
    LockFile::Locked("/var/lib/dpkg/lock"),
    LockFile::Locked("/var/lib/apt/lists/lock"),
    LockFile::Locked("/var/cache/apt/archives/lock"),
];

/// If another process takes dpkg's lock after the agent's own check, apt waits up to 600 s.
const LOCK_TIMEOUT: &str = "DPkg::Lock::Timeout=600";
/// apt's error for a locked list or archive folder. `DPkg::Lock::Timeout` does not make apt wait for these locks.
const DIRECTORY_IS_LOCKED: &str = "Unable to lock directory";
/// apt before 2.3 does not retry by default.
const RETRIES: &str = "Acquire::Retries=3";
/// With this option, dpkg keeps configuration files that an administrator changed.
const KEEP_CONFIGURATION: &str = "--force-confold";

/// The command that downloads the package lists.
const UPDATE: [&str; 6] = ["apt-get", "-o", LOCK_TIMEOUT, "-o", RETRIES, "update"];
/// apt prints one of these errors if it knows the package, but no repository has the wanted version. It prints the
/// first error if the wanted version is installed, and otherwise the second.
const NOT_OFFERED: [&str; 2] = ["Can't find a source to download version", "was not found"];

/// How often a command is retried if another process takes a lock between the agent's check and apt's own check.
const RACES: u32 = 100;

/// A locked lock file of dpkg or apt, and the process that holds the lock. `None` if no process holds a lock.
pub(super) fn lock_holder() -> Result<Option<(String, String)>> {
    held(&LOCKS)
}

/// Filters `packages` to those that are completely installed: by name, in the wanted version, or provided by another
/// package.
pub(super) fn installed(packages: &[&str]) -> Result<BTreeSet<String>> {
    let names: Vec<&str> = packages.iter().map(|package| Wanted::parse(package).name).collect();
    let query = ["dpkg-query", "--show", "--showformat", SHOWN, "--"];
    // dpkg-query fails if one package is unknown, but still prints the other packages.
    let known = parse(&ask(&[&query[..], &names].concat())?.stdout);
    let mut found: BTreeSet<String> =
        packages.iter().filter(|package| is_installed(package, &known)).map(|name| (*name).into()).collect();
    if found.len() < packages.len() {
        let all = parse(&ask(&query[..4])?.stdout);
        let provided: BTreeSet<&str> =
            all.iter().flat_map(|package| package.provides.as_slice()).map(String::as_str).collect();
        found.extend(packages.iter().filter(|name| provided.contains(**name)).map(|name| (*name).to_owned()));
    }
    Ok(found)
}

/// The completely installed packages among `names`, in their installed versions.
pub(super) fn versions(names: &[&str]) -> Result<Vec<PackageVersion>> {
    let query = ["dpkg-query", "--show", "--showformat", SHOWN, "--"];
    // dpkg-query fails if one package is unknown, but still prints the other packages.
    let known = parse(&ask(&[&query[..], names].concat())?.stdout);
    let version = |InstalledPackage { name, version, .. }: InstalledPackage| PackageVersion { name, version };
    Ok(known.into_iter().map(version).collect())
}

/// The argument of apt-get for a package in one version.
pub(super) fn argument(package: &PackageVersion) -> String {
    format!("{}={}", package.name, package.version)
}

/// Downloads the package lists. Returns the packages whose wanted version is in no repository.
pub(super) fn not_offered(packages: &[PackageVersion], waiting: Waiting<'_>) -> Result<Vec<PackageVersion>> {
    let updated = unlocked(waiting, &UPDATE)?;
    if !updated.status.success() {
        let why = refused(&UPDATE, &updated);
        waiting.progress.warned(&format!("some package lists may be outdated: {why}"));
    }
    let mut missing = Vec::new();
    for package in packages {
        let argument = argument(package);
        // With --print-uris, `download` only prints the URL of the package file.
        let find = ["apt-get", "--print-uris", "download", &argument];
        let found = ask(&find)?;
        match found.status.success() {
            true => {}
            false if NOT_OFFERED.iter().any(|error| found.says(error)) => missing.push(package.clone()),
            false => return Err(refused(&find, &found)),
        }
    }
    Ok(missing)
}

/// Finishes an interrupted installation, and then installs packages from the existing package lists. Removes no
/// package: without `--no-remove`, apt would remove packages that depend on another version of `packages`. apt also
/// fails if it cannot configure an unrelated package. So a failure of apt is only a warning if all of `packages` are
/// installed.
pub(super) fn replace(packages: &[&str], waiting: Waiting<'_>) -> Result<()> {
    finish_interrupted(waiting)?;
    match install_of_lists(packages, &["--no-remove"], waiting) {
        Err(error) if installed(packages)?.len() == packages.len() => {
            waiting.progress.warned(&format!("the packages are installed, but {error}"));
            Ok(())
        }
        outcome => outcome,
    }
}

/// The name under which dpkg lists an argument of apt. An apt release (`name/release`) is cut off, because dpkg does
/// not know releases. `None` for patterns, tasks and files.
pub(super) fn listed(package: &str) -> Option<&str> {
    let name = Wanted::parse(package).name;
    if name.contains(['*', '?', '[']) || name.starts_with('/') || name.ends_with('^') {
        return None;
    }
    Some(package.split_once('/').map_or(package, |(name, _release)| name))
}

/// Whether the argument names a version or a release. Such a package may have to be downgraded.
fn is_pinned(package: &str) -> bool {
    Wanted::parse(package).version.is_some() || listed(package).is_some_and(|listed| listed != package)
}

/// A package argument that dpkg knows: `name`, `name:arch`, `name=version`.
struct Wanted<'a> {
    name: &'a str,
    version: Option<&'a str>,
}

impl Wanted<'_> {
    fn parse(package: &str) -> Wanted<'_> {
        match package.split_once('=') {
            Some((name, version)) => Wanted { name, version: Some(version) },
            None => Wanted { name: package, version: None },
        }
    }
}

const SHOWN: &str = "${Package}\\t${Architecture}\\t${db:Status-Abbrev}\\t${Version}\\t${Provides}\\n";

/// A package that dpkg has completely installed.
struct InstalledPackage {
    name: String,
    architecture: String,
    version: String,
    provides: Vec<String>,
}

fn parse(shown: &str) -> Vec<InstalledPackage> {
    let line = |line: &str| {
        let mut fields = line.split('\t');
        let mut next = || fields.next();
        let (name, architecture, status, version, provides) = (next()?, next()?, next()?, next()?, next()?);
        // The letters of a package's status are the desired action (`h` if held), the status, and `R` if a reinstall
        // is required (dpkg-query(1)).
        (status.get(1..3)? == "i ").then(|| InstalledPackage {
            name: name.to_owned(),
            architecture: architecture.to_owned(),
            version: version.to_owned(),
            provides: provides
                .split(',')
                .filter_map(|provided| provided.split_whitespace().next())
                .map(str::to_owned)
                .collect(),
        })
    };
    shown.lines().filter_map(line).collect()
}

fn is_installed(package: &str, known: &[InstalledPackage]) -> bool {
    let wanted = Wanted::parse(package);
    let (name, architecture) = match wanted.name.split_once(':') {
        Some((name, architecture)) => (name, Some(architecture)),
        None => (wanted.name, None),
    };
    known.iter().any(|known| {
        known.name == name
            && architecture.is_none_or(|architecture| architecture == known.architecture)
            && wanted.version.is_none_or(|version| is_like(version, &known.version))
    })
}

/// Whether a version matches a pattern. `*` matches any part.
fn is_like(pattern: &str, version: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == version,
        Some((before, after)) => version.strip_prefix(before).is_some_and(|rest| {
            (0..=rest.len()).filter(|at| rest.is_char_boundary(*at)).any(|at| is_like(after, &rest[at..]))
        }),
    }
}

/// Downloads the package lists, and then packages into apt's cache. Does not wait for a lock.
pub(super) fn fetch(packages: &[&str]) -> Result<()> {
    run(&["apt-get", "-o", RETRIES, "update"])?;
    let fetch = ["apt-get", "-o", RETRIES, "--yes", "--download-only"];
    run(&[&fetch[..], &install_words(packages)].concat()).map(drop)
}

fn install_words<'a>(packages: &[&'a str]) -> Vec<&'a str> {
    let downgrades: &[&str] =
        if packages.iter().any(|package| is_pinned(package)) { &["--allow-downgrades"] } else { &[] };
    [downgrades, &["install", "--no-install-recommends", "--"], packages].concat()
}

/// Finishes an interrupted installation, updates the package lists, and then installs packages.
pub(super) fn install(packages: &[&str], waiting: Waiting<'_>) -> Result<()> {
    finish_interrupted(waiting)?;
    let updated = unlocked(waiting, &UPDATE)?;
    if updated.status.success() {
        return install_of_lists(packages, &[], waiting);
    }
    let refused = refused(&UPDATE, &updated);
    match install_of_lists(packages, &[], waiting) {
        // A broken repository is no error if no wanted package comes from it.
        Ok(()) => {
            waiting.progress.warned(&format!("some package lists may be outdated: {refused}"));
            Ok(())
        }
        Err(Error::Command { command, outcome }) => {
            Err(Error::Command { command, outcome: format!("{outcome}; before that, {refused}") })
        }
        Err(other) => Err(other),
    }
}

/// Finishes an interrupted installation, and then installs packages that were just downloaded.
pub(super) fn install_fetched(packages: &[&str], waiting: Waiting<'_>) -> Result<()> {
    finish_interrupted(waiting)?;
    install_of_lists(packages, &[], waiting)
}

/// Installs packages from the existing package lists, without an update. `options` are additional options of apt-get.
fn install_of_lists(packages: &[&str], options: &[&str], waiting: Waiting<'_>) -> Result<()> {
    let keep = format!("Dpkg::Options::={KEEP_CONFIGURATION}");
    let apt_get =
        [&["apt-get", "-o", LOCK_TIMEOUT, "-o", RETRIES, "-o", &keep, "--yes"][..], options].concat();
    let install = [&apt_get[..], &install_words(packages)].concat();
    let mut outcome = unlocked(waiting, &install)?;
    if outcome.says("--fix-broken") {
        let mend = [&apt_get[..], &["--fix-broken", "install"]].concat();
        let mended = unlocked(waiting, &mend)?;
        if !mended.status.success() {
            return Err(refused(&mend, &mended));
        }
        outcome = unlocked(waiting, &install)?;
    }
    // apt counts half-removed and damaged packages as installed, so these are reinstalled.
    let damaged: Vec<&str> = match outcome.status.success() {
        true => {
            let names: Vec<&str> = packages.iter().filter_map(|package| listed(package)).collect();
            let whole = installed(&names)?;
            names.into_iter().filter(|name| !whole.contains(*name)).collect()
        }
        false => vec![],
    };
    if !damaged.is_empty() {
        outcome = unlocked(waiting, &[&apt_get[..], &["--reinstall", "install", "--"], &damaged].concat())?;
    }
    if outcome.status.success() { Ok(()) } else { Err(refused(&install, &outcome)) }
}

/// Downloads the package lists of the repositories in the file `list`. Every repository must exist and be signed.
pub(super) fn update_from(list: &str, waiting: Waiting<'_>) -> Result<()> {
    let only = format!("Dir::Etc::sourcelist={list}");
    let update = [
        &["apt-get", "-o", LOCK_TIMEOUT, "-o", RETRIES, "-o", &only, "-o", "Dir::Etc::sourceparts=-"][..],
        // Without these options, apt would remove the package lists of other repositories, and ignore a package list
        // that it cannot download.
        &["-o", "APT::Get::List-Cleanup=0", "-o", "APT::Update::Error-Mode=any", "update"],
    ]
    .concat();
    let outcome = unlocked(waiting, &update)?;
    if outcome.status.success() { Ok(()) } else { Err(refused(&update, &outcome)) }
}

/// Finishes an interrupted installation with `dpkg --configure -a`. This command does nothing if no installation was
/// interrupted.
fn finish_interrupted(waiting: Waiting<'_>) -> Result<()> {
    waiting.for_locks(&LOCKS)?;
    let configure = ["dpkg", KEEP_CONFIGURATION, "--configure", "-a"];
    let outcome = ask_outliving(&configure)?;
    if !outcome.status.success() {
        // The node may not need the interrupted package, so only warn. If the node needs it, the following
        // `apt-get install` fails.
        waiting.progress.warned(&format!(
            "an interrupted installation of packages cannot be finished: {}",
            refused(&configure, &outcome)
        ));
    } else if outcome.stdout.contains("Setting up") {
        waiting.progress.warned("an installation of packages had been interrupted; this run finished it");
    }
    Ok(())
}

/// Waits until no process holds a lock, and then runs a command. Retries if another process takes a lock first.
fn unlocked(waiting: Waiting<'_>, command: &[&str]) -> Result<Outcome> {
    let mut races = 0;
    loop {
        waiting.for_locks(&LOCKS)?;
        let outcome = ask_outliving(command)?;
        races += 1;
        if outcome.status.success() || races > RACES || !outcome.says(DIRECTORY_IS_LOCKED) {
            return Ok(outcome);
        }
        std::thread::sleep(waiting.pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = "chrony\tamd64\tii \t4.3-2\tntp, time-daemon (= 4.3)\n\
                          logrotate\tamd64\tiU \t3.21\t\n\
                          socat\tamd64\tiF \t1.7\t\n\
                          broken\tamd64\tiHR\t1\t\n\
                          damaged\tamd64\tiiR\t1\t\n\
                          old\tamd64\trc \t1\t\n\
                          held\tamd64\thi \t1:2.0-1\t\n\
                          libc6\ti386\tii \t2.36\t\nnothing\n";

    fn are_installed(packages: &[&str]) -> Vec<bool> {
        let known = parse(LISTED);
        packages.iter().map(|package| is_installed(package, &known)).collect()
    }

    #[test]
    fn only_completely_installed_packages_count_held_ones_included() {
        assert_eq!(are_installed(&["chrony", "held"]), [true, true]);
        assert_eq!(
            are_installed(&["logrotate", "socat", "broken", "damaged", "old", "nothing", "tar"]),
            [false; 7]
        );
    }

    #[test]
    fn a_wanted_version_or_architecture_must_match() {
        assert_eq!(are_installed(&["held=1:2.0-1", "held=1:2.*", "held=*", "libc6:i386"]), [true; 4]);
        assert_eq!(are_installed(&["held=2.0-1", "held=1:2.0", "held=1:3*", "libc6:amd64"]), [false; 4]);
    }

    #[test]
    fn dpkg_is_asked_for_names_and_versions_only() {
        for package in ["vim", "vim:amd64", "vim=2:9.*"] {
            assert_eq!(listed(package), Some(package));
        }
        assert_eq!(listed("vim/bookworm-backports"), Some("vim"));
        for package in ["linux-headers-*", "standard^", "/opt/agent.deb"] {
            assert_eq!(listed(package), None, "{package}");
        }
        assert_eq!(["vim", "vim=2:9.*", "vim/sid", "/opt/a.deb"].map(is_pinned), [false, true, true, false]);
    }

    #[test]
    fn a_version_is_named_by_an_equals_sign() {
        let package = PackageVersion::of_release("kops-agent", "0.2.0-rc.1");
        assert_eq!(argument(&package), "kops-agent=0.2.0~rc.1-1");
        assert!(is_pinned(&argument(&package)), "apt may downgrade it");
    }

    #[test]
    fn provided_names_are_read_without_versions() {
        assert_eq!(parse(LISTED)[0].provides, ["ntp", "time-daemon"]);
    }
}
