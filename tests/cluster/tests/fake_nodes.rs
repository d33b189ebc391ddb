//! Nodes without a machine, beside the real ones: each joins by an identity of its own, registers its Node as a kubelet does, and
//! takes its turn at a change by the protocol of `docs/pacing.md`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::{Method, Request, StatusCode};
use kops_agent_machines::client::{Answer, Client, Server};
use kops_agent_tests::example_store::{CLUSTER, REGION};
use kops_agent_tests::kops_controller::server_name;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::liars::Newcomer;

/// How long a turn may be waited for.
const TIMEOUT: Duration = Duration::from_secs(280);
/// Between two questions for a slot at first, and later at most: less than an agent's, and no more than a server answers.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(6);
/// The type of what is sent.
const JSON: &str = "application/json";

/// A Node without a machine.
pub struct FakeNode {
    /// The instance's id, which is the Node's name.
    pub id: String,
    pub group: &'static str,
    client: Client,
}

impl FakeNode {
    /// One that has joined, and whose Node our controller has labelled.
    pub fn join(cluster: &Cluster, authority: &str, group: &'static str, number: u8) -> FakeNode {
        let id = format!("i-0d3a0c0ffee2000{number:02x}");
        let address = IpAddr::V4(Ipv4Addr::new(10, 99, 1, number));
        cluster.network.add_address(address);
        let newcomer = Newcomer::of_group(cluster, group, &id);
        let asked = Request::post("/bootstrap").header(AUTHORIZATION, newcomer.token());
        let asked = asked.header(CONTENT_TYPE, JSON).body(newcomer.request.clone()).unwrap();
        let anonymous = Client::at(address, authority);
        let (status, answer) = anonymous.ask(&cluster.network, &bootstrap_server(cluster), asked).unwrap();
        assert_eq!(status, StatusCode::OK, "{answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let certificate = answer["Certs"]["kubelet"].as_str().unwrap();
        let client = Client::showing(address, authority, certificate, &newcomer.key);
        let node = FakeNode { id, group, client };
        node.register(cluster);
        node
    }

    fn register(&self, cluster: &Cluster) {
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": self.id, "labels": {"kubernetes.io/hostname": self.id}},
            "spec": {"providerID": format!("aws:///{REGION}a/{}", self.id)},
        });
        let (status, said) = self.ask_api_server(cluster, Method::POST, "/api/v1/nodes", JSON, &node);
        assert_eq!(status, StatusCode::CREATED, "{}: {said}", self.id);
    }

    /// Takes a slot, is unavailable, and lets it go.
    pub fn takes_its_turn(&self, cluster: &Cluster, max_unavailable: u32) {
        self.waits_for_a_slot(cluster, max_unavailable);
        self.set_schedulable(cluster, false);
        self.until_told(cluster, "renew", max_unavailable, true);
        self.set_schedulable(cluster, true);
        self.until_told(cluster, "release", max_unavailable, false);
    }

    /// Takes a slot as soon as there is one.
    pub fn waits_for_a_slot(&self, cluster: &Cluster, max_unavailable: u32) {
        self.until_told(cluster, "acquire", max_unavailable, true);
    }

    /// Asks for this until it is told that it has a slot, or has none.
    fn until_told(&self, cluster: &Cluster, action: &str, max_unavailable: u32, is_granted: bool) {
        let body = json!({"action": action, "maxUnavailable": max_unavailable}).to_string();
        let (begun, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            let asked = Request::post("/slot").header(CONTENT_TYPE, JSON).body(body.clone()).unwrap();
            let (status, said) =
                self.client.ask(&cluster.network, &bootstrap_server(cluster), asked).unwrap();
            match status.as_u16() {
                200 if serde_json::from_str::<Value>(&said).unwrap()["granted"] == is_granted => return,
                // 500 is said where others write the same Lease at the same time.
                200 | 429 | 500 => {}
                _ => panic!("{}: {status} {said}", self.id),
            }
            assert!(
                begun.elapsed() < TIMEOUT,
                "{} asks in vain to {action} a slot: {status} {said}",
                self.id
            );
            thread::sleep(pause);
            pause = (pause * 3 / 2).min(LONGEST_PAUSE);
        }
    }

    fn set_schedulable(&self, cluster: &Cluster, is_schedulable: bool) {
        let patch = json!({"spec": {"unschedulable": (!is_schedulable).then_some(true)}});
        let path = format!("/api/v1/nodes/{}", self.id);
        let kind = "application/merge-patch+json";
        let (status, said) = self.ask_api_server(cluster, Method::PATCH, &path, kind, &patch);
        assert_eq!(status, StatusCode::OK, "{}: {said}", self.id);
    }

    fn ask_api_server(
        &self,
        cluster: &Cluster,
        method: Method,
        path: &str,
        kind: &str,
        body: &Value,
    ) -> Answer {
        let at = SocketAddr::new(cluster.asked().address, 443);
        let server = Server { at, name: format!("api.internal.{CLUSTER}") };
        let asked = Request::builder().method(method).uri(path).header(CONTENT_TYPE, kind);
        self.client.ask(&cluster.network, &server, asked.body(body.to_string()).unwrap()).unwrap()
    }
}

fn bootstrap_server(cluster: &Cluster) -> Server {
    Server { at: SocketAddr::new(cluster.asked().address, 3988), name: server_name() }
}
