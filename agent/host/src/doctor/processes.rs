//! Processes that may conflict with a node (proc_pid_comm(5), proc_pid_cgroup(5)), and swap (proc_swaps(5)).

use std::path::Path;

use kops_agent_plan::doctor::{Process, Seen};

use super::unseen;

/// The processes whose names the doctor looks for ([`Process::is_of_interest`]), sorted by PID. Processes of pods are
/// left out.
pub fn processes(root: &Path) -> Seen<Vec<Process>> {
    let process = |number: u32| {
        let folder = root.join(format!("proc/{number}"));
        let name = name_of(&folder).filter(|name| Process::is_of_interest(name))?;
        let cgroups = std::fs::read_to_string(folder.join("cgroup")).unwrap_or_default();
        if is_of_pod(&cgroups) {
            return None;
        }
        Some(Process { name, number, unit: unit(&cgroups) })
    };
    Ok(numbers(root)?.into_iter().filter_map(process).collect())
}

/// The devices and files in use as swap.
pub fn swap(root: &Path) -> Seen<Vec<String>> {
    let file = root.join("proc/swaps");
    let text = std::fs::read_to_string(&file).map_err(|error| unseen(&file, &error))?;
    Ok(text.lines().skip(1).filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}

/// The PIDs of all processes.
pub(crate) fn numbers(root: &Path) -> Seen<Vec<u32>> {
    let folder = root.join("proc");
    let entries = std::fs::read_dir(&folder).map_err(|error| unseen(&folder, &error))?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut numbers: Vec<u32> = names.filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// The name of a process. `folder` is the process's folder in `/proc`. `None` if the process has ended. A process
/// chooses its own name, so control characters are replaced: they must not reach a terminal.
pub(crate) fn name_of(folder: &Path) -> Option<String> {
    let name = std::fs::read(folder.join("comm")).ok()?;
    let name = String::from_utf8_lossy(&name);
    Some(name.trim_end().chars().map(|c| if c.is_control() { '?' } else { c }).collect())
}

/// Whether a process belongs to a pod. A pod may have its own ports, programs and even a kubelet.
fn is_of_pod(cgroups: &str) -> bool {
    cgroups.contains("kubepods")
}

/// The service of a process, by its cgroups: the last part of a path that names a service.
pub(crate) fn unit(cgroups: &str) -> Option<String> {
    cgroups
        .lines()
        .filter_map(|line| line.splitn(3, ':').nth(2))
        .find_map(|path| path.rsplit('/').find(|part| part.ends_with(".service")))
        .map(str::to_owned)
}
