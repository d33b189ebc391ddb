//! Names of the control plane in `/etc/hosts`, for clusters without DNS and for machines that need the names
//! before DNS has them. In a gossip cluster, protokube later replaces the addresses of these names with the
//! addresses of all control planes.
//!
//! Source: nodeup/pkg/model/etc_hosts.go, and `Update` in protokube/pkg/gossip/dns/hosts.go at v1.36.2.

use crate::resolve::NodeConfig;
use crate::resource::{DesiredState, HostsEntry};

const LOCALHOST: &str = "127.0.0.1";

pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    if node.is_control_plane() && (node.config.uses_none_dns || node.uses_gossip()) {
        add_own_api_server(node, state);
    } else if !node.boot.api_server_ips.is_empty() {
        let kops_controller = format!("kops-controller.internal.{}", node.cluster_name());
        for hostname in [node.api_internal_name(), kops_controller] {
            state.add(published(node, hostname, node.boot.api_server_ips.clone()));
        }
    }
    let knows_etcd_addresses = node.release().api_servers_know_etcd_addresses();
    if node.has_api_server() && !node.is_control_plane() && knows_etcd_addresses {
        for cluster in ["main", "events"] {
            let hostname = format!("{cluster}.etcd.internal.{}", node.cluster_name());
            state.add(HostsEntry {
                hostname,
                addresses: node.boot.etcd_ips.clone(),
                ..HostsEntry::default()
            });
        }
    }
}

/// Maps the names of the API server to localhost, because a control-plane machine uses its own API server.
fn add_own_api_server(node: &NodeConfig, state: &mut DesiredState) {
    let public_name = node.config.api_server_config.as_ref().map(|server| server.api.public_name.clone());
    let public_name = public_name.filter(|name| !name.is_empty());
    for hostname in [node.api_internal_name()].into_iter().chain(public_name) {
        state.add(published(node, hostname, vec![LOCALHOST.into()]));
    }
}

/// The entry for a name that dns-controller publishes.
fn published(node: &NodeConfig, hostname: String, addresses: Vec<String>) -> HostsEntry {
    HostsEntry { hostname, addresses, is_replaced_by_gossip: node.uses_gossip() && node.protokube.is_some() }
}
