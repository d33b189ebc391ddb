//! Faults around a controller that leads. Its other work continues, and it writes nothing wrong.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kops_agent_tests::ec2::Mood;
use serde_json::Value;

use crate::cluster::{Cluster, GROUP_LABEL, eventually, id};
use crate::controller::Controller;
use crate::{LEADS, nodes};

/// A cluster with this many labelled Nodes, and its leading controller.
fn labelled(count: usize) -> (Cluster, Controller) {
    let cluster = Cluster::start();
    add(&cluster, 1..=count);
    let controller = cluster.controller();
    eventually("the nodes are labelled", || (1..=count).all(|number| is_labelled(&cluster, number)));
    // The controller counts a write only after the API server has answered.
    let written = || metric(&controller, "kops_agent_node_patches_total");
    eventually("the writes are counted", || written() >= count as u64);
    (cluster, controller)
}

fn add(cluster: &Cluster, numbers: std::ops::RangeInclusive<usize>) {
    for number in numbers {
        cluster.ec2.put(&id(number), nodes());
        cluster.create_node(&id(number), Some(&id(number)));
    }
}

fn is_labelled(cluster: &Cluster, number: usize) -> bool {
    cluster.label(&id(number), GROUP_LABEL).is_some()
}

/// Removes a label of a Node, and waits until the controller restores the label.
fn takes_care_of(cluster: &Cluster, number: usize) {
    cluster.label_node(&id(number), GROUP_LABEL, Value::Null);
    eventually("a label is put back", || is_labelled(cluster, number));
}

fn of_lease(cluster: &Cluster, field: &str) -> String {
    let path = format!("jsonpath={{.spec.{field}}}");
    cluster.kubectl(&["get", "lease", "-n", "kube-system", "kops-controller-leader", "-o", &path])
}

