//! Workers that lie in a rollout, each in its own Node, as root on a machine can: about their group, the configuration that they run,
//! times, and their progress.

use kops_agent_tests::example_store::{CONTROL_PLANE, NODES};
use serde_json::{Value, json};

use crate::cluster::{BATCH, Cluster, has_condition};
use crate::fake_nodes::{self, FakeNode, OLD, ORDER, OUTCOME, outcome};
use crate::ordered;

/// The node timeout in seconds. A node that reports no outcome within this time has failed.
const NODE_TIMEOUT: &str = "45";
/// The numbers of the Nodes without machines. A number is the last byte of a Node's address.
const HONEST: u8 = 45;
const CLAIMS_TO_BE_CURRENT: u8 = 46;
const LIES: [(u8, Lie); 3] = [(47, Lie::Time), (48, Lie::Hash), (49, Lie::Progress)];
/// The far-future time that a liar writes into its order.
const LATER: &str = "2099-01-01T00:00:00Z";

#[derive(Clone, Copy)]
enum Lie {
    /// Reports no outcome, and moves the times of its order to the far future.
    Time,
    /// Reports an outcome whose configuration and attempt differ from the order's.
    Hash,
    /// Reports success, but keeps its old configuration.
    Progress,
}

/// Lying nodes of the group `batch` do not block other groups. If all nodes of `batch` may change at the same time, liars do not
/// block the other nodes of `batch` either. The controller's own clock decides when the liars have failed. Once the liars are
/// removed, the rollout is done.
pub fn liars_gain_nothing_and_hold_nobody(cluster: &Cluster) {
    let authority = cluster.control_plane().read("/srv/kubernetes/ca.crt");
    let join = |group, number| FakeNode::join(cluster, &authority, group, number);
    let honest = join(NODES, HONEST);
    let claims = join(BATCH, CLAIMS_TO_BE_CURRENT);
    let liars: Vec<FakeNode> = LIES.iter().map(|(number, _)| join(BATCH, *number)).collect();
    let fakes: Vec<FakeNode> = [honest, claims].into_iter().chain(liars).collect();
    fake_nodes::are_labelled(cluster, &fakes);
    changes_no_more_than_itself(cluster, &fakes[2]);
    a_forged_order_changes_nothing(cluster);
    a_liar_holds_only_its_group(cluster, &fakes);

    ordered::change_max_pods(cluster, "46");
    let current = ordered::hash_of(cluster, BATCH);
    fake_nodes::at_work(&fakes, acts(cluster, &fakes, &current), || {
        // All nodes of `batch` may change at the same time, so that each liar gets an order.
        start(cluster, "5");
        others_are_done_before_liars_fail(cluster);
        for member in &cluster.members {
            cluster.until(&format!("kubelet of {} has it", member.id), "node", member.id, |node| {
                node["status"]["capacity"]["pods"] == "46" && has_condition(node, "Ready")
            });
        }
        ordered::until_phase(cluster, "stopped");
        have_failed(cluster, &fakes[2..]);
        assert!(fakes[1].order(cluster).is_none(), "a node that claims to be current got an order");
        fake_nodes::leave(cluster, &fakes[1..]);
        ordered::until_phase_after(cluster, "done", &["stopped"]);
    });
    fake_nodes::leave(cluster, &fakes[..1]);
}

/// If only one node of each group may change at a time, the first lying node blocks its group until it has failed. The other groups
/// are done before this node fails. No second lying node gets an order from the rollout. An abort ends the rollout.
fn a_liar_holds_only_its_group(cluster: &Cluster, fakes: &[FakeNode]) {
    ordered::change_max_pods(cluster, "45");
    let current = ordered::hash_of(cluster, BATCH);
    fake_nodes::at_work(fakes, acts(cluster, fakes, &current), || {
        start(cluster, "1");
        others_are_done_before_liars_fail(cluster);
        ordered::until_phase(cluster, "stopped");
        have_failed(cluster, &fakes[2..3]);
        for fake in &fakes[3..] {
            assert!(fake.order(cluster).is_none(), "{} got an order after a failure of its group", fake.id);
        }
        ordered::started(cluster, &["abort"]);
        ordered::until_phase_after(cluster, "aborted", &["stopped"]);
    });
}

/// How each Node without a machine acts in a rollout. `current` is the hash of the current configuration of `batch`.
fn acts(cluster: &Cluster, fakes: &[FakeNode], current: &str) -> impl Fn(&FakeNode) + Sync {
    move |fake: &FakeNode| match fakes.iter().position(|other| other.id == fake.id).unwrap() {
        0 => fake.obeys(cluster),
        1 => drop(fake.reports(cluster, current)),
        number => lie(cluster, fake, LIES[number - 2].1),
    }
}

