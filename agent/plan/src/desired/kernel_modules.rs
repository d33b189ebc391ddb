//! Kernel modules that nothing else loads in time.
//!
//! Source: `loadKernelModules` in upup/pkg/fi/nodeup/command.go.

use crate::resolve::{NodeConfig, Project};
use crate::resource::{DesiredState, KernelModule};

/// Adds the modules. They come before the rest: components look for them as they start.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    let distribution = node.distribution;
    // kindnet decides on packets in user space; other networks let iptables see what bridges carry.
    let network = if node.config.networking.kindnet.is_some() { "nfnetlink_queue" } else { "br_netfilter" };
    let others: &[&str] = if distribution.force_nftables {
        // Calico's Felix lists ipsets even where it has none, and fails without the module.
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

/// Images of these distributions lack the modules; only the package of the running kernel helps, since
/// the modules of the newest one are of no use before a reboot.
fn package(node: &NodeConfig) -> Option<String> {
    let kernel = node.facts.kernel.as_ref().filter(|_| node.distribution.force_nftables)?;
    Some(format!("kernel-modules-extra-{kernel}"))
}
