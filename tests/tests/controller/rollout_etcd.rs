//! A control plane changes only while the API servers of all control planes are ready. An API server is ready only if it reaches its etcd.

use crate::cluster::eventually;
use crate::rollout::Fleet;

/// A machine's address at which no API server listens.
const SILENT: &str = "127.0.0.2";
const NODE_TIMEOUT: &str = "20";

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn a_control_plane_waits_for_all_api_servers_and_is_done_when_its_own_is_ready() {
    let fleet = Fleet::start(&[("a", 1)]);
    fleet.create_control_plane("masters-1");
    fleet.cluster.is_at("masters-1", SILENT);
    let _controller = fleet.cluster.controller();
    let (code, said) = fleet.rollout(&["start", "--check-pods-after", "0", "--node-timeout", NODE_TIMEOUT]);
    assert_eq!(code, Some(0), "{said}");
    let waits_for = format!("waits for: the API server of masters-1 is not ready: {SILENT}:");
    eventually("it waits for the API server", || fleet.rollout(&["status"]).1.contains(&waits_for));
    let orders = ["masters-0", "masters-1", "a-0"].map(|node| fleet.order(node));
    assert_eq!(orders, [None, None, None]);

    fleet.cluster.is_at("masters-1", "127.0.0.1");
    fleet.at_work(&["masters-0"]);
    fleet.cluster.is_at("masters-0", SILENT);
    fleet.answer("masters-0", "");
    eventually("the rollout stops", || fleet.phase() == "stopped");
    let (_, said) = fleet.rollout(&["status"]);
    let failed = format!(
        "masters-0 failed: its run succeeded, but its API server is not ready {NODE_TIMEOUT}s after the order: {SILENT}:"
    );
    assert!(said.contains(&failed), "{said}");
    assert_eq!(fleet.order("masters-1"), None);

    fleet.cluster.is_at("masters-0", "127.0.0.1");
    fleet.at_work(&["masters-1"]);
    fleet.answer("masters-1", "");
    fleet.at_work(&["a-0"]);
    let before = fleet.cluster.questions();
    fleet.answer("a-0", "");
    eventually("the rollout is done", || fleet.phase() == "done");
    assert_eq!(fleet.cluster.questions(), before, "a worker needs no answer of an API server");
}
