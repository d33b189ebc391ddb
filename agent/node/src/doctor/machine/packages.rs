//! Checks of the package manager: its lock and the missing packages.

use kops_agent_host::Host;
use kops_agent_plan::doctor::{PackageLock, Seen, Unseen};
use kops_agent_plan::resource::{DesiredState, Resource};

/// The locked lock file of the package manager, and the process that holds the lock. `None` if no process holds a lock.
pub(super) fn lock(host: &Host) -> Seen<Option<PackageLock>> {
    host.package_lock().map_err(Unseen::new)
}

/// The desired packages that are not installed.
pub(super) fn missing(host: &Host, desired: &DesiredState) -> Seen<Vec<String>> {
    let names: Vec<&str> = desired
        .iter()
        .filter_map(|(_, resource)| match resource {
            Resource::Package(package) => Some(package.name.as_str()),
            _ => None,
        })
        .collect();
    let installed = host.installed_packages(&names).map_err(Unseen::new)?;
    Ok(names.into_iter().filter(|name| !installed.contains(*name)).map(str::to_owned).collect())
}
