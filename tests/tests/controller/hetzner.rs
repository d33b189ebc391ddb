//! The controller on Hetzner Cloud.

use std::net::IpAddr;

use kops_agent_tests::hetzner::{Hetzner, Server, TOKEN};

use crate::cluster::{CLUSTER, Cluster, GROUP_LABEL, NODE_ROLE, eventually};

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn only_honest_nodes_on_hetzner_get_the_labels_of_their_group() {
    let hetzner = Hetzner::start().unwrap();
    let server = |group: &str, name: &str, role: &str| {
        let mut server = Server::of_group(CLUSTER, group, name, IpAddr::from([10, 0, 0, 7]));
        server.labels.insert("kops.k8s.io/instance-role".into(), role.into());
        server
    };
    hetzner.put(1, server("control-plane", "control-plane-1a2b", "ControlPlane"));
    hetzner.put(2, server("nodes", "nodes-3c4d", "Node"));
    let environment = vec![("HCLOUD_ENDPOINT", hetzner.url()), ("HCLOUD_TOKEN", TOKEN.to_owned())];
    let cluster = Cluster::start_on("hetzner", environment);
    for (node, id) in [("control-plane-1a2b", 1), ("nodes-3c4d", 2), ("nodes-liar", 1), ("nodes-none", 3)] {
        cluster.create_node_saying(node, &format!("hcloud://{id}"));
    }
    let as_upstream = cluster.once(&["--labels-from", "tags", "--dry-run"]);
    assert!(as_upstream.contains(&format!("node nodes-3c4d\n  + {NODE_ROLE}: \"\"\n")), "{as_upstream}");
    let controller = cluster.controller();
    eventually("the nodes are labelled", || {
        cluster.label("nodes-3c4d", "tier").as_deref() == Some("web")
            && cluster.label("control-plane-1a2b", GROUP_LABEL).as_deref() == Some("control-plane")
    });
    assert_eq!(cluster.label("nodes-3c4d", NODE_ROLE).as_deref(), Some(""));
    for (node, reason) in [("nodes-liar", "InstanceOfOtherNode"), ("nodes-none", "InstanceNotFound")] {
        eventually(&format!("an Event says {reason}"), || cluster.reasons(node).contains(reason));
        assert_eq!(cluster.label(node, GROUP_LABEL), None, "{node}");
    }
    assert_eq!(controller.get("/readyz"), "ok");
}
