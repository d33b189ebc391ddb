//! Checks of the package manager: its lock, the missing packages, and the repositories.

use kops_agent_plan::doctor::{PackageLock, Repositories, Seen, Unseen};
use kops_agent_plan::resource::{DesiredState, Resource};

use crate::host::Host;

impl Host {
    /// The lock of the package manager that a process holds. `None` if no process holds a lock.
    pub fn package_lock(&self) -> Seen<Option<PackageLock>> {
        let held = self.packages.lock_holder().map_err(Unseen::new)?;
        Ok(held.map(|(path, holder)| PackageLock { path, holder }))
    }

    /// The desired packages that are not installed.
    pub fn missing_packages(&self, desired: &DesiredState) -> Seen<Vec<String>> {
        let names: Vec<&str> = desired
            .iter()
            .filter_map(|(_, resource)| match resource {
                Resource::Package(package) => Some(package.name.as_str()),
                _ => None,
            })
            .collect();
        let installed = self.packages.installed(&names).map_err(Unseen::new)?;
        Ok(names.into_iter().filter(|name| !installed.contains(*name)).map(str::to_owned).collect())
    }

    /// Checks whether the package repositories answer. Only their signed release files are requested, and nothing is
    /// kept.
    pub fn repositories(&self) -> Seen<Repositories> {
        self.packages.repositories()
    }
}
