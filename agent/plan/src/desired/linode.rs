//! No swap on Linode, whose images come with it: kubelet uses none unless told to, and refuses to
//! start while there is some.
//!
//! Source: nodeup/pkg/model/linode.go.

use crate::resolve::NodeConfig;
use crate::resource::{DesiredState, File};
use crate::spec::CloudProvider;

/// Takes swap out of `/etc/fstab`, and switches it off.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    let is_swap_wanted = !node.config.kubelet_config.memory_swap_behavior.is_empty();
    if node.cloud_provider() != CloudProvider::Linode || is_swap_wanted {
        return;
    }
    if let Some(fstab) = &node.facts.fstab {
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
    fn only_swap_is_taken_out() {
        let fstab = "# swapped\n/dev/sda / ext4 errors=remount-ro 0 1\n/dev/sdb none swap sw 0 0\n/dev/sdc\tnone\tswap\tsw";
        assert_eq!(without_swap(fstab), "# swapped\n/dev/sda / ext4 errors=remount-ro 0 1\n");
    }
}
