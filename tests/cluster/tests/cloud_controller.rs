//! What AWS' cloud controller would do for each Node, which no registry of these machines has: its addresses, its way for pods,
//! and the end of the taint by which a Node waits for both.

use serde_json::json;

use crate::cluster::Cluster;

const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized:NoSchedule-";

/// Does it for all Nodes once each has its range for pods.
pub fn initializes_nodes(cluster: &Cluster) {
    for member in &cluster.members {
        let range = cluster.control_plane().until(&format!("{} has a range for pods", member.id), || {
            let node = cluster.get("node", member.id)?;
            node["spec"]["podCIDR"].as_str().map(str::to_owned)
        });
        cluster.network.add_route(&range, member.address);
        let addresses = [("InternalIP", member.address.to_string()), ("Hostname", member.id.to_owned())];
        let addresses = addresses.map(|(kind, address)| json!({"type": kind, "address": address}));
        let patch = json!({"status": {"addresses": addresses}}).to_string();
        cluster.run_kubectl(&[
            "patch",
            "node",
            member.id,
            "--subresource=status",
            "--type=merge",
            "--patch",
            &patch,
        ]);
        let node = cluster.get("node", member.id).unwrap();
        if node["spec"]["taints"].to_string().contains("uninitialized") {
            cluster.run_kubectl(&["taint", "node", member.id, UNINITIALIZED]);
        }
    }
}
