//! If kOps' own kops-controller has to stay, it gets all that it needs: the Lease, the labels and the port.

use std::net::{TcpListener, TcpStream};

use serde_json::json;

use crate::bootstrap::{WithSts, on_aws};
use crate::cluster::{GROUP_LABEL, REGION, eventually, id};
use crate::nodes;

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn upstream_keeps_the_port_and_the_lease_if_work_is_unsupported() {
    let world = WithSts::start();
    let cluster = &world.cluster;
    cluster.ec2.put(&id(1), nodes());
    cluster.create_node(&id(1), Some(&id(1)));
    for more in [json!({"capi": {"enabled": true}}), json!({"discovery": {"enabled": true}})] {
        world.configure(&on_aws(REGION), &more);
        let controller = cluster.controller();
        for probe in ["/healthz", "/readyz"] {
            let said = controller.get(probe);
            assert!(said.starts_with("standing by, because kOps' kops-controller does the work: "), "{said}");
        }
        assert!(TcpStream::connect(world.address).is_err(), "{more}");
        // The port must be free, because upstream's process exits if it cannot bind the port.
        drop(TcpListener::bind(world.address).unwrap());
        let metrics = controller.get("/metrics");
        assert!(metrics.contains("kops_agent_bootstrap_down 0"), "{metrics}");
        assert!(metrics.contains("kops_agent_left_to_upstream 1"), "{metrics}");
        controller.terminate();
        let leases = cluster.kubectl(&["get", "lease", "-n", "kube-system", "-o", "name"]);
        assert!(!leases.contains("kops-controller-leader"), "{leases}");
        assert_eq!(cluster.label(&id(1), GROUP_LABEL), None);
    }
    world.configure(&on_aws(REGION), &json!({}));
    let _controller = world.controller();
    eventually("the node is labelled", || cluster.label(&id(1), GROUP_LABEL).is_some());
}
