//! The distribution's packages and their repositories.

mod apt;
mod dnf;
mod files;
mod heads;
mod locks;
mod sources;
mod versions;

use std::collections::BTreeSet;
use std::path::Path;

use kops_agent_plan::doctor::{Repositories, Seen, Unseen};
use kops_agent_plan::resource::PackageSource;
use kops_agent_spec::digest::sha256_hex;

use crate::assets::Progress;
use crate::error::{Error, Result};
use crate::root::Root;
use crate::stamps::Stamp;
pub(crate) use files::of_dpkg;
use locks::Waiting;
pub(crate) use sources::{find as find_source, list_path, remove_keys, write as write_source};
pub use versions::PackageVersion;

pub trait PackageManager: Send + Sync {
    /// Filters `packages` to those that are completely installed. The result spells the names as `packages` does.
    fn installed(&self, packages: &[&str]) -> Result<BTreeSet<String>>;

    /// Installs all `packages` in one transaction. Waits while another program holds the package manager's lock.
    fn install(&self, packages: &[&str], progress: &dyn Progress) -> Result<()>;

    /// Downloads `packages` and their dependencies into the package manager's cache. Changes nothing else, and does
    /// not wait for a lock. Returns whether [`PackageManager::install_fetched`] may install them.
    fn fetch(&self, packages: &[&str]) -> bool {
        let _ = packages;
        false
    }

    /// Installs all `packages`, which [`PackageManager::fetch`] has just fetched.
    fn install_fetched(&self, packages: &[&str], progress: &dyn Progress) -> Result<()> {
        self.install(packages, progress)
    }

    /// The completely installed packages among `names`, in their installed versions.
    fn versions(&self, names: &[&str]) -> Result<Vec<PackageVersion>> {
        let _ = names;
        Err(no_package_manager())
    }

    /// Downloads the package lists of all repositories. Returns the packages whose wanted version is in no
    /// repository.
    fn not_offered(
        &self,
        packages: &[PackageVersion],
        progress: &dyn Progress,
    ) -> Result<Vec<PackageVersion>> {
        let _ = (packages, progress);
        Err(no_package_manager())
    }

    /// Installs packages in exactly the given versions, which may be older than the installed ones. Uses the package
    /// lists that are on the machine, and removes no other package. The package manager continues if the agent is
    /// killed.
    fn replace(&self, packages: &[PackageVersion], progress: &dyn Progress) -> Result<()> {
        let _ = (packages, progress);
        Err(no_package_manager())
    }

    /// The command by which an operator installs packages in the given versions, which may be older than the
    /// installed ones.
    fn command(&self, packages: &[PackageVersion]) -> Result<String> {
        let _ = packages;
        Err(no_package_manager())
    }

    /// The present configuration of the repository on this machine. `None` if its list file is missing or not readable
    /// for all users.
    fn source(&self, wanted: &PackageSource) -> Result<Option<PackageSource>>;

    /// Adds a repository whose packages are signed with the OpenPGP key `key`, and downloads its package list. If the
    /// download fails, the repository is removed again.
    fn add_source(&self, source: &PackageSource, key: &[u8], progress: &dyn Progress) -> Result<()>;

    /// Filters `paths` to the files that packages installed. A file counts even if its content was changed later.
    fn owned(&self, paths: &[&str]) -> Result<BTreeSet<String>>;

    /// A locked lock file of the package manager, and the process that holds the lock. `None` if no process holds a
    /// lock. While a process holds the lock, no other process can install packages.
    fn lock_holder(&self) -> Result<Option<(String, String)>> {
        Ok(None)
    }

    /// Checks which of the machine's package repositories respond. Fails if the package manager can only check them
    /// by changing the machine.
    fn repositories(&self) -> Seen<Repositories> {
        Err(Unseen::new("this machine has no package manager that can check repositories"))
    }
}

/// The package manager of this machine: apt, dnf or yum.
pub(crate) struct Machine(pub(crate) Root);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manager {
    Apt,
    /// The path of dnf or yum.
    Rpm(&'static str),
}

const APT: (&str, Manager) = ("/usr/bin/apt-get", Manager::Apt);
const DNF: (&str, Manager) = ("/usr/bin/dnf", Manager::Rpm("/usr/bin/dnf"));
const YUM: (&str, Manager) = ("/usr/bin/yum", Manager::Rpm("/usr/bin/yum"));

impl Machine {
    fn manager(&self) -> Result<Manager> {
        let os_release = match self.0.read("/etc/os-release")? {
            Some(text) => text,
            None => self.0.read("/usr/lib/os-release")?.unwrap_or_default(),
        };
        choose(&String::from_utf8_lossy(&os_release), |program| Path::new(program).exists())
            .ok_or_else(no_package_manager)
    }
}

fn no_package_manager() -> Error {
    Error::Path {
        doing: "find",
        path: "a package manager".into(),
        reason: "this machine has none of apt-get, dnf and yum".into(),
    }
}

impl Machine {
    /// Filters `packages` to the installed ones. `installed` is the package manager's list of packages. A group,
    /// pattern or URL is never in that list: it counts as installed if the agent has noted its installation. A package
    /// with an apt release (`name/release`) counts as installed if its name is in the list and the agent has noted its
    /// installation.
    fn with_noted(
        &self,
        manager: Manager,
        packages: &[&str],
        installed: &BTreeSet<String>,
    ) -> Result<BTreeSet<String>> {
        let mut found = BTreeSet::new();
        for package in packages {
            let listed = manager.listed(package);
            if listed.is_none_or(|name| installed.contains(name))
                && (listed == Some(*package) || self.is_noted(package)?)
            {
                found.insert((*package).to_owned());
            }
        }
        Ok(found)
    }

