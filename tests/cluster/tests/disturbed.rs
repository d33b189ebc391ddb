//! Rollouts that are disturbed while a node is in the middle of its change: the controller is killed, another controller leads, the API
//! server is away, the node reboots.

use std::thread;
use std::time::Duration;

use kops_agent_tests::example_store::NODES;
use serde_json::Value;

use crate::cluster::{BATCH, Cluster, Member, has_condition};
use crate::rollout::CORDONED_SINCE;
use crate::{fake_nodes, ordered, quorum, workload};

/// The number of pods of the guarded workload. At first, a PodDisruptionBudget protects all pods of the workload, so that drains wait.
const GUARDED: usize = 2;
/// How long the API server is unreachable. The cluster treats a kubelet as failed after 50 s without a report.
const AWAY: Duration = Duration::from_secs(20);
pub const CONTROLLER: &str = "kops-agent-controller.service";

/// While the drains of both workers wait for a PodDisruptionBudget, the controller is killed, the API server is unreachable for some time,
/// and one worker reboots. The rollout's orders to the workers stay unchanged. When the budget allows evictions, the rollout reaches
/// the phase `done`. Then no Node is cordoned, and no node has a slot.
pub fn a_rollout_outlives_disturbances(cluster: &Cluster) {
    let workers = [cluster.of_group(NODES), cluster.of_group(BATCH)];
    let orders = begin(cluster, GUARDED, "47");
    let control_plane = cluster.control_plane();

    let restarts = control_plane.show(CONTROLLER, "NRestarts");
    control_plane.run(&["systemctl", "kill", "--signal=KILL", CONTROLLER]);
    control_plane.until("the controller has been started again", || {
        (control_plane.show(CONTROLLER, "NRestarts") != restarts).then_some(())
    });

    cluster.network.unplug(control_plane.name());
    control_plane.run(&["sh", "-c", "kill -KILL $(pgrep --full '[k]ube-apiserver --')"]);
    thread::sleep(AWAY);
    cluster.network.plug(control_plane.name());
    control_plane.until("the API server is back", || cluster.is_ready());

    let rebooted = cluster.of_group(BATCH);
    rebooted.machine.reboot();
    waits_for_its_budget(cluster, rebooted);

    assert_eq!(orders_of(cluster, &workers), orders, "a worker has another order");
    ends(cluster, &workers, GUARDED - 1, "47");
}

/// While the drain of the worker waits for a PodDisruptionBudget, the leading controller is killed and stays stopped. A different
/// controller becomes the leader. The rollout's order to the worker stays unchanged, and the rollout is done.
pub fn another_controller_ends_a_rollout(cluster: &Cluster) {
    let workers = [cluster.of_group(NODES)];
    let orders = begin(cluster, 1, "48");
    let lost = quorum::leader(cluster).unwrap();
    lost.machine.run(&["systemctl", "kill", "--signal=KILL", CONTROLLER]);
    lost.machine.run(&["systemctl", "stop", CONTROLLER]);
    lost.machine.until("another leads", || quorum::leader(cluster).filter(|leader| leader.id != lost.id));
    assert_eq!(orders_of(cluster, &workers), orders, "the worker has another order");
    ends(cluster, &workers, 0, "48");
    lost.machine.run(&["systemctl", "start", CONTROLLER]);
}

/// Starts a rollout that sets `max_pods` and drains all workers. Waits until the guarded workload's PodDisruptionBudget blocks the drain of
/// each worker. Returns the orders that the rollout has written into the workers' Nodes.
fn begin(cluster: &Cluster, guarded: usize, max_pods: &str) -> Vec<Value> {
    workload::guard(cluster, guarded, guarded, 0);
    ordered::change_max_pods(cluster, max_pods);
    ordered::started(cluster, &[&["start", "--drain", "always"][..], &ordered::CHECK_PODS_AFTER].concat());
    for worker in cluster.workers() {
        waits_for_its_budget(cluster, worker);
    }
    orders_of(cluster, &cluster.workers().iter().collect::<Vec<_>>())
}

/// Waits until the worker's run has cordoned the Node. The run does not end, because a PodDisruptionBudget protects the pods on the worker.
fn waits_for_its_budget(cluster: &Cluster, worker: &Member) {
    worker.machine.until("a run carries its order out", || {
        let runs = worker.machine.try_run(&["pgrep", "--full", "converge .*--follow="]);
        (runs.code == Some(0)).then_some(())
    });
    cluster.until(&format!("{} is drained", worker.id), "node", worker.id, |node| {
        node["spec"]["unschedulable"] == true && node["metadata"]["annotations"][CORDONED_SINCE].is_string()
    });
}

fn orders_of(cluster: &Cluster, workers: &[&Member]) -> Vec<Value> {
    workers.iter().map(|worker| fake_nodes::order(cluster, worker.id).unwrap()).collect()
}

/// Makes the PodDisruptionBudget protect only `min_available` pods, and waits until the rollout is done. Then no Node may be cordoned, and
/// no node may have a slot.
fn ends(cluster: &Cluster, workers: &[&Member], min_available: usize, max_pods: &str) {
    for worker in workers {
        let node = cluster.get("node", worker.id).unwrap();
        assert_ne!(
            node["status"]["capacity"]["pods"], max_pods,
            "{} changed before it was drained",
            worker.id
        );
    }
    workload::keep_guarded(cluster, min_available);
    ordered::until_phase(cluster, "done");
    for worker in workers {
        cluster.until(&format!("{} has the setting and takes pods", worker.id), "node", worker.id, |node| {
            node["status"]["capacity"]["pods"] == max_pods
                && has_condition(node, "Ready")
                && node["spec"]["unschedulable"].is_null()
        });
    }
    slots_are_free(cluster);
    workload::unguard(cluster);
}

/// Waits until no node has a slot.
pub fn slots_are_free(cluster: &Cluster) {
    cluster.control_plane().until("no node has a slot", || {
        let leases: Value = serde_json::from_str(&cluster.kubectl(&[
            "get",
            "leases",
            "--namespace=kops-agent",
            "--output=json",
        ])?)
        .unwrap();
        let holder = |lease: &Value| lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
        leases["items"].as_array().unwrap().iter().all(|lease| holder(lease).is_empty()).then_some(())
    });
}
