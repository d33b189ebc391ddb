//! Processes that may conflict with a node, and swap (proc_swaps(5)).

use std::path::Path;

use kops_agent_host::system::processes::{name_of, numbers, unit};
use kops_agent_plan::doctor::{Process, Seen, Unseen};

use super::unreadable;

/// The processes with certain names ([`Process::is_of_interest`]), sorted by PID. Processes of pods are left out.
pub(super) fn processes(root: &Path) -> Seen<Vec<Process>> {
    let process = |number: u32| {
        let folder = root.join(format!("proc/{number}"));
        let name = name_of(&folder).filter(|name| Process::is_of_interest(name))?;
        let cgroups = std::fs::read_to_string(folder.join("cgroup")).unwrap_or_default();
        if is_of_pod(&cgroups) {
            return None;
        }
        Some(Process { name, number, unit: unit(&cgroups) })
    };
    Ok(numbers(root).map_err(Unseen::new)?.into_iter().filter_map(process).collect())
}

/// The devices and files in use as swap.
pub(super) fn swap(root: &Path) -> Seen<Vec<String>> {
    let file = root.join("proc/swaps");
    let text = std::fs::read_to_string(&file).map_err(|error| unreadable(&file, error))?;
    Ok(text.lines().skip(1).filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}

/// Whether a process belongs to a pod. The checks of the machine's programs ignore such a process, even a kubelet that
/// runs in a pod.
fn is_of_pod(cgroups: &str) -> bool {
    cgroups.contains("kubepods")
}