    fn is_noted(&self, package: &str) -> Result<bool> {
        let noted = Stamp::Package.read(&self.0, &sha256_hex(package.as_bytes()))?;
        Ok(noted.as_deref() == Some(package))
    }

    /// Notes which packages were just installed. Leaves out a package if the package manager lists it under the name in
    /// `packages`, because the package manager's list is then enough.
    fn note(&self, manager: Manager, packages: &[&str]) -> Result<()> {
        for package in packages.iter().filter(|package| manager.listed(package) != Some(**package)) {
            Stamp::Package.write(&self.0, &sha256_hex(package.as_bytes()), package)?;
        }
        Ok(())
    }
}

impl Manager {
    fn arguments(self, packages: &[PackageVersion]) -> Vec<String> {
        let argument = match self {
            Manager::Apt => apt::argument,
            Manager::Rpm(_) => dnf::argument,
        };
        packages.iter().map(argument).collect()
    }

    /// The name of a package in the list of installed packages. `None` for an argument that is never in the list,
    /// such as a group.
    fn listed(self, package: &str) -> Option<&str> {
        match self {
            Manager::Apt => apt::listed(package),
            Manager::Rpm(_) => dnf::listed(package),
        }
    }
}

/// Chooses the distribution's own package manager. An installed program does not identify it: Red Hat's repositories
/// also offer apt, and Debian's also offer dnf.
fn choose(os_release: &str, is_there: impl Fn(&str) -> bool) -> Option<Manager> {
    let is_of_rpms = os_release
        .lines()
        .filter_map(|line| line.strip_prefix("ID=").or_else(|| line.strip_prefix("ID_LIKE=")))
        .flat_map(|value| value.trim_matches(['"', '\'']).split_whitespace())
        .any(|id| matches!(id, "amzn" | "centos" | "fedora" | "rhel" | "rocky"));
    let candidates = if is_of_rpms { [DNF, YUM, APT] } else { [APT, DNF, YUM] };
    candidates.into_iter().find_map(|(program, manager)| is_there(program).then_some(manager))
}

impl PackageManager for Machine {
    fn installed(&self, packages: &[&str]) -> Result<BTreeSet<String>> {
        if packages.is_empty() {
            return Ok(BTreeSet::new());
        }
        let manager = self.manager()?;
        let listed: Vec<&str> = packages.iter().filter_map(|package| manager.listed(package)).collect();
        let installed = match manager {
            _ if listed.is_empty() => BTreeSet::new(),
            Manager::Apt => apt::installed(&listed)?,
            Manager::Rpm(_) => dnf::installed(&listed)?,
        };
        self.with_noted(manager, packages, &installed)
    }

    fn install(&self, packages: &[&str], progress: &dyn Progress) -> Result<()> {
        let manager = self.manager()?;
        match manager {
            Manager::Apt => apt::install(packages, Waiting::reporting_to(progress))?,
            Manager::Rpm(installer) => dnf::install(installer, packages, Waiting::reporting_to(progress))?,
        }
        self.note(manager, packages)
    }

    fn fetch(&self, packages: &[&str]) -> bool {
        let fetched = self.manager().and_then(|manager| match manager {
            Manager::Apt => apt::fetch(packages),
            Manager::Rpm(installer) => dnf::fetch(installer, packages),
        });
        // If the download fails, the installation downloads the packages again and reports the failure.
        fetched
            .inspect_err(|error| {
                log::info!("cannot fetch packages in advance, so the installation fetches them: {error}")
            })
            .is_ok()
    }

    fn install_fetched(&self, packages: &[&str], progress: &dyn Progress) -> Result<()> {
        match self.manager()? {
            manager @ Manager::Apt => {
                apt::install_fetched(packages, Waiting::reporting_to(progress))?;
                self.note(manager, packages)
            }
            // dnf downloads its package lists again only if its cache is old. So it installs the packages that were
            // just downloaded.
            Manager::Rpm(_) => self.install(packages, progress),
        }
    }

    fn versions(&self, names: &[&str]) -> Result<Vec<PackageVersion>> {
        match self.manager()? {
            Manager::Apt => apt::versions(names),
            Manager::Rpm(_) => dnf::versions(names),
        }
    }

