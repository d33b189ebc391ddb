//! WireGuard's tools on Ubuntu, for Calico. Calico encrypts traffic between nodes with WireGuard.
//!
//! Source: nodeup/pkg/model/networking/calico.go.

use crate::resolve::{NodeConfig, Project};
use crate::resource::{DesiredState, Package};

/// On Ubuntu, adds the package with WireGuard's tools. Since kOps 1.35, the package is not added if WireGuard is off or
/// the cluster is IPv6-only.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    let Some(calico) = &node.config.networking.calico else { return };
    let may_use_it = calico.wireguard_enabled.unwrap_or(true) && !node.is_ipv6_only();
    let uses_wireguard = may_use_it || node.release().always_installs_wireguard();
    if uses_wireguard && node.distribution.project == Project::Ubuntu {
        state.add(Package { name: "wireguard".into() });
    }
}
