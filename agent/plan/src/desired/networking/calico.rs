//! Calico encrypts traffic between nodes with WireGuard, whose tools Ubuntu has as a package.
//!
//! Source: nodeup/pkg/model/networking/calico.go.

use crate::resolve::{NodeConfig, Project};
use crate::resource::{DesiredState, Package};

/// Adds the package, unless WireGuard is switched off.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    let Some(calico) = &node.config.networking.calico else { return };
    let uses_wireguard = calico.wireguard_enabled.unwrap_or(true) && !node.is_ipv6_only();
    if uses_wireguard && node.distribution.project == Project::Ubuntu {
        state.add(Package { name: "wireguard".into() });
    }
}
