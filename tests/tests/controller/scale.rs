//! Benchmarks of the controller's cost with many Nodes, on each cloud. `tests/bench/run controller` runs them against the
//! binary that ships, and prints the tables. Ordinary test runs do not judge these times.

use std::thread;
use std::time::{Duration, Instant};

use kops_agent_tests::ec2::Instance;
use serde_json::json;

use crate::clouds::{Aws, Ground, Lot, for_each_cloud};
use crate::cluster::{CLUSTER, Cluster, GROUP_LABEL, eventually, id};
use crate::controller::Controller;

/// The number of concurrent kubectl processes that create objects. Several are needed, because each process throttles itself.
const HANDS: usize = 8;
const NEW_NODES: usize = 9;
/// The number of requests that a cloud may get in addition to the minimum. EC2 gets an additional request if the first batch of Nodes is
/// incomplete. Nova gets an additional request for the page after the last full page, because no page is marked as the last. If a list
/// expires before all Nodes are labelled, the controller requests the list again. On Azure, this is the list of scale sets. On metal, it is
/// the list of `Host` objects.
const ONE_MORE: usize = 1;
/// The controller labels a large number of Nodes in several batches. So the benchmark allows one more request to the cloud for each
/// multiple of this number of Nodes.
const NODES_OF_ONE_MORE: usize = 4000;
/// The promised limits for up to 5000 Nodes, and for 20,000 Nodes on AWS. The first number is the seconds until all Nodes are labelled.
/// The second is the controller's memory in MiB.
const PROMISED: [f64; 2] = [60.0, 64.0];
const PROMISED_OF_20_000: [f64; 2] = [20.0, 96.0];
/// The time for which the benchmark observes the controller while nothing changes.
const CALM: Duration = Duration::from_secs(60);

/// The number of Nodes: the value of `KOPS_AGENT_BENCH_NODES`, or 5000.
fn nodes() -> u32 {
    std::env::var("KOPS_AGENT_BENCH_NODES").map_or(5000, |nodes| nodes.parse().unwrap())
}

fn lots() -> Vec<Lot> {
    (1..=nodes()).map(Lot::numbered).collect()
}

/// Creates machines, and their Nodes with provider IDs.
fn create<G: Ground>(ground: &G, cluster: &Cluster, lots: &[Lot]) {
    for lot in lots {
        if ground.group(*lot) != "nodes" {
            cluster.apply_group(&ground.group(*lot), "tier: web");
        }
    }
    ground.create_all(cluster, lots);
    let nodes = lots.iter().map(|lot| Cluster::node_saying(&ground.node(*lot), &ground.provider_id(*lot)));
    create_objects(cluster, nodes.collect());
}

/// Creates objects with several kubectl processes in parallel.
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

/// Measures the controller on a cloud, and prints the results as a table row. Returns the cloud, the cluster and the controller.
#[allow(clippy::print_stdout)]
fn measure<G: Ground>() -> (G, Cluster, Controller) {
    let ground = G::start();
    let cluster = ground.cluster();
    let count = nodes() as usize;
    create(&ground, &cluster, &lots());
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
    let more = ONE_MORE.max(count / NODES_OF_ONE_MORE);
    assert!(calls <= fewest + more, "{calls} calls where {fewest} can tell all");
    let [longest, most] = if count > 5000 && G::NAME == "aws" { PROMISED_OF_20_000 } else { PROMISED };
    assert!(labelled <= longest && memory <= most && patched == 0 && asked <= 1);
    (ground, cluster, controller)
}

/// The names of all benchmarks begin with `measured_`, because `tests/controller/run` skips tests with this prefix.
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

/// On AWS, the pods of each Node get the IPv6 prefix of its instance. The prefix needs no additional request: it is in the EC2 response
/// with which the controller identifies the Node.
#[test]
#[ignore = "measures: tests/bench/run controller"]
#[allow(clippy::print_stdout)]
fn measured_pod_ranges() {
    let ground = Aws::start();
    let cluster = ground.cluster();
    cluster.configure_with(None, &json!({"enableCloudIPAM": true}));
    let (lots, count) = (lots(), nodes() as usize);
    create(&ground, &cluster, &lots);
    for lot in &lots {
        let prefix = format!("2001:db8:0:{:x}:1::/80", lot.number);
        let instance = Instance::of_group(CLUSTER, "nodes").with_ipv6_prefixes(&[&prefix]);
        cluster.ec2.put(&ground.node(*lot), instance);
    }
    let before = ground.calls(&cluster);
    let begun = Instant::now();
    let controller = cluster.controller();
    while patches(&controller) < count {
        thread::sleep(Duration::from_millis(100));
    }
    let took = begun.elapsed().as_secs_f64();
    let (calls, memory) = (ground.calls(&cluster) - before, controller.peak_memory());
    let ranges =
        cluster.kubectl(&["get", "nodes", "-o", "jsonpath={range .items[*]}{.spec.podCIDR}{'\\n'}{end}"]);
    let with_ranges = ranges.lines().filter(|range| range.starts_with("2001:db8:0:")).count();
    assert_eq!((with_ranges, patches(&controller)), (count, count), "labels and ranges are one patch");
    println!("| Nodes that get a range for their pods, with their labels | calls of EC2 | seconds | MiB |");
    println!("| ---: | ---: | ---: | ---: |\n| {count} | {calls} | {took:.1} | {memory:.1} |");
    let most = Aws::fewest_calls(count) + ONE_MORE.max(count / NODES_OF_ONE_MORE);
    assert!(calls <= most, "{calls} calls where {most} are enough");
    let [longest, most] = PROMISED;
    assert!(took <= longest && memory <= most);
}

/// The seconds from the time at which the Node gets its provider ID to the time at which it has its group label.
fn until_labelled(cluster: &Cluster, number: usize) -> f64 {
    let name = id(number);
    cluster.ec2.put(&name, Instance::of_group(CLUSTER, "nodes"));
    cluster.create_node(&name, None);
    cluster.patch_node(&name, &format!(r#"{{"spec": {{"providerID": "aws:///us-test-1a/{name}"}}}}"#));
    let said = Instant::now();
    eventually("a new node is labelled", || cluster.label(&name, GROUP_LABEL).is_some());
    said.elapsed().as_secs_f64()
}

/// Measures how fast a new Node is labelled on AWS, where the controller can look up a single new instance.
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
