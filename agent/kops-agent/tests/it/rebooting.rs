//! A node carries out the order of a rollout that reboots it, once.

#![allow(clippy::unwrap_used)]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use kops_agent_tests::example_store::NODES;
use serde_json::{Value, json};

use crate::example::api_server::ApiServer;
use crate::example::worker::NODE;
use crate::example::{self, Machine};
use crate::fleet_plan::point_to;
use crate::superseded::{pinned, read};

/// The boot ID of a scratch root.
const BOOT_ID: &str = "recorded";
const REQUESTS: &str = "var/lib/kops-agent/recorded/requests.txt";

/// A server with this machine's Node, which is Ready in this boot and has an order for the boot `ordered`.
fn server(ordered: &str) -> ApiServer {
    let order = json!({
        "rollout": "r-1", "attempt": 1, "hash": "rebooted", "drain": "always", "maxUnavailable": 1, "bootID": ordered,
        "at": "2026-11-29T00:00:00Z",
    });
    ApiServer::with_nodes(vec![json!({
        "apiVersion": "v1", "kind": "Node", "spec": {},
        "metadata": {"name": NODE, "annotations": {"kops-agent/follow": order.to_string()}},
        "status": {"nodeInfo": {"bootID": BOOT_ID}, "conditions": [{"type": "Ready", "status": "True"}]},
    })])
}

/// A process that ends with the test.
struct Following(Child);

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn follow(machine: &Machine, server: &ApiServer) -> Following {
    point_to(machine, server);
    let mut agent = Command::new(example::agent());
    agent.env_clear().stdin(Stdio::null()).stderr(Stdio::null()).args(["fleet", "follow", "--root"]);
    Following(agent.arg(machine.root()).spawn().unwrap())
}

fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(300), "not in time: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn reboots(machine: &Machine) -> usize {
    read(machine, REQUESTS).matches("systemd: reboot").count()
}

/// The outcome that the node has written into its Node; null if there is none.
fn outcome(server: &ApiServer) -> Value {
    let mut stream = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    write!(stream, "GET /api/v1/nodes/{NODE} HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let node: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let outcome = node["metadata"]["annotations"]["kops-agent/followed"].as_str();
    outcome.map_or(Value::Null, |outcome| serde_json::from_str(outcome).unwrap())
}

#[test]
fn an_order_reboots_the_boot_that_it_names_and_no_other() {
    let (node, _) = pinned(NODES, "node");
    let before = server(BOOT_ID);
    {
        let _following = follow(&node, &before);
        eventually("the node reboots", || reboots(&node) == 1);
    }
    assert_eq!(outcome(&before), Value::Null, "the boot has not ended");

    // The machine has rebooted since: another boot is named.
    let after = server("an earlier boot");
    let _following = follow(&node, &after);
    eventually("the node answers", || !outcome(&after).is_null());
    assert_eq!(outcome(&after)["problem"], "");
    assert_eq!(reboots(&node), 1);
}
