//! What the controller costs where there are many Nodes: measured, not judged by the clock of a test.
//! `tests/bench/run controller` runs this against the binary that ships, and prints the table.

use std::thread;
use std::time::{Duration, Instant};

use kops_agent_tests::ec2::Instance;
use serde_json::json;

use crate::cluster::{CLUSTER, Cluster, Controller, GROUP_LABEL, eventually, id};

const NODES: usize = 5000;
/// How many kubectls create them: each of them holds back.
const HANDS: usize = 8;
const NEW_NODES: usize = 9;

fn nodes() -> Instance {
    Instance::of_group(CLUSTER, "nodes")
}

/// Creates Nodes that say which instance they are.
fn create_nodes(cluster: &Cluster, numbers: std::ops::Range<usize>) {
    let hands = numbers.len().div_ceil(HANDS);
    thread::scope(|scope| {
        for hand in numbers.collect::<Vec<_>>().chunks(hands) {
            let items: Vec<_> =
                hand.iter().map(|number| Cluster::node(&id(*number), Some(&id(*number)))).collect();
            let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
            scope.spawn(move || cluster.api.kubectl(&["create", "-f", "-"], &list).unwrap());
        }
    });
}

fn patches(controller: &Controller) -> usize {
    let metrics = controller.get("/metrics");
    let line = metrics.lines().find(|line| line.starts_with("kops_agent_node_patches_total "));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

/// Seconds until a Node has its group after it has said which instance it is.
fn until_labelled(cluster: &Cluster, number: usize) -> f64 {
    let name = id(number);
    cluster.ec2.put(&name, nodes());
    cluster.create_node(&name, None);
    cluster.patch_node(&name, &format!(r#"{{"spec": {{"providerID": "aws:///us-test-1a/{name}"}}}}"#));
    let said = Instant::now();
    eventually("a new node is labelled", || cluster.label(&name, GROUP_LABEL).is_some());
    said.elapsed().as_secs_f64()
}

#[test]
#[ignore = "measures: tests/bench/run controller"]
#[allow(clippy::print_stdout)]
fn measured_5000_nodes() {
    let cluster = Cluster::start();
    (0..NODES).for_each(|number| cluster.ec2.put(&id(number), nodes()));
    create_nodes(&cluster, 0..NODES);

    let begun = Instant::now();
    let controller = cluster.controller();
    while patches(&controller) < NODES {
        thread::sleep(Duration::from_millis(100));
    }
    let labelled = begun.elapsed().as_secs_f64();
    let calls = cluster.ec2.calls().len();
    let unlabelled = cluster.kubectl(&["get", "nodes", "-o", "name", "-l", &format!("{GROUP_LABEL}!=nodes")]);
    assert_eq!(unlabelled, "");

    let (patches_before, calls_before) = (patches(&controller), cluster.ec2.calls().len());
    thread::sleep(Duration::from_secs(60));
    let (writes, asked) = (patches(&controller) - patches_before, cluster.ec2.calls().len() - calls_before);

    let mut new: Vec<f64> =
        (NODES..NODES + NEW_NODES).map(|number| until_labelled(&cluster, number)).collect();
    new.sort_by(f64::total_cmp);
    println!("| what | measured | at most |");
    println!("| --- | --- | --- |");
    println!("| calls of EC2 for {NODES} nodes without labels | {calls} | 10 |");
    println!("| seconds until all are labelled, the API server beside it | {labelled:.1} | 60 |");
    println!("| peak memory of the controller, MiB | {:.1} | 64 |", controller.peak_memory());
    println!("| writes within a minute in which nothing changes | {writes} | 0 |");
    println!("| calls of EC2 in that minute (the store: one listing) | {asked} | 0 |");
    println!(
        "| seconds until a new node is labelled, kubectl's own time in it: median, longest of {NEW_NODES} | {:.2}, {:.2} | 1 |",
        new[NEW_NODES / 2],
        new[NEW_NODES - 1]
    );
    assert!(calls <= 10 && labelled <= 60.0 && controller.peak_memory() <= 64.0);
    assert!(writes == 0 && asked <= 1 && new[NEW_NODES - 1] <= 1.0);
}
