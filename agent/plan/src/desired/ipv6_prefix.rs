//! The range of IPv6 addresses for the pods of this node, which an EC2 instance asks for itself. Other
//! clouds give one without being asked.
//!
//! Source: nodeup/pkg/model/prefix.go.

use crate::resolve::NodeConfig;
use crate::resource::{DesiredState, Ipv6Prefix};

pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    if node.is_ipv6_only() && node.cloud_provider() == Ipv6Prefix::ASKED_OF {
        state.add(Ipv6Prefix { name: "prefix".into() });
    }
}