    fn not_offered(
        &self,
        packages: &[PackageVersion],
        progress: &dyn Progress,
    ) -> Result<Vec<PackageVersion>> {
        match self.manager()? {
            Manager::Apt => apt::not_offered(packages, Waiting::reporting_to(progress)),
            Manager::Rpm(installer) => dnf::not_offered(installer, packages),
        }
    }

    fn replace(&self, packages: &[PackageVersion], progress: &dyn Progress) -> Result<()> {
        let manager = self.manager()?;
        let arguments = manager.arguments(packages);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        match manager {
            Manager::Apt => apt::replace(&arguments, Waiting::reporting_to(progress)),
            Manager::Rpm(installer) => dnf::replace(installer, &arguments, Waiting::reporting_to(progress)),
        }
    }

    fn command(&self, packages: &[PackageVersion]) -> Result<String> {
        let manager = self.manager()?;
        let packages = manager.arguments(packages).join(" ");
        Ok(match manager {
            Manager::Apt => format!("apt-get install --allow-downgrades {packages}"),
            Manager::Rpm(installer) => dnf::command(installer, &packages),
        })
    }

    fn source(&self, wanted: &PackageSource) -> Result<Option<PackageSource>> {
        sources::find(&self.0, wanted)
    }

    fn add_source(&self, source: &PackageSource, key: &[u8], progress: &dyn Progress) -> Result<()> {
        if self.manager()? != Manager::Apt {
            return Err(Error::Invalid {
                id: kops_agent_plan::resource::Resource::from(source.clone()).id(),
                reason: "it is an apt repository, and this machine has no apt-get".into(),
            });
        }
        let written = sources::write(&self.0, source, key, Some((0, 0)))?;
        let read = apt::update_from(&written.list, Waiting::reporting_to(progress));
        if read.is_err() {
            // A bad repository would block every later installation, so its files are removed. Operator's files that
            // they replaced are restored.
            written.revert(&self.0)?;
        }
        read
    }

    fn owned(&self, paths: &[&str]) -> Result<BTreeSet<String>> {
        match self.manager() {
            Ok(Manager::Apt) => of_dpkg(&self.0, paths),
            Ok(Manager::Rpm(_)) => files::of_rpm(paths),
            // Without a package manager there are no packages, for example on Flatcar.
            Err(_) => Ok(BTreeSet::new()),
        }
    }

    fn lock_holder(&self) -> Result<Option<(String, String)>> {
        match self.manager() {
            Ok(Manager::Apt) => apt::lock_holder(),
            Ok(Manager::Rpm(_)) => dnf::lock_holder(),
            Err(_) => Ok(None),
        }
    }

    fn repositories(&self) -> Seen<Repositories> {
        match self.manager().map_err(Unseen::new)? {
            Manager::Apt => heads::of_apt(&[]),
            Manager::Rpm(_) => Err(Unseen::new("dnf cannot check repositories without changing its cache")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distribution_determines_the_package_manager() {
        let amazon = "NAME=\"Amazon Linux\"\nID=\"amzn\"\nID_LIKE=\"fedora\"\n";
        let oracle = "ID=ol\nID_LIKE='rhel fedora'\n";
        let ubuntu = "ID=ubuntu\nID_LIKE=debian\n";
        let all = |_: &str| true;
        assert_eq!(choose(amazon, all), Some(Manager::Rpm("/usr/bin/dnf")));
        assert_eq!(choose(oracle, all), Some(Manager::Rpm("/usr/bin/dnf")));
        assert_eq!(choose(amazon, |program| program != "/usr/bin/dnf"), Some(Manager::Rpm("/usr/bin/yum")));
        assert_eq!(choose(ubuntu, all), Some(Manager::Apt));
        assert_eq!(choose("", |program| program == "/usr/bin/yum"), Some(Manager::Rpm("/usr/bin/yum")));
        assert_eq!(choose(ubuntu, |_| false), None);
    }

    #[test]
    fn packages_that_no_list_names_are_noted_after_installation() {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine(Root::open(folder.path()).unwrap());
        let wanted = ["vim", "curl/bookworm-backports", "linux-headers-*", "git"];
        let listed: BTreeSet<String> = ["vim", "curl"].map(str::to_owned).into();
        let found = || machine.with_noted(Manager::Apt, &wanted, &listed).unwrap();
        assert_eq!(found(), ["vim".to_owned()].into());
        machine.note(Manager::Apt, &wanted).unwrap();
        let all = ["curl/bookworm-backports", "linux-headers-*", "vim"].map(str::to_owned);
        assert_eq!(found(), all.into());
        let without_curl = machine.with_noted(Manager::Apt, &wanted[1..2], &BTreeSet::new()).unwrap();
        assert!(without_curl.is_empty(), "a removed package counts as missing in spite of its note");
    }
}
