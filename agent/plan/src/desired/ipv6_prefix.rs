//! The IPv6 prefix for the pods of this node. An EC2 instance must request its prefix. Other clouds assign a
//! prefix without a request.
//!
//! Source: nodeup/pkg/model/prefix.go.

use crate::resolve::NodeConfig;
use crate::resource::{DesiredState, Ipv6Prefix};

pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    if node.is_ipv6_only() && node.cloud_provider() == Ipv6Prefix::ASKED_OF {
        state.add(Ipv6Prefix { name: "prefix".into() });
    }
}
