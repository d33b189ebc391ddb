//! Benchmark of a rollout to many Nodes. `tests/bench/run rollout` runs it against the binary that ships, and prints the table.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cluster::{GROUP_LABEL, TIMEOUT};
use crate::rollout::{Fleet, OLD, ORDER, OUTCOME, conditions};
use crate::scale::create_objects;

const GROUPS: usize = 10;
/// The share of a group that may change at a time, in percent.
const SHARE: usize = 5;
/// The maximum number of Nodes in all groups that change at a time (`MOST_AT_WORK` of `agent/cluster/src/rollout/turns.rs`).
const MOST_AT_WORK: usize = 500;
/// The time that each Node needs to carry out its order.
const WORK: Duration = Duration::from_secs(2);
/// The promised limits. The first is the rollout's duration, divided by the duration that pacing alone requires. The second is the
/// controller's memory in MiB. The third is the number of API server requests for each Node, without the test's own request
/// that reports the outcome.
const PROMISED: (f64, f64, f64) = (1.2, 64.0, 2.0);

/// The number of Nodes: the value of `KOPS_AGENT_BENCH_NODES`, or 1000.
fn nodes() -> usize {
    std::env::var("KOPS_AGENT_BENCH_NODES").map_or(1000, |nodes| nodes.parse().unwrap())
}

/// `kubectl proxy`, which serves the API server's responses without TLS on loopback.
struct Proxy {
    child: Child,
    address: String,
}

impl Proxy {
    fn start(fleet: &Fleet) -> Proxy {
        let kubectl = format!("{}/kubectl", std::env::var("KUBEBUILDER_ASSETS").unwrap());
        let mut command = Command::new(kubectl);
        command.args(["proxy", "--port=0", "--kubeconfig"]).arg(&fleet.admin).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit(' ').next().unwrap().to_owned();
        Proxy { child, address }
    }

    /// Sends a request. Returns the stream, from which the response can be read.
    fn send(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/strategic-merge-patch+json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        stream
    }

    fn patch_status(&self, node: &str, patch: &Value) {
        let path = format!("/api/v1/nodes/{node}/status");
        let mut answer = String::new();
        self.send("PATCH", &path, &patch.to_string()).read_to_string(&mut answer).unwrap();
        assert!(answer.split(' ').nth(1) == Some("200"), "{answer}");
    }

    /// Makes kubectl end, which closes the streams of all responses.
    fn stop(&self) {
        let id = nix::unistd::Pid::from_raw(self.child.id().try_into().unwrap());
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).unwrap();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends each new order to a Node into the channel `orders`, with the time at which the Node will have carried out the order.
fn watch_orders(proxy: &Proxy, orders: Sender<(Instant, String, Value)>) {
    let watch = BufReader::new(proxy.send("GET", "/api/v1/nodes?watch=true", ""));
    let mut seen = HashSet::new();
    for line in watch.lines() {
        let Ok(line) = line else { return };
        let Ok(event) = serde_json::from_str::<Value>(&line) else { continue };
        let metadata = &event["object"]["metadata"];
        let Some(order) = metadata["annotations"][ORDER].as_str() else { continue };
        let node = metadata["name"].as_str().unwrap().to_owned();
        if seen.insert((node.clone(), order.to_owned())) {
            let order = serde_json::from_str(order).unwrap();
            let _ = orders.send((Instant::now() + WORK, node, order));
        }
    }
}

/// Waits for the end time of each order, and then reports that the Node has carried out the order. All orders take equally long, so the
/// first order ends first.
fn carry_out(proxy: &Proxy, orders: Receiver<(Instant, String, Value)>) {
    for (ends, node, order) in orders {
        thread::sleep(ends.saturating_duration_since(Instant::now()));
        let hash = order["hash"].as_str().unwrap();
        let outcome = json!({
            "rollout": order["rollout"], "attempt": order["attempt"], "hash": hash, "problem": "",
        });
        let patch = json!({
            "metadata": {"annotations": {OUTCOME: outcome.to_string()}},
            "status": {"conditions": conditions(hash)},
        });
        proxy.patch_status(&node, &patch);
    }
}

/// A Node that its kubelet has created. The Node is Ready and has the old configuration.
fn node(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": format!("node-{number}"), "labels": {GROUP_LABEL: format!("g{}", number % GROUPS)}},
        "status": {"conditions": conditions(OLD)},
    })
}