/// Starts a rollout in which up to `max_unavailable` nodes of each group may change at a time.
fn start(cluster: &Cluster, max_unavailable: &str) {
    let start = ["start", "--max-unavailable", max_unavailable, "--node-timeout", NODE_TIMEOUT];
    ordered::started(cluster, &[&start[..], &ordered::CHECK_PODS_AFTER].concat());
}

fn others_are_done_before_liars_fail(cluster: &Cluster) {
    let status = cluster.control_plane().until("all but the liars are done", || {
        let status = ordered::try_status(cluster)?;
        let done = |group: &str| status["status"]["groups"][group]["done"].as_u64();
        let are_done = [done(CONTROL_PLANE)?, done(NODES)?, done(BATCH)?] == [1, 2, 2];
        are_done.then_some(status)
    });
    assert_eq!(status["status"]["groups"][BATCH]["failed"], 0, "others waited for the liars: {status:#}");
}

/// Checks that exactly these Nodes of `batch` have failed.
fn have_failed(cluster: &Cluster, liars: &[FakeNode]) {
    let status = ordered::status(cluster);
    let failures = status["status"]["groups"][BATCH]["failures"].as_object().unwrap();
    let failed: Vec<&str> = failures.keys().map(String::as_str).collect();
    let liars: Vec<&str> = liars.iter().map(|fake| fake.id.as_str()).collect();
    assert_eq!(failed, liars, "{status:#}");
}

/// Reports the old configuration. If the Node has an order, answers the order with this lie.
fn lie(cluster: &Cluster, fake: &FakeNode, lie: Lie) {
    drop(fake.reports(cluster, OLD));
    let Some(order) = fake.order(cluster) else { return };
    match lie {
        Lie::Time => {
            let mut later = order;
            later["at"] = LATER.into();
            later["until"] = LATER.into();
            annotate(cluster, fake, ORDER, &later);
        }
        Lie::Hash => {
            let mut of_other = outcome(&order, "");
            of_other["hash"] = OLD.into();
            of_other["attempt"] = 7.into();
            drop(fake.answers(cluster, &of_other));
        }
        Lie::Progress => drop(fake.answers(cluster, &outcome(&order, ""))),
    }
}

fn annotate(cluster: &Cluster, fake: &FakeNode, annotation: &str, value: &Value) {
    let patch = json!({"metadata": {"annotations": {annotation: value.to_string()}}});
    drop(fake.patch(cluster, &fake.id, &patch));
}

/// A worker cannot change its own group or role, or any other Node.
fn changes_no_more_than_itself(cluster: &Cluster, liar: &FakeNode) {
    let labels = |labels: Value| json!({"metadata": {"labels": labels}});
    let victim = cluster.of_group(NODES).id;
    for (what, node, patch) in [
        ("its group", liar.id.as_str(), labels(json!({"kops.k8s.io/instancegroup": NODES}))),
        ("no group", &liar.id, labels(json!({"kops.k8s.io/instancegroup": null}))),
        ("its role", &liar.id, labels(json!({"node-role.kubernetes.io/control-plane": ""}))),
        ("an order of another Node", victim, json!({"metadata": {"annotations": {ORDER: "{}"}}})),
        ("an outcome of another Node", victim, json!({"metadata": {"annotations": {OUTCOME: "{}"}}})),
    ] {
        let (status, said) = liar.patch(cluster, node, &patch).unwrap();
        assert_eq!(status.as_u16(), 403, "{what}: {said}");
    }
}

/// A worker gets an order for a configuration that its group does not have. The worker reports a problem and does not change.
fn a_forged_order_changes_nothing(cluster: &Cluster) {
    let worker = cluster.of_group(BATCH);
    let config = || {
        worker.machine.run(&[
            "sha256sum",
            "/var/lib/kubelet/kubelet.conf",
            "/var/lib/kops-agent/applied.json",
        ])
    };
    let before = config();
    let forged = json!({
        "rollout": "forged", "attempt": 1, "hash": OLD, "drain": "always", "maxUnavailable": 100, "mayGoBack": true, "at": LATER,
    });
    cluster.run_kubectl(&["annotate", "--overwrite", "node", worker.id, &format!("{ORDER}={forged}")]);
    cluster.until("it refuses the forged order", "node", worker.id, |node| {
        let outcome = node["metadata"]["annotations"][OUTCOME].as_str().unwrap_or("{}");
        let outcome: Value = serde_json::from_str(outcome).unwrap();
        outcome["rollout"] == "forged"
            && outcome["problem"].as_str().is_some_and(|problem| !problem.is_empty())
    });
    assert_eq!(config(), before, "a forged order has changed {}", worker.id);
    cluster.run_kubectl(&["annotate", "node", worker.id, &format!("{ORDER}-")]);
}