fn metric(controller: &Controller, name: &str) -> u64 {
    let metrics = controller.get("/metrics");
    let line = metrics.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn a_slow_or_hanging_ec2_delays_no_known_node() {
    let (cluster, controller) = labelled(1);
    cluster.ec2.set_mood(Mood::Hanging);
    let asked = cluster.ec2.calls().len();
    add(&cluster, 2..=2);
    eventually("EC2 is asked", || cluster.ec2.calls().len() > asked);
    takes_care_of(&cluster, 1);
    assert!(!is_labelled(&cluster, 2), "EC2 has not answered yet");
    cluster.ec2.set_mood(Mood::Good);
    eventually("EC2 has answered", || is_labelled(&cluster, 2));

    cluster.ec2.set_mood(Mood::Hanging);
    let asked = cluster.ec2.calls().len();
    let renewed = of_lease(&cluster, "renewTime");
    add(&cluster, 3..=3);
    eventually("EC2 is asked", || cluster.ec2.calls().len() > asked);
    takes_care_of(&cluster, 1);
    assert_eq!(controller.get("/readyz"), "ok");
    eventually("the Lease is renewed", || of_lease(&cluster, "renewTime") != renewed);
    eventually("EC2 is given up", || metric(&controller, "kops_agent_nodes_waiting_for_cloud") == 1);
    assert!(controller.get("/metrics").contains(r#"action="DescribeInstances",outcome="Error""#));
    assert!(controller.get("/metrics").contains(LEADS));
    assert_eq!((controller.get("/readyz"), controller.get("/healthz")), ("ok".into(), "ok".into()));
    assert_eq!(of_lease(&cluster, "leaseTransitions"), "0");
    takes_care_of(&cluster, 2);
    cluster.ec2.set_mood(Mood::Good);
    eventually("EC2 answers again", || is_labelled(&cluster, 3));
    // The controller reports the end of the outage only after the API server has answered the write of the label.
    eventually("no Node waits", || metric(&controller, "kops_agent_nodes_waiting_for_cloud") == 0);
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn an_outage_of_the_cloud_is_reported_by_one_event() {
    const NEW: usize = 5;
    let (cluster, controller) = labelled(1);
    cluster.ec2.set_mood(Mood::Down);
    add(&cluster, 2..=1 + NEW);
    // After some seconds, one Event reports the outage. The Event is about the Lease, because kOps' RBAC permits Events about it.
    eventually("an Event says so", || cluster.reasons("kops-controller-leader") == "CloudUnavailable");
    assert_eq!(metric(&controller, "kops_agent_nodes_waiting_for_cloud"), NEW as u64);
    takes_care_of(&cluster, 1);
    for number in 2..=1 + NEW {
        assert_eq!(cluster.reasons(&id(number)), "", "it is not for the Node");
    }
    cluster.ec2.set_mood(Mood::Good);
    eventually("the nodes are labelled", || (2..=1 + NEW).all(|number| is_labelled(&cluster, number)));
    assert_eq!(cluster.reasons("kops-controller-leader"), "CloudUnavailable");
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn with_a_slow_etcd_nodes_are_labelled_once_and_the_lease_is_kept() {
    const NEW: usize = 10;
    let (cluster, controller) = labelled(1);
    let slow = cluster.api.slow_etcd();
    let begun = Instant::now();
    for _ in 0..5 {
        cluster.kubectl(&["get", "lease", "-n", "kube-system"]);
    }
    assert!(begun.elapsed() > Duration::from_millis(500), "it is not slow");
    add(&cluster, 2..=1 + NEW);
    eventually("the nodes are labelled", || {
        assert!(controller.get("/metrics").contains(LEADS), "it leads all the time");
        assert_eq!(controller.get("/readyz"), "ok");
        (2..=1 + NEW).all(|number| is_labelled(&cluster, number))
    });
    takes_care_of(&cluster, 1);
    drop(slow);
    assert_eq!(of_lease(&cluster, "leaseTransitions"), "0");
    // If the API server accepts a write but responds too late, the controller does not count this write.
    let patches = metric(&controller, "kops_agent_node_patches_total");
    assert!(patches <= 2 + NEW as u64, "{patches} writes");
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn two_disagreeing_controllers_write_at_a_limited_rate() {
    /// The number of writes to wait for. The first writes come immediately. The controller pauses for up to one, two and four seconds
    /// before the last three writes.
    const WRITES: u64 = 7;
    const LEAST: Duration = Duration::from_secs(5);
    let (cluster, controller) = labelled(1);
    let patches = || metric(&controller, "kops_agent_node_patches_total");
    let before = patches();
    // This loop acts as a kops-controller of kOps that does not wait for a Lease. In its store, the Node's label has the value `old`. So
    // the loop immediately overwrites any other value.
    let (over, written) = (AtomicBool::new(false), AtomicUsize::new(0));
    let begun = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if cluster.label(&id(1), "tier").as_deref() != Some("old") {
                    let patch = r#"{"metadata": {"labels": {"tier": "old"}}}"#;
                    let manager = "--field-manager=kops-controller";
                    cluster.kubectl(&["patch", "node", &id(1), "--type=strategic", manager, "-p", patch]);
                    written.fetch_add(1, Ordering::Relaxed);
                }
                // Without a pause, this loop would take a core from the controller.
                thread::sleep(Duration::from_millis(20));
            }
        });
        eventually("they fight", || patches() - before >= WRITES);
        over.store(true, Ordering::Relaxed);
    });
    assert!(begun.elapsed() > LEAST, "{WRITES} writes in {:?}", begun.elapsed());
    let (ours, theirs) = (patches() - before, written.load(Ordering::Relaxed) as u64);
    assert!((ours..=ours + 1).contains(&theirs), "{theirs} writes of the other, {ours} of ours");
    // The conflict about Node 1 does not affect other Nodes. After the conflict, the last write to Node 1 is the leader's.
    add(&cluster, 2..=2);
    eventually("another node is labelled", || is_labelled(&cluster, 2));
    eventually("it has the last word", || cluster.label(&id(1), "tier").as_deref() == Some("web"));
}
