//! The processes of a machine (proc_pid_comm(5), proc_pid_cgroup(5)).

use std::path::Path;

use crate::error::{Error, Result};

/// The PIDs of all processes, sorted.
pub fn numbers(root: &Path) -> Result<Vec<u32>> {
    let folder = root.join("proc");
    let entries = std::fs::read_dir(&folder)
        .map_err(|error| Error::path("look at", folder.display().to_string(), error))?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut numbers: Vec<u32> = names.filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// The name of a process. `folder` is the process's folder in `/proc`. `None` if the process has ended. Control
/// characters are replaced: a process chooses its own name, and control characters could change the terminal.
pub fn name_of(folder: &Path) -> Option<String> {
    let name = std::fs::read(folder.join("comm")).ok()?;
    let name = String::from_utf8_lossy(&name);
    Some(name.trim_end().chars().map(|c| if c.is_control() { '?' } else { c }).collect())
}

/// The service of a process. If several parts of a cgroup path are names of services, the last of them counts.
pub fn unit(cgroups: &str) -> Option<String> {
    cgroups
        .lines()
        .filter_map(|line| line.splitn(3, ':').nth(2))
        .find_map(|path| path.rsplit('/').find(|part| part.ends_with(".service")))
        .map(str::to_owned)
}
