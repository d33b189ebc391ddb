//! A node executes a rollout's order to reboot, and executes it only once.

#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use kops_agent_tests::example_store::NODES;
use kops_agent_tests::polling::eventually;
use serde_json::{Value, json};

use crate::example::api_server::ApiServer;
use crate::example::worker::NODE;
use crate::example::{self, Machine};
use crate::fleet_plan::point_to;
use crate::superseded::{pinned, read};

/// The boot ID of a scratch root before its first reboot.
const BOOT_ID: &str = "recorded";
const NEVER: &str = "9999-01-01T00:00:00Z";
const REQUESTS: &str = "var/lib/kops-agent/recorded/requests.txt";
const STATE: &str = "var/lib/kops-agent/recorded/state.json";

/// An order to reboot from the boot `BOOT_ID`. The order is valid until `until`.
fn order(rollout: &str, until: &str) -> String {
    json!({
        "rollout": rollout, "attempt": 1, "hash": "rebooted", "drain": "always", "maxUnavailable": 1, "bootID": BOOT_ID,
        "at": "2026-11-29T00:00:00Z", "until": until,
    })
    .to_string()
}

/// A server with the Node of this machine. The Node is Ready in its first boot, and its annotation has the order `order`.
fn server(order: &str) -> ApiServer {
    ApiServer::with_nodes(vec![json!({
        "apiVersion": "v1", "kind": "Node", "spec": {},
        "metadata": {"name": NODE, "annotations": {"kops-agent/follow": order}},
        "status": {"nodeInfo": {"bootID": BOOT_ID}, "conditions": [{"type": "Ready", "status": "True"}]},
    })])
}

/// A process that is killed when the test ends.
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
    agent.env_clear().stdin(Stdio::null()).stderr(Stdio::piped()).args(["fleet", "follow", "--root"]);
    Following(agent.arg(machine.root()).spawn().unwrap())
}

fn reboots(machine: &Machine) -> usize {
    read(machine, REQUESTS).matches("systemd: reboot").count()
}

/// Whether the state file of the scratch root contains a reboot. The request to reboot is written earlier, into another
/// file.
fn is_in_another_boot(machine: &Machine) -> bool {
    let state: Value = serde_json::from_str(&read(machine, STATE)).unwrap();
    state["reboots"].as_u64().is_some_and(|reboots| reboots > 0)
}

/// Sends a request about the machine's Node to the server, and returns the Node. `PATCH` sets the annotations.
fn ask(server: &ApiServer, method: &str, annotations: &Value) -> Value {
    let mut stream = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    let body = json!({"metadata": {"annotations": annotations}}).to_string();
    let length = body.len();
    write!(stream, "{method} /api/v1/nodes/{NODE} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

fn annotations(server: &ApiServer) -> Value {
    ask(server, "GET", &json!({}))["metadata"]["annotations"].clone()
}

/// The outcome that the node has written into its Node. Null if there is none.
fn outcome(server: &ApiServer) -> Value {
    let annotations = annotations(server);
    let outcome = annotations["kops-agent/followed"].as_str();
    outcome.map_or(Value::Null, |outcome| serde_json::from_str(outcome).unwrap())
}

#[test]
fn an_order_drains_and_reboots_the_boot_that_it_names_once() {
    let (node, _) = pinned(NODES, "node");
    let server = server(&order("r-1", NEVER));
    {
        let _following = follow(&node, &server);
        eventually("the node reboots", || is_in_another_boot(&node));
    }
    assert_eq!(outcome(&server), Value::Null, "the node has not come back");
    assert!(annotations(&server)["kops-agent/cordoned-since"].is_string(), "{}", annotations(&server));

    let _following = follow(&node, &server);
    eventually("the node answers", || !outcome(&server).is_null());
    assert_eq!(outcome(&server)["problem"], "");
    assert_eq!(reboots(&node), 1);
}

#[test]
fn an_order_that_has_expired_reboots_nothing() {
    let (node, _) = pinned(NODES, "node");
    for (rollout, until) in [("r-1", "2026-11-29T01:00:00Z"), ("r-2", "")] {
        let server = server(&order(rollout, until));
        let _following = follow(&node, &server);
        eventually("the node answers", || !outcome(&server).is_null());
        let problem = outcome(&server)["problem"].as_str().unwrap().to_owned();
        assert!(problem.starts_with("the order to reboot has "), "{problem}");
        assert!(annotations(&server)["kops-agent/cordoned-since"].is_null());
    }
    assert_eq!(reboots(&node), 0);
}

#[test]
fn an_order_that_is_withdrawn_while_its_node_waits_reboots_nothing() {
    let (node, _) = pinned(NODES, "node");
    let server = server(&order("r-1", NEVER));
    let run = File::create(node.root().join("var/lib/kops-agent/lock")).unwrap();
    run.lock().unwrap();
    let mut following = follow(&node, &server);
    let mut said = BufReader::new(following.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(said.any(|line| line.contains("waiting for another run")), "it does not wait");
    ask(&server, "PATCH", &json!({"kops-agent/follow": null}));
    drop(run);
    assert!(said.any(|line| line.contains("the order was withdrawn")), "it does not read its Node again");
    assert_eq!((reboots(&node), outcome(&server)), (0, Value::Null));
    assert!(annotations(&server)["kops-agent/cordoned-since"].is_null());
}
