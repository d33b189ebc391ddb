//! Fake Nodes, which have no machines, beside real Nodes. Each joins with its own identity, registers its Node like a kubelet, and takes a
//! disruption slot by the protocol of `docs/pacing.md`. In a rollout, it reports like a machine with `fleet follow`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::{Method, Request, StatusCode};
use kops_agent_machines::client::{Answer, Client, Server};
use kops_agent_tests::example_store::{CLUSTER, REGION};
use kops_agent_tests::kops_controller::server_name;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::cluster::Cluster;
use crate::liars::Newcomer;

/// Maximum time to wait for a slot or a certificate.
const TIMEOUT: Duration = Duration::from_secs(280);
/// The first pause between two requests for a slot. Later pauses grow up to `LONGEST_PAUSE`. An agent makes longer pauses, but the server's
/// rate limit also allows these shorter ones.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(6);
/// The pause between two status reports of a Node. The cluster treats a kubelet as failed after 50 s without a report.
const BETWEEN_REPORTS: Duration = Duration::from_secs(1);
const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";
/// The annotation in which a rollout writes its order to a Node. An order is a command to the node.
pub const ORDER: &str = "kops-agent/follow";
/// The annotation in which a node reports the outcome of the rollout's order.
pub const OUTCOME: &str = "kops-agent/followed";
/// The hash of a configuration that no group has.
pub const OLD: &str = "b2xkIG9sZCBvbGQgb2xkIG9sZCBvbGQgb2xkIG9sZCBvbGQ=";

/// A Node without a machine: the test sends the requests that the agent and kubelet would send.
pub struct FakeNode {
    /// The instance id, which is also the Node's name.
    pub id: String,
    pub group: &'static str,
    client: Client,
}

impl FakeNode {
    /// Like a machine, requests a certificate until the server gives one, and registers the Node.
    pub fn join(cluster: &Cluster, authority: &str, group: &'static str, number: u8) -> FakeNode {
        let id = format!("i-0d3a0c0ffee2000{number:02x}");
        let address = IpAddr::V4(Ipv4Addr::new(10, 99, 1, number));
        cluster.network.add_address(address);
        let newcomer = Newcomer::of_group(cluster, group, &id);
        let certificate = certificate_of(cluster, &Client::at(address, authority), &newcomer);
        let client = Client::showing(address, authority, &certificate, &newcomer.key);
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

    /// Takes a slot, cordons and uncordons the Node, and releases the slot.
    pub fn takes_its_turn(&self, cluster: &Cluster, max_unavailable: u32) {
        self.waits_for_a_slot(cluster, max_unavailable);
        self.set_schedulable(cluster, false);
        self.until_told(cluster, "renew", max_unavailable, true);
        self.set_schedulable(cluster, true);
        self.until_told(cluster, "release", max_unavailable, false);
    }

    /// Repeats the request for a slot until the server grants it.
    pub fn waits_for_a_slot(&self, cluster: &Cluster, max_unavailable: u32) {
        self.until_told(cluster, "acquire", max_unavailable, true);
    }

    /// Repeats the slot request with this `action` until the field `granted` of the response equals `is_granted`.
    fn until_told(&self, cluster: &Cluster, action: &str, max_unavailable: u32, is_granted: bool) {
        let body = json!({"action": action, "maxUnavailable": max_unavailable}).to_string();
        let (begun, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            let asked = Request::post("/slot").header(CONTENT_TYPE, JSON).body(body.clone()).unwrap();
            let answer = self.client.ask(&cluster.network, &bootstrap_server(cluster), asked);
            match &answer {
                Ok((StatusCode::OK, said))
                    if serde_json::from_str::<Value>(said).unwrap()["granted"] == is_granted =>
                {
                    return;
                }
                // The server responds with 500 if two clients write the Lease at the same time. Like an agent, this loop retries after such
                // a response and after a broken connection.
                Ok((
                    StatusCode::OK | StatusCode::TOO_MANY_REQUESTS | StatusCode::INTERNAL_SERVER_ERROR,
                    _,
                ))
                | Err(_) => {}
                Ok(refused) => panic!("{}: {refused:?}", self.id),
            }
            assert!(begun.elapsed() < TIMEOUT, "{} asks in vain to {action} a slot: {answer:?}", self.id);
            thread::sleep(pause);
            pause = (pause * 3 / 2).min(LONGEST_PAUSE);
        }
    }

    fn set_schedulable(&self, cluster: &Cluster, is_schedulable: bool) {
        let patch = json!({"spec": {"unschedulable": (!is_schedulable).then_some(true)}});
        let (status, said) = self.patch(cluster, &self.id, &patch).unwrap();
        assert_eq!(status, StatusCode::OK, "{}: {said}", self.id);
    }

    /// Patches `node`, authenticated as this fake Node. `None` if the API server does not answer.
    pub fn patch(&self, cluster: &Cluster, node: &str, patch: &Value) -> Option<Answer> {
        self.try_api_server(cluster, Method::PATCH, &format!("/api/v1/nodes/{node}"), MERGE_PATCH, patch)
    }

    /// Reports that the Node is Ready and has converged to the configuration with this hash. `None` if the API server does not answer.
    pub fn reports(&self, cluster: &Cluster, hash: &str) -> Option<Answer> {
        let conditions = json!([
            {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now()},
            {"type": "KopsConfigured", "status": "True", "reason": "Converged", "message": format!("configuration {hash}")},
        ]);
        let patch = json!({"status": {"conditions": conditions}});
        let path = format!("/api/v1/nodes/{}/status", self.id);
        let kind = "application/strategic-merge-patch+json";
        self.try_api_server(cluster, Method::PATCH, &path, kind, &patch)
    }

    /// The order in this Node's annotation. `None` if the Node has no order, or if the API server does not answer.
    pub fn order(&self, cluster: &Cluster) -> Option<Value> {
        let path = format!("/api/v1/nodes/{}", self.id);
        let (_, node) = self.try_api_server(cluster, Method::GET, &path, JSON, &Value::Null)?;
        let node: Value = serde_json::from_str(&node).ok()?;
        serde_json::from_str(node["metadata"]["annotations"][ORDER].as_str()?).ok()
    }

    /// Acts like a healthy machine. If the Node has an order, reports that the order was carried out.
    pub fn obeys(&self, cluster: &Cluster) {
        let order = self.order(cluster);
        let hash = order.as_ref().and_then(|order| order["hash"].as_str());
        // The API server does not answer while the control plane changes. In this case, the next call reports the outcome.
        if self.reports(cluster, hash.unwrap_or(OLD)).is_some()
            && let Some(order) = &order
        {
            drop(self.answers(cluster, &outcome(order, "")));
        }
    }

    /// Writes this outcome into the Node. `None` if the API server does not answer.
    pub fn answers(&self, cluster: &Cluster, outcome: &Value) -> Option<Answer> {
        let patch = json!({"metadata": {"annotations": {OUTCOME: outcome.to_string()}}});
        self.patch(cluster, &self.id, &patch)
    }

    fn ask_api_server(
        &self,
        cluster: &Cluster,
        method: Method,
        path: &str,
        kind: &str,
        body: &Value,
    ) -> Answer {
        self.try_api_server(cluster, method, path, kind, body).unwrap()
    }

    fn try_api_server(
        &self,
        cluster: &Cluster,
        method: Method,
        path: &str,
        kind: &str,
        body: &Value,
    ) -> Option<Answer> {
        let at = SocketAddr::new(cluster.asked().address, 443);
        let server = Server { at, name: format!("api.internal.{CLUSTER}") };
        let asked = Request::builder().method(method).uri(path).header(CONTENT_TYPE, kind);
        self.client.ask(&cluster.network, &server, asked.body(body.to_string()).unwrap()).ok()
    }
}

/// The outcome of an order. `problem` is empty if the node carried out the order.
pub fn outcome(order: &Value, problem: &str) -> Value {
    json!({
        "rollout": order["rollout"], "attempt": order["attempt"], "hash": order["hash"], "problem": problem,
    })
}

/// The order in a Node's annotation. `None` if the Node has no order, or if the API server does not answer.
pub fn order(cluster: &Cluster, node: &str) -> Option<Value> {
    let path = format!("--output=jsonpath={{.metadata.annotations.{ORDER}}}");
    serde_json::from_str(&cluster.kubectl(&["get", "node", node, &path])?).ok()
}

/// Runs `scene`. Meanwhile, a thread for each fake Node calls `acts` repeatedly.
pub fn at_work<T>(fakes: &[FakeNode], acts: impl Fn(&FakeNode) + Sync, scene: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        // If the scene panics, the threads must end, too. Otherwise the scope would wait for them forever.
        let _ends = Ends(&is_over);
        for fake in fakes {
            let (acts, is_over) = (&acts, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    acts(fake);
                    thread::sleep(BETWEEN_REPORTS);
                }
            });
        }
        scene()
    })
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn now() -> String {
    OffsetDateTime::now_utc().replace_nanosecond(0).unwrap().format(&Rfc3339).unwrap()
}

