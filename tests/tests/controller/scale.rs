//! What the controller costs where there are many Nodes, on each cloud: measured, not judged by the clock of a test.
//! `tests/bench/run controller` runs this against the binary that ships, and prints the tables.

use std::thread;
use std::time::{Duration, Instant};

use kops_agent_tests::ec2::Instance;
use serde_json::json;

use crate::clouds::{Aws, Ground, Lot, for_each_cloud};
use crate::cluster::{CLUSTER, Cluster, Controller, GROUP_LABEL, eventually, id};

/// How many kubectls create objects: each of them holds back.
const HANDS: usize = 8;
const NEW_NODES: usize = 9;
/// What a cloud may be asked besides the fewest questions that tell all: EC2 where the Nodes come in time for no more than a part of the
/// first batch, Nova for the page behind the last full one, since no page says that it is the last, and Azure for the names of its
/// scale sets and the API server for its `Host` objects again where labelling takes longer than a list of them is believed.
const ONE_MORE: usize = 1;
/// For so long nothing changes.
const CALM: Duration = Duration::from_secs(60);

/// How many Nodes there are: 5000, or what the environment says.
fn nodes() -> u32 {
    std::env::var("KOPS_AGENT_BENCH_NODES").map_or(5000, |nodes| nodes.parse().unwrap())
}

/// Creates machines, and Nodes that say which of them they are.
fn create<G: Ground>(ground: &G, cluster: &Cluster, count: u32) {
    let lots: Vec<Lot> = (1..=count).map(Lot::numbered).collect();
    for lot in &lots {
        if ground.group(*lot) != "nodes" {
            cluster.apply_group(&ground.group(*lot), "tier: web");
        }
    }
    ground.create_all(cluster, &lots);
    let nodes = lots.iter().map(|lot| Cluster::node_saying(&ground.node(*lot), &ground.provider_id(*lot)));
    create_objects(cluster, nodes.collect());
}

/// Creates objects, many at a time.
pub fn create_objects(cluster: &Cluster, objects: Vec<serde_json::Value>) {
    thread::scope(|scope| {
        for of_hand in objects.chunks(objects.len().div_ceil(HANDS).max(1)) {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": of_hand}).to_string();
            scope.spawn(move || cluster.api.kubectl(&["create", "-f", "-"], &list).unwrap());
        }
    });
}

fn patches(controller: &Controller) -> usize {
    let metrics = controller.get("/metrics");
    let line = metrics.lines().find(|line| line.starts_with("kops_agent_node_patches_total "));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

/// Prints a row of the table of all clouds, and gives what it was measured with.
#[allow(clippy::print_stdout)]
fn measure<G: Ground>() -> (G, Cluster, Controller) {
    let ground = G::start();
    let cluster = ground.cluster();
    let count = nodes() as usize;
    create(&ground, &cluster, nodes());
    let before = ground.calls(&cluster);

    let begun = Instant::now();
    let controller = cluster.controller();
    while patches(&controller) < count {
        thread::sleep(Duration::from_millis(100));
    }
    let labelled = begun.elapsed().as_secs_f64();
    let calls = ground.calls(&cluster) - before;
    let unlabelled = cluster.kubectl(&["get", "nodes", "-o", "name", "-l", &format!("!{GROUP_LABEL}")]);
    assert_eq!(unlabelled, "");

    let (patched, asked) = (patches(&controller), ground.calls(&cluster));
    thread::sleep(CALM);
    let (patched, asked) = (patches(&controller) - patched, ground.calls(&cluster) - asked);
    let (fewest, memory) = (G::fewest_calls(count), controller.peak_memory());
    println!(
        "| {} | {count} | {calls} | {fewest} | {labelled:.1} | {memory:.1} | {patched} | {asked} |",
        G::NAME
    );
    assert!(calls <= fewest + ONE_MORE, "{calls} calls where {fewest} can tell all");
    assert!(labelled <= 60.0 && memory <= 64.0 && patched == 0 && asked <= 1);
    (ground, cluster, controller)
}

/// The names have what the measured ones have in common.
mod measured_nodes {
    use super::{for_each_cloud, measure};

    macro_rules! each_cloud {
        ($($name:ident: $ground:ty),*) => {
            $(#[test]
            #[ignore = "measures: tests/bench/run controller"]
            fn $name() {
                measure::<$ground>();
            })*
        };
    }
    for_each_cloud!(each_cloud);
}

/// Seconds until a Node has its group after it has said which instance it is.
fn until_labelled(cluster: &Cluster, number: usize) -> f64 {
    let name = id(number);
    cluster.ec2.put(&name, Instance::of_group(CLUSTER, "nodes"));
    cluster.create_node(&name, None);
    cluster.patch_node(&name, &format!(r#"{{"spec": {{"providerID": "aws:///us-test-1a/{name}"}}}}"#));
    let said = Instant::now();
    eventually("a new node is labelled", || cluster.label(&name, GROUP_LABEL).is_some());
    said.elapsed().as_secs_f64()
}

/// On AWS, where an instance that is new can be asked for by itself.
#[test]
#[ignore = "measures: tests/bench/run controller"]
#[allow(clippy::print_stdout)]
fn measured_new_nodes() {
    let (_ground, cluster, _controller) = measure::<Aws>();
    let first = nodes() as usize + 1;
    let mut new: Vec<f64> =
        (first..first + NEW_NODES).map(|number| until_labelled(&cluster, number)).collect();
    new.sort_by(f64::total_cmp);
    println!("| what | measured | at most |\n| --- | --- | --- |");
    println!(
        "| seconds until a new node is labelled on AWS, kubectl's own time in it: median, longest of {NEW_NODES} | {:.2}, {:.2} | 1 |",
        new[NEW_NODES / 2],
        new[NEW_NODES - 1]
    );
    assert!(new[NEW_NODES - 1] <= 1.0);
}
