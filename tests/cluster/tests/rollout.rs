//! A change that restarts kubelet rolls out to two groups, each with one real worker and fifteen Nodes without machines. One group
//! changes one node at a time. The other group changes three nodes at a time, and drains its real worker.

use std::thread;

use crate::cluster::{AGENT, BATCH, BOOT_CONFIG, Cluster, Member, has_condition};
use crate::fake_nodes::{self, FakeNode};
use crate::life::{AT_BOOT, converge};
use crate::witness::Witness;
use crate::workload;
use kops_agent_tests::example_store::NODES;

/// The number of Nodes without machines in each group.
const FAKES: u8 = 15;
/// The number of nodes in the group `batch` that may be disrupted at a time.
const OF_BATCH: u32 = 3;
/// The number of pods of the guarded workload. A PodDisruptionBudget guards these pods.
const GUARDED: usize = 4;
pub const CORDONED_SINCE: &str = "kops-agent/cordoned-since";
/// The transient unit in which the test runs the agent on the worker of `batch`.
const BY_HAND: &str = "rollout.service";

/// A changed kubelet setting reaches both workers, and no group has more taken slots than allowed. The test kills some runs. At the end, the
/// cordons and slots of these runs are gone.
pub fn paced(cluster: &Cluster) {
    let witness = Witness::begins(cluster);
    let fakes = join(cluster);
    let (node, batch) = (cluster.of_group(NODES), cluster.of_group(BATCH));
    workload::guard(cluster, GUARDED, GUARDED, 0);
    witness.sees_guarded(GUARDED);
    cluster.store.merge("cluster-completed.spec", "{spec: {kubelet: {maxPods: 44}}}");
    for worker in [node, batch] {
        worker.machine.write(BOOT_CONFIG, &cluster.store.update(worker.group));
    }
    let before = [node, batch].map(kubelet_runs_since);

    let (dead, others) = fakes.split_first().unwrap();
    dead.waits_for_a_slot(cluster, 1);
    cluster
        .control_plane()
        .until("its slot was seen", || (witness.states(GUARDED).holders(NODES) == [&dead.id]).then_some(()));
    is_killed_while_it_drains(cluster, &witness, batch);

    thread::scope(|scope| {
        let converging = scope.spawn(|| converge(node));
        waits_for_a_slot(node);
        assert_eq!(kubelet_runs_since(node), before[0], "kubelet was restarted without a slot");
        for fake in others {
            let max_unavailable = if fake.group == BATCH { OF_BATCH } else { 1 };
            scope.spawn(move || fake.takes_its_turn(cluster, max_unavailable));
        }
        // A lease duration of one second makes the slot expire, as if its holder had been killed minutes ago.
        let lease = format!("kops-agent-disruption.{NODES}.0");
        let patch = r#"{"spec": {"leaseDurationSeconds": 1}}"#;
        cluster.run_kubectl(&[
            "-n",
            "kops-agent",
            "patch",
            "lease",
            &lease,
            "--type=merge",
            "--patch",
            patch,
        ]);
        cluster.control_plane().until("another has the slot of the one that was killed", || {
            let states = witness.states(GUARDED);
            states.turns.iter().any(|turn| turn.node == dead.id).then_some(())
        });
        dead.takes_its_turn(cluster, 1);
        is_drained_within_its_budget(cluster, batch);
        converging.join().unwrap();
    });
    for (worker, before) in [node, batch].into_iter().zip(before) {
        cluster.until("kubelet has the setting", "node", worker.id, |node| {
            node["status"]["capacity"]["pods"] == "44" && has_condition(node, "Ready")
        });
        assert_ne!(kubelet_runs_since(worker), before);
    }
    no_limit_was_exceeded(cluster, &witness, &fakes);
    witness.ends();
    leave(cluster, &fakes);
}

/// Lets fake Nodes join the cluster: the first half in the group `nodes`, and the second half in the group `batch`.
fn join(cluster: &Cluster) -> Vec<FakeNode> {
    let authority = cluster.control_plane().read("/srv/kubernetes/ca.crt");
    let fakes: Vec<FakeNode> = (0..FAKES * 2)
        .map(|number| {
            let group = if number < FAKES { NODES } else { BATCH };
            FakeNode::join(cluster, &authority, group, number + 1)
        })
        .collect();
    fake_nodes::are_labelled(cluster, &fakes);
    fakes
}