fn certificate_of(cluster: &Cluster, client: &Client, newcomer: &Newcomer) -> String {
    let begun = Instant::now();
    loop {
        let asked = Request::post("/bootstrap").header(AUTHORIZATION, newcomer.token());
        let asked = asked.header(CONTENT_TYPE, JSON).body(newcomer.request.clone()).unwrap();
        let answer = client.ask(&cluster.network, &bootstrap_server(cluster), asked);
        if let Ok((StatusCode::OK, certificates)) = &answer {
            let certificates: Value = serde_json::from_str(certificates).unwrap();
            return certificates["Certs"]["kubelet"].as_str().unwrap().to_owned();
        }
        assert!(begun.elapsed() < TIMEOUT, "no certificate is given: {answer:?}");
        // The server accepts a token only once. Two tokens from the same second are equal. So the next request waits one second.
        thread::sleep(FIRST_PAUSE);
    }
}

/// Waits until our controller has labelled the Nodes of all fakes.
pub fn are_labelled(cluster: &Cluster, fakes: &[FakeNode]) {
    cluster.control_plane().until("the Nodes are of their groups", || {
        let said = cluster.kubectl(&["get", "nodes", "--output=json"])?;
        let nodes: Value = serde_json::from_str(&said).unwrap();
        let of_its_group = |fake: &FakeNode| {
            nodes["items"].as_array().unwrap().iter().any(|node| {
                node["metadata"]["name"] == fake.id.as_str()
                    && node["metadata"]["labels"]["kops.k8s.io/instancegroup"] == fake.group
            })
        };
        fakes.iter().all(of_its_group).then_some(())
    });
}

/// Removes the Nodes of the fakes, and their instances in the cloud.
pub fn leave(cluster: &Cluster, fakes: &[FakeNode]) {
    for fake in fakes {
        cluster.world.ec2.remove(&fake.id);
    }
    let ids = fakes.iter().map(|fake| fake.id.as_str());
    cluster.run_kubectl(&["delete", "node"].into_iter().chain(ids).collect::<Vec<_>>());
}

fn bootstrap_server(cluster: &Cluster) -> Server {
    Server { at: SocketAddr::new(cluster.asked().address, 3988), name: server_name() }
}
