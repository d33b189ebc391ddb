//! Kernel modules, cgroups and kernel parameters.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;

use kops_agent_host::Host;
use kops_agent_host::system::sysctls;
use kops_agent_plan::doctor::{Cgroups, Module, ModuleState, Seen, Unseen};
use nix::sys::statvfs::{FsFlags, statvfs};

use super::unreadable;

pub(super) fn module(host: &Host, root: &Path, name: &str) -> Module {
    Module { name: name.to_owned(), state: module_state(host, root, name) }
}

fn module_state(host: &Host, root: &Path, name: &str) -> Seen<ModuleState> {
    let state = host.module_state(name).map_err(Unseen::new)?;
    if !matches!(state, ModuleState::Available | ModuleState::Missing) {
        return Ok(state);
    }
    // If the kernel supports a file system and no module for it is loaded, the file system is built in.
    let filesystems = std::fs::read_to_string(root.join("proc/filesystems")).unwrap_or_default();
    let is_built_in = filesystems.lines().any(|line| line.split_whitespace().next_back() == Some(name));
    Ok(if is_built_in { ModuleState::Loaded } else { state })
}

/// The version of the mounted cgroup hierarchy, and its controllers (cgroups(7)).
pub(super) fn cgroups(root: &Path) -> Seen<Cgroups> {
    let folder = root.join("sys/fs/cgroup");
    if let Ok(controllers) = std::fs::read_to_string(folder.join("cgroup.controllers")) {
        return Ok(Cgroups::V2(controllers.split_whitespace().map(str::to_owned).collect()));
    }
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound && root.join("sys").is_dir() => {
            return Ok(Cgroups::Missing);
        }
        Err(error) => return Err(unreadable(&folder, error)),
    };
    // The name of a hierarchy with two controllers is both names, separated by a comma.
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let controllers: BTreeSet<String> =
        names.flat_map(|name| name.split(',').map(str::to_owned).collect::<Vec<_>>()).collect();
    Ok(if controllers.is_empty() { Cgroups::Missing } else { Cgroups::V1(controllers) })
}

/// The kernel parameters in `texts` that the kernel does not have. `texts` are the contents of sysctl.d(5) files.
pub(super) fn missing_parameters(root: &Path, texts: &[String]) -> Seen<Vec<String>> {
    let proc_sys = root.join("proc/sys");
    std::fs::read_dir(&proc_sys).map_err(|error| unreadable(&proc_sys, error))?;
    Ok(texts.iter().flat_map(|text| sysctls::missing(text, &proc_sys)).collect())
}

/// Whether `/proc/sys` is mounted read-only. Then no kernel parameter can be set.
pub(super) fn parameters_are_read_only(root: &Path) -> Seen<bool> {
    let proc_sys = root.join("proc/sys");
    let found = statvfs(&proc_sys).map_err(|error| unreadable(&proc_sys, error.into()))?;
    Ok(found.flags().contains(FsFlags::ST_RDONLY))
}
