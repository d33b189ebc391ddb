//! What the package manager can be asked: which process holds it, what is yet to be installed, and whether that can be had.

use kops_agent_plan::doctor::{PackageLock, Repositories, Seen};
use kops_agent_plan::resource::{DesiredState, Resource};

use crate::host::Host;

impl Host {
    /// The lock of the package manager that a process holds, if one does.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub fn package_lock(&self) -> Seen<Option<PackageLock>> {
        let held = self.packages.lock_holder().map_err(|error| error.to_string())?;
        Ok(held.map(|(path, holder)| PackageLock { path, holder }))
    }

    /// The packages that are desired and not installed.
    ///
    /// # Errors
    /// The package manager cannot be asked.
    pub fn missing_packages(&self, desired: &DesiredState) -> Seen<Vec<String>> {
        let names: Vec<&str> = desired
            .iter()
            .filter_map(|(_, resource)| match resource {
                Resource::Package(package) => Some(package.name.as_str()),
                _ => None,
            })
            .collect();
        let installed = self.packages.installed(&names).map_err(|error| error.to_string())?;
        Ok(names.into_iter().filter(|name| !installed.contains(*name)).map(str::to_owned).collect())
    }

    /// How the repositories answer from which packages would be installed. Each is asked for its signed head only, and
    /// nothing of it is kept.
    ///
    /// # Errors
    /// They cannot be asked.
    pub fn repositories(&self) -> Seen<Repositories> {
        self.packages.repositories()
    }
}
