//! The Amazon VPC CNI gives pods addresses of the instance's own network interfaces, and attaches more
//! interfaces on demand. No other program on the node may change these interfaces.
//!
//! Source: nodeup/pkg/model/networking/amazon-vpc-routed-eni.go.

use crate::resolve::NodeConfig;
use crate::resource::DesiredState;

use super::eni_networking;

/// Keeps the distribution's network services away from the pods' interfaces.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    if node.config.networking.amazon_vpc.is_none() {
        return;
    }
    eni_networking::mask_ec2_net_utils(node, state);
    eni_networking::keep_foreign_routes(node, state);
    eni_networking::keep_mac_addresses(node, state);
    eni_networking::leave_secondary_interfaces(node, state);
    eni_networking::disable_cloud_init_hotplug(node, state);
    eni_networking::narrow_cloud_ifupdown_helper(node, state);
    eni_networking::disable_nm_cloud_setup(node, state);
}
