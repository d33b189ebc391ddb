//! Kernel modules that no other program loads in time.
//!
//! Source: `loadKernelModules` in upup/pkg/fi/nodeup/command.go.

use crate::resolve::{NodeConfig, Project};
use crate::resource::{DesiredState, KernelModule};

/// Adds the kernel modules. The modules load before the components start, because components need them at their start.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    let distribution = node.distribution;
    // kindnet handles packets in user space. For other networks, iptables must see the packets on bridges.
    let network = if node.config.networking.kindnet.is_some() { "nfnetlink_queue" } else { "br_netfilter" };
    let others: &[&str] = if distribution.force_nftables {
        // Felix, Calico's agent on each node, lists IP sets even if there are none. Without the module `ip_set`, it
        // fails.
        &["nf_tables", "nf_conntrack", "ip_set"]
    } else if distribution.project == Project::Rocky
        && distribution.version < 10.0
        && distribution.version >= 9.0
    {
        // kube-proxy sets this module's parameters.
        &["nf_conntrack"]
    } else {
        &[]
    };
    for name in [network].iter().chain(others) {
        state.add(KernelModule { name: (*name).into(), package: package(node) });
    }
}

/// The package with the modules, for distributions whose images lack the modules. It must match the running
/// kernel, because modules for a newer kernel are useless before a reboot.
fn package(node: &NodeConfig) -> Option<String> {
    let kernel = node.facts.kernel.as_ref().filter(|_| node.distribution.force_nftables)?;
    Some(format!("kernel-modules-extra-{kernel}"))
}
