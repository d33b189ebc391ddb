//! Sets the host name and disables swap, because Linode's images do neither. kubelet refuses to start
//! while swap is on, unless its configuration allows swap.
//!
//! Source: nodeup/pkg/model/linode.go, and `evaluateHostnameOverride` in upup/pkg/fi/nodeup/command.go.

use crate::resolve::NodeConfig;
use crate::resource::{DesiredState, File};
use kops_agent_spec::CloudProvider;

/// On Linode, sets the host name to the node's name, and disables swap unless kubelet's configuration uses swap.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    if node.cloud_provider() != CloudProvider::Linode {
        return;
    }
    let name = &node.node_name;
    state.add(File::text("/etc/hostname", format!("{name}\n")).on_change(&["hostname", name]));
    let is_swap_wanted = !node.config.kubelet_config.memory_swap_behavior.is_empty();
    if let Some(fstab) = node.facts.fstab.as_ref().filter(|_| !is_swap_wanted) {
        state.add(File::text("/etc/fstab", without_swap(fstab)).on_change(&["swapoff", "-a"]));
    }
}

fn without_swap(fstab: &str) -> String {
    let is_swap = |line: &&str| line.contains(" swap ") || line.contains("\tswap\t");
    fstab.lines().filter(|line| !is_swap(line)).map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_swap_is_removed_from_fstab() {
        let fstab = "# swapped\n/dev/sda / ext4 errors=remount-ro 0 1\n/dev/sdb none swap sw 0 0\n/dev/sdc\tnone\tswap\tsw";
        assert_eq!(without_swap(fstab), "# swapped\n/dev/sda / ext4 errors=remount-ro 0 1\n");
    }
}