/// The number of requests to the API server for these resources. The API server itself requests other resources, which are not counted.
fn requests(fleet: &Fleet) -> usize {
    ["nodes", "configmaps", "events", "pods", "leases"]
        .iter()
        .flat_map(|resource| {
            ["GET", "LIST", "WATCH", "PATCH", "POST", "PUT", "DELETE"].map(|verb| (resource, verb))
        })
        .map(|(resource, verb)| fleet.cluster.requests(resource, verb))
        .sum()
}

#[test]
#[ignore = "measures: tests/bench/run rollout"]
#[allow(clippy::print_stdout)]
fn measured_rollout() {
    let groups: Vec<String> = (0..GROUPS).map(|number| format!("g{number}")).collect();
    let groups: Vec<(&str, usize)> = groups.iter().map(|group| (group.as_str(), 0)).collect();
    let fleet = Fleet::start(&groups);
    fleet.runs("masters-0", &fleet.current("control-plane", "masters"));
    create_objects(&fleet.cluster, (0..nodes()).map(node).collect());
    let (proxy, watched) = (Proxy::start(&fleet), Proxy::start(&fleet));
    let (sender, orders) = channel();
    let controller = fleet.cluster.controller();
    let (took, calls, questions) = thread::scope(|scope| {
        scope.spawn(|| watch_orders(&watched, sender));
        let answers = scope.spawn(|| carry_out(&proxy, orders));
        let before = (requests(&fleet), fleet.cluster.questions());
        let begun = Instant::now();
        let share = format!("{SHARE}%");
        let (code, said) = fleet.rollout(&["start", "--max-unavailable", &share, "--check-pods-after", "0"]);
        assert_eq!(code, Some(0), "{said}");
        while fleet.phase() != "done" {
            assert!(begun.elapsed() < TIMEOUT && !answers.is_finished(), "{}", fleet.status());
            thread::sleep(Duration::from_millis(250));
        }
        let took = begun.elapsed().as_secs_f64();
        let after = (requests(&fleet), fleet.cluster.questions());
        watched.stop();
        (took, after.0 - before.0, after.1 - before.1)
    });
    let of_group = (nodes() / GROUPS * SHARE / 100).max(1);
    let at_once = (of_group * GROUPS).min(MOST_AT_WORK);
    let alone = WORK.as_secs_f64() * nodes().div_ceil(at_once) as f64;
    let (ratio, memory) = (took / alone, controller.peak_memory());
    // Each Node reports its outcome with one request, which is subtracted.
    let calls = calls as f64 / nodes() as f64 - 1.0;
    let (longest, most, most_calls) = PROMISED;
    println!("| what | measured | at most |\n| --- | ---: | ---: |");
    println!(
        "| seconds until {} Nodes in {GROUPS} groups have followed, {SHARE} % of a group at once, {} s each | {took:.1} | |",
        nodes(),
        WORK.as_secs()
    );
    println!(
        "| the same, as a multiple of what pacing alone takes ({alone:.0} s) | {ratio:.2} | {longest} |"
    );
    println!("| calls of the API server for each Node, without the Node's own | {calls:.1} | {most_calls} |");
    println!("| questions to API servers whether they are ready | {questions} | 0 |");
    println!("| peak memory of the controller, MiB | {memory:.1} | {most} |");
    assert!(ratio <= longest && memory <= most && calls <= most_calls);
    assert_eq!(questions, 0, "only turns of control planes need an answer");
}