/// A run drains the worker until the PodDisruptionBudget blocks the drain. The test then kills the run. The slot stays taken, and
/// the agent's separate uncordon unit uncordons the Node.
fn is_killed_while_it_drains(cluster: &Cluster, witness: &Witness<'_>, batch: &Member) {
    let before = kubelet_runs_since(batch);
    batch.machine.run(&[&["systemd-run", "--quiet", "--unit", BY_HAND][..], &draining()].concat());
    let pods = |app: &str| {
        let (selector, field) =
            (format!("--selector=app={app}"), format!("--field-selector=spec.nodeName={}", batch.id));
        cluster.run_kubectl(&["get", "pods", &selector, &field, "--output=name"])
    };
    batch.machine.until("all but guarded pods have left", || pods(workload::OWN).is_empty().then_some(()));
    assert!(!pods(workload::GUARDED).is_empty(), "there is nothing for the budget to keep");
    let node = cluster.get("node", batch.id).unwrap();
    assert_eq!(node["spec"]["unschedulable"], true);
    assert!(node["metadata"]["annotations"][CORDONED_SINCE].is_string(), "{node:#}");
    batch.machine.run(&["systemctl", "kill", "--signal=KILL", BY_HAND]);
    batch.machine.until("the run has ended", || {
        (batch.machine.show(BY_HAND, "ActiveState") == "failed").then_some(())
    });
    batch.machine.run(&["systemctl", "reset-failed", BY_HAND]);
    cluster.until("its cordon is taken back", "node", batch.id, |node| {
        node["spec"]["unschedulable"].is_null() && node["metadata"]["annotations"][CORDONED_SINCE].is_null()
    });
    let states = witness.states(GUARDED);
    assert_eq!(states.holders(BATCH), [batch.id]);
    assert_eq!(states.fewest_pods(), Some(GUARDED), "a pod has left against its budget");
    assert_eq!(kubelet_runs_since(batch), before);
}

/// When the PodDisruptionBudget allows one eviction at a time, the next run takes over the slot of the killed run, drains the
/// worker and uncordons it.
fn is_drained_within_its_budget(cluster: &Cluster, batch: &Member) {
    workload::keep_guarded(cluster, GUARDED - 1);
    let ended = batch.machine.try_run(&draining());
    assert_eq!(ended.code, Some(0), "{}", batch.machine.explain(&ended));
    let uncordoned = format!("the Node {} is uncordoned", batch.id);
    for part in ["this node has the slot", "evicting the pod default/guarded", &uncordoned] {
        assert!(ended.stderr.contains(part), "no {part:?} in {}", ended.stderr);
    }
    let node = cluster.get("node", batch.id).unwrap();
    assert!(node["metadata"]["annotations"][CORDONED_SINCE].is_null(), "{node:#}");
}

fn draining() -> [&'static str; 7] {
    [AGENT, "converge", "--conf", BOOT_CONFIG, "--max-unavailable", "3", "--drain"]
}

fn waits_for_a_slot(node: &Member) {
    node.machine.until("it says that it waits for a slot", || {
        node.machine.show(AT_BOOT, "StatusText").contains("waiting for a slot").then_some(())
    });
}

fn no_limit_was_exceeded(cluster: &Cluster, witness: &Witness<'_>, fakes: &[FakeNode]) {
    let workers = cluster.workers().iter().map(|worker| (worker.group, worker.id));
    let all: Vec<(&str, &str)> =
        workers.chain(fakes.iter().map(|fake| (fake.group, fake.id.as_str()))).collect();
    let states = cluster.control_plane().until("all slots were let go", || {
        let states = witness.states(GUARDED);
        let have_ended = [NODES, BATCH].iter().all(|group| states.holders(group).is_empty());
        let has_had_one = |(group, id): &(&str, &str)| {
            states.turns.iter().any(|turn| turn.node == *id && turn.group == *group)
        };
        (have_ended && all.iter().all(has_had_one)).then_some(states)
    });
    assert_eq!(states.most_holders(NODES), 1, "{:#?}", states.turns);
    assert_eq!(states.most_holders(BATCH), usize::try_from(OF_BATCH).unwrap(), "{:#?}", states.turns);
    assert!(states.cordoned().is_empty(), "{:?} stay cordoned", states.cordoned());
    assert!(states.fewest_pods() >= Some(GUARDED - 1), "there were {:?} guarded pods", states.fewest_pods());
    for worker in cluster.workers() {
        let restarted = kubelet_runs_since(worker);
        let turn = states
            .turns
            .iter()
            .find(|turn| turn.node == worker.id && turn.since <= restarted && restarted <= turn.until);
        assert!(turn.is_some(), "kubelet of {} was restarted at {restarted}: {:#?}", worker.id, states.turns);
    }
}

/// Removes the guarded workload, and the Nodes that have no machines. Checks that the cluster's own workload runs on both workers.
fn leave(cluster: &Cluster, fakes: &[FakeNode]) {
    fake_nodes::leave(cluster, fakes);
    workload::unguard(cluster);
}

/// The start time of kubelet, in UTC and to the second, for comparison with the times of a `Turn`.
pub fn kubelet_runs_since(member: &Member) -> String {
    let show = [
        "systemctl",
        "show",
        "--value",
        "--timestamp=unix",
        "--property=ExecMainStartTimestamp",
        "kubelet.service",
    ];
    let since = member.machine.run(&show);
    member.machine.run(&["date", "--utc", "--date", since.trim(), "+%FT%T"]).trim().to_owned()
}
