//! The packages of the agent. Only the package manager may replace a file of a package: otherwise the file would differ from its package,
//! and the next upgrade of the package would overwrite it.

use kops_agent_process::service_manager;

use crate::assets::Progress;
use crate::error::Result;
use crate::host::Host;
use crate::system::packages::PackageVersion;

/// The package of the program, and the package of control-plane mode (`packaging/nfpm`). The second package requires a minimum version of
/// the first package, so a switch replaces both.
const PACKAGES: [&str; 2] = ["kops-agent", "kops-agent-controller"];

impl Host {
    /// The packages that are restored if a switch fails. If no switch is unfinished, these are the installed packages of the agent.
    /// Otherwise these are the packages that the agent had before the unfinished switch. Empty if the package of the program is not
    /// completely installed, or if one of the packages is installed in two versions. An interrupted transaction of rpm causes two versions.
    pub fn own_packages(&self) -> Result<Vec<PackageVersion>> {
        let unfinished = self.unfinished_packages()?;
        if !unfinished.is_empty() {
            return Ok(unfinished);
        }
        let installed = self.packages.versions(&PACKAGES)?;
        let versions = PACKAGES.map(|name| installed.iter().filter(|package| package.name == name).count());
        let is_clear = versions[0] == 1 && versions[1] <= 1;
        Ok(if is_clear { installed } else { Vec::new() })
    }

    /// Whether all of these packages are completely installed in the given versions.
    pub fn has_packages(&self, packages: &[PackageVersion]) -> Result<bool> {
        let names: Vec<&str> = packages.iter().map(|package| package.name.as_str()).collect();
        let installed = self.packages.versions(&names)?;
        Ok(packages.iter().all(|package| installed.contains(package)))
    }

    /// Downloads the package lists of the machine's repositories. Returns the packages whose version no repository has.
    pub fn packages_not_offered(&self, packages: &[PackageVersion]) -> Result<Vec<PackageVersion>> {
        self.packages.not_offered(packages, &Logged)
    }

    /// Makes the package manager install packages in exactly these versions. If this process is killed, the package manager continues.
    pub fn replace_packages(&self, packages: &[PackageVersion]) -> Result<()> {
        self.packages.replace(packages, &Logged)
    }

    /// Installs the packages that the agent had before the last switch, unless they are already installed. If the packages are installed
    /// but this cannot be recorded, for example on a full disk, the call succeeds.
    pub fn restore_packages(&self) -> Result<()> {
        let packages = self.previous_packages()?;
        if !self.has_packages(&packages)? {
            self.replace_packages(&packages)?;
        }
        if let Err(error) = self.note_packages_restored() {
            log::warn!("cannot record that the earlier packages are installed again: {error}");
        }
        Ok(())
    }

    /// The command by which an operator reinstalls the agent's packages from before the last switch. `None` if the note contains no such
    /// packages.
    pub fn command_of_previous_packages(&self) -> Result<Option<String>> {
        let packages = self.previous_packages()?;
        if packages.is_empty() {
            return Ok(None);
        }
        self.packages.command(&packages).map(Some)
    }
}

struct Logged;

impl Progress for Logged {
    fn waiting_for(&self, what: &str) {
        log::info!("{what}");
        service_manager::doing(what);
    }

    fn warned(&self, what: &str) {
        log::warn!("{what}");
    }
}
