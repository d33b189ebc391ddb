//! Does the work of AWS' cloud controller for each Node, because the machines' registry does not have its image. It sets the Node's
//! addresses, adds the route to its pods, and removes the taint with which a Node waits for both.

use serde_json::json;

use crate::cluster::Cluster;

const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized:NoSchedule-";

/// Waits until each Node has its pod range, and then does the work of the cloud controller for the Node.
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
