//! The node controller against an API server and EC2 on loopback. The API server stores Nodes; its `Mood` decides how it
//! behaves.

#![allow(clippy::unwrap_used)]

mod impostors;
mod left_out;
mod outage;
mod pod_ranges;

use std::convert::Infallible;
use std::fs;
use std::sync::atomic::AtomicUsize;

use futures_util::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::Method;
use hyper::body::{Bytes, Frame, Incoming};
use hyper::{Request, Response};
use kops_agent_cluster::identity::aws::{AwsCluster, CLUSTER_TAG, INSTANCE_GROUP_TAG};
use kube::{Client, Config};
use s3s::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::*;
use kops_agent_cloud::aws::ec2::Ec2;
use kops_agent_cloud::aws::identify::AwsControlPlane;
use kops_agent_cloud::aws::instances::Instances;
use kops_agent_cloud::calls::CloudCalls;
use kops_agent_store::Store;
use kops_agent_tests::test_server::{Answer, TestServer, text};

const NAME: &str = "i-00000000000000001";
/// A pod range that the API server rejects.
const REFUSED_RANGE: &str = "2001:db8:bad::/80";
const GROUP_LABEL: &str = "kops.k8s.io/instancegroup";
/// A valid label that a policy of the API server rejects.
const REFUSED_LABEL: &str = "refused-by-policy";
/// A timeout that is longer than any wait in these tests.
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Good,
    /// Another controller undoes each patch.
    Undoing,
    /// The API server stores another version of each Node than it reports to clients.
    Outdated,
    /// The API server holds each patch until another process may have the Lease, and then applies it.
    Holding,
    /// The API server does not answer the first list.
    Silent,
}

/// A fake API server that serves Nodes.
struct Api {
    mood: Mood,
    state: Mutex<State>,
    lists: AtomicUsize,
    /// Sends true if a held patch was applied, or false if its connection was closed.
    held: UnboundedSender<bool>,
}

#[derive(Default)]
struct State {
    nodes: BTreeMap<String, Value>,
    version: u64,
    /// All events of the watch, each with its resource version.
    history: Vec<(u64, Value)>,
    watchers: Vec<UnboundedSender<Value>>,
    patches: Vec<Instant>,
    events: Vec<Value>,
}

impl State {
    fn put(&mut self, name: &str, labels: Value) {
        self.put_saying(name, name, labels);
    }

    /// Stores a Node whose providerID names this instance.
    fn put_saying(&mut self, name: &str, instance: &str, labels: Value) {
        self.version += 1;
        let kind = if self.nodes.contains_key(name) { "MODIFIED" } else { "ADDED" };
        let ranges = self.nodes.get(name).map(|node| node["spec"]["podCIDRs"].clone());
        let ranges = ranges.filter(Value::is_array).unwrap_or_else(|| json!([]));
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "resourceVersion": self.version.to_string(), "labels": labels},
            "spec": {"providerID": format!("aws:///us-test-1a/{instance}"), "podCIDRs": ranges}
        });
        self.nodes.insert(name.to_owned(), node.clone());
        let event = json!({"type": kind, "object": node});
        self.watchers.retain(|watcher| watcher.send(event.clone()).is_ok());
        self.history.push((self.version, event));
    }

    fn patch(&mut self, name: &str, patch: &Value) -> Answer {
        self.patches.push(Instant::now());
        let mut labels = self.nodes[name]["metadata"]["labels"].clone();
        if patch["metadata"]["resourceVersion"] != self.nodes[name]["metadata"]["resourceVersion"] {
            return conflict();
        }
        if let Some(ranges) = patch["spec"].get("podCIDRs") {
            let (node, first) = (self.nodes.get_mut(name).unwrap(), &patch["spec"]["podCIDR"]);
            let has_none = node["spec"]["podCIDRs"] == json!([]);
            // The API server accepts pod ranges only once, and only if `podCIDR` is the first of `podCIDRs`.
            if !has_none || *first != ranges[0] || first == REFUSED_RANGE {
                return Ok(json_text(422, &status(422, "Invalid", "spec.podCIDRs: Forbidden")));
            }
            node["spec"]["podCIDRs"] = ranges.clone();
        }
        let patched = patch["metadata"]["labels"].as_object().into_iter().flatten();
        if patched.clone().any(|(key, value)| key == REFUSED_LABEL || value == "data platform") {
            let message =
                "ValidatingAdmissionPolicy 'labels' with binding 'labels' denied request: no such label";
            return Ok(json_text(403, &status(403, "Forbidden", message)));
        }
        for (key, value) in patched {
            match value {
                Value::Null => drop(labels.as_object_mut().unwrap().remove(key)),
                value => labels[key] = value.clone(),
            }
        }
        let provider_id = self.nodes[name]["spec"]["providerID"].as_str().unwrap().to_owned();
        self.put_saying(name, provider_id.rsplit('/').next().unwrap(), labels);
        Ok(json_text(200, &self.nodes[name]))
    }
}

impl Api {
    fn state(&self) -> parking_lot::MutexGuard<'_, State> {
        self.state.lock()
    }

    async fn answer(self: Arc<Api>, request: Request<Incoming>) -> Answer {
        let (parts, body) = request.into_parts();
        let query = parts.uri.query().unwrap_or_default().as_bytes();
        let query: BTreeMap<String, String> = form_urlencoded::parse(query).into_owned().collect();
        match parts.uri.path().strip_prefix("/api/v1/nodes") {
            Some("") if query.contains_key("watch") => {
                Ok(self.watch(query["resourceVersion"].parse().unwrap()))
            }
            Some("") => self.list().await,
            Some(name) if parts.method == Method::PATCH => {
                let patch = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
                self.patch(&name[1..], &patch).await
            }
            None if parts.method == Method::POST && parts.uri.path().ends_with("/events") => {
                let event: Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
                self.state().events.push(event.clone());
                Ok(json_text(201, &event))
            }
            _ => Ok(text(404, "{}")),
        }
    }

    async fn list(&self) -> Answer {
        let is_first = self.lists.fetch_add(1, Ordering::SeqCst) == 0;
        if self.mood == Mood::Silent && is_first {
            std::future::pending::<()>().await;
        }
        let state = self.state();
        let items: Vec<&Value> = state.nodes.values().collect();
        Ok(json_text(
            200,
            &json!({"apiVersion": "v1", "kind": "NodeList", "items": items,
                    "metadata": {"resourceVersion": state.version.to_string()}}),
        ))
    }

    /// Streams the events after a resource version.
    fn watch(&self, after: u64) -> Response<Body> {
        let (sender, events) = unbounded_channel();
        let mut state = self.state();
        for (_, event) in state.history.iter().filter(|(version, _)| *version > after) {
            sender.send(event.clone()).unwrap();
        }
        state.watchers.push(sender);
        let lines = stream::unfold(events, |mut events| async {
            let event: Value = events.recv().await?;
            let frame = Frame::data(Bytes::from(format!("{event}\n")));
            Some((Ok::<_, Infallible>(frame), events))
        });
        let body = Body::http_body_unsync(StreamBody::new(Box::pin(lines)));
        Response::builder().header("content-type", "application/json").body(body).unwrap()
    }

    async fn patch(&self, name: &str, patch: &Value) -> Answer {
        match self.mood {
            Mood::Good | Mood::Silent => self.state().patch(name, patch),
            Mood::Undoing => {
                let mut state = self.state();
                let before = state.nodes[name]["metadata"]["labels"].clone();
                let answer = state.patch(name, patch);
                state.put(name, before);
                answer
            }
            Mood::Outdated => {
                self.state().patches.push(Instant::now());
                conflict()
            }
            Mood::Holding => {
                let hung_up = Told(Some(&self.held));
                tokio::time::sleep(Duration::from_secs(15)).await;
                hung_up.carried_out();
                self.state().patch(name, patch)
            }
        }
    }
}

/// Reports what happened to a held patch.
struct Told<'a>(Option<&'a UnboundedSender<bool>>);

impl Told<'_> {
    fn carried_out(mut self) {
        self.0.take().unwrap().send(true).unwrap();
    }
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.0.take() {
            held.send(false).unwrap();
        }
    }
}

fn json_text(status: u16, answer: &Value) -> Response<Body> {
    let mut answer = text(status, &answer.to_string());
    answer.headers_mut().insert("content-type", "application/json".parse().unwrap());
    answer
}

fn conflict() -> Answer {
    Ok(json_text(409, &status(409, "Conflict", "the object has been modified")))
}

fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason, "code": code, "message": message})
}

/// A fake EC2. Each instance runs and belongs to the group `nodes`.
async fn ec2() -> TestServer {
    TestServer::start(|request| async {
        let form = request.into_body().collect().await.unwrap().to_bytes();
        let tags: String = [(CLUSTER_TAG, "c.example.com"), (INSTANCE_GROUP_TAG, "nodes")]
            .map(|(key, value)| format!("<item><key>{key}</key><value>{value}</value></item>"))
            .concat();
        let items: String = form_urlencoded::parse(&form)
            .filter(|(name, _)| name.starts_with("InstanceId."))
            .map(|(_, id)| {
                format!(
                    "<item><instancesSet><item><instanceId>{id}</instanceId><instanceState><name>running</name>\
                     </instanceState><tagSet>{tags}</tagSet></item></instancesSet></item>"
                )
            })
            .collect();
        let answer = format!(
            "<DescribeInstancesResponse><reservationSet>{items}</reservationSet></DescribeInstancesResponse>"
        );
        Ok(text(200, &answer))
    })
    .await
}

/// A cluster of one Node without labels, and its node controller.
struct Cluster {
    api: Arc<Api>,
    held: tokio::sync::mpsc::UnboundedReceiver<bool>,
    node_labels: NodeLabels,
    _server: TestServer,
    _ec2: Option<TestServer>,
    _store: tempfile::TempDir,
}

impl Cluster {
    async fn start(mood: Mood, leadership: Leadership) -> Cluster {
        let ec2 = ec2().await;
        let instances = Instances::new(Ec2::for_tests(&ec2.url), CloudCalls::default());
        Cluster { _ec2: Some(ec2), ..Cluster::new(mood, leadership, instances).await }
    }

    async fn new(mood: Mood, leadership: Leadership, instances: Instances) -> Cluster {
        kops_agent_net::tls::install_provider();
        let (sender, held) = unbounded_channel();
        let list_timeout = if mood == Mood::Silent { Duration::from_millis(200) } else { TIMEOUT };
        let api = Arc::new(Api { mood, state: Mutex::default(), lists: AtomicUsize::new(0), held: sender });
        api.state().put(NAME, json!({"kubernetes.io/hostname": NAME}));
        let server = TestServer::start({
            let api = api.clone();
            move |request| api.clone().answer(request)
        })
        .await;
        let client = Client::try_from(Config::new(server.url.parse().unwrap())).unwrap();
        let cluster = AwsCluster {
            name: "c.example.com".into(),
            region: "us-test-1".into(),
            use_ip_based_node_names: false,
        };
        let cloud = Arc::new(AwsControlPlane { cluster, instances, calls: CloudCalls::default() });
        let (metrics, store, known) = (Metrics::new(), store(), Arc::<Mutex<NodeQueue>>::default());
        let base = store.path().to_str().unwrap();
        let node_labels = NodeLabels {
            nodes: Nodes::new(client.clone()),
            known: known.clone(),
            identifier: Identifier::new(cloud, known, metrics.cache_hits.clone()),
            pod_ranges: PodRanges::new(None),
            groups: Groups::new(Arc::new(Store::new(&[]).unwrap()), base, TIMEOUT),
            events: Events::new(client),
            metrics,
            mode: Mode::Apply(leadership),
            is_synced: AtomicBool::new(false),
            list_timeout,
            cloud_pauses: crate::node_queue::CLOUD_PAUSES,
            labels_from: LabelsFrom::Store,
        };
        Cluster { api, held, node_labels, _server: server, _ec2: None, _store: store }
    }

    /// Runs the controller until `is_so` is true. Panics after the timeout.
    async fn run_until(&self, is_so: impl Fn(&State) -> bool) {
        self.run_during(self.until(is_so)).await;
    }

    /// Runs the controller until `goes_on` ends. Panics after the timeout.
    async fn run_during(&self, goes_on: impl Future<Output = ()>) {
        tokio::select! {
            result = self.node_labels.run() => panic!("it ended: {result:?}"),
            result = timeout(TIMEOUT, goes_on) => result.expect("it comes in time"),
        }
    }

    async fn until(&self, is_so: impl Fn(&State) -> bool) {
        while !is_so(&self.api.state()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn metrics(&self) -> String {
        crate::metrics::text(&self.node_labels.metrics.registry(true))
    }
}

fn store() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let group = folder.path().join("igconfig/node/nodes");
    fs::create_dir_all(&group).unwrap();
    let labels =
        "{KubeletConfig: {nodeLabels: {kops.k8s.io/instancegroup: nodes, node-role.kubernetes.io/node: ''}}}";
    fs::write(group.join("nodeupconfig.yaml"), labels).unwrap();
    folder
}

fn is_labelled(state: &State) -> bool {
    has_group(state, NAME)
}

fn has_group(state: &State, name: &str) -> bool {
    state.nodes[name]["metadata"]["labels"][GROUP_LABEL] == "nodes"
}

/// The times between successive patches, in milliseconds.
fn gaps(state: &State) -> Vec<u128> {
    state.patches.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect()
}

#[tokio::test]
async fn a_node_is_labelled_by_one_patch() {
    let cluster = Cluster::start(Mood::Good, Leadership::uncontested()).await;
    cluster.run_until(is_labelled).await;
    let found = cluster.node_labels.run_once().await.unwrap();
    assert_eq!(found, Found::default());
    assert_eq!(cluster.api.state().patches.len(), 1);
}

#[tokio::test]
async fn a_node_deleted_during_its_reconcile_is_forgotten() {
    let cluster = Cluster::start(Mood::Good, Leadership::uncontested()).await;
    let node = cluster.node_labels.list().await.unwrap().remove(0);
    let labels = &cluster.node_labels;
    for outcome in [Outcome::Patched, Outcome::Conflict] {
        labels.known.lock().see(node.clone(), Instant::now());
        assert_eq!(labels.known.lock().take(Instant::now(), 9), [NAME]);
        assert!(labels.identifier.identify(&node).await.is_ok());
        assert!(labels.known.lock().believes_most());
        labels.known.lock().forget(NAME);
        labels.settle(&node, outcome, Duration::ZERO);
        let known = labels.known.lock();
        assert!(known.is_idle() && !known.is_outdated(&node) && known.next_due().is_none());
        assert!(!known.believes_most(), "it is forgotten");
    }
}

#[tokio::test]
async fn once_counts_patched_and_failed_nodes() {
    let cluster = Cluster::start(Mood::Good, Leadership::uncontested()).await;
    let found = cluster.node_labels.run_once().await.unwrap();
    assert_eq!((found.patched, found.failed, found.problems.len()), (1, 0, 0));
    let cluster = Cluster::start(Mood::Outdated, Leadership::uncontested()).await;
    let found = cluster.node_labels.run_once().await.unwrap();
    assert_eq!((found.patched, found.failed, found.problems.len()), (0, 1, 1));
}

#[tokio::test]
async fn labels_that_another_controller_undoes_are_written_ever_more_seldom() {
    let cluster = Cluster::start(Mood::Undoing, Leadership::uncontested()).await;
    cluster.run_until(|state| state.patches.len() >= 7).await;
    // The pauses are one and two seconds. Jitter shortens each pause by at most a quarter.
    let gaps = gaps(&cluster.api.state());
    assert!(gaps[4] >= 750 && gaps[5] >= 1500, "{gaps:?}");
}

#[tokio::test]
async fn a_node_that_the_watch_is_late_with_is_not_patched_all_the_time() {
    let cluster = Cluster::start(Mood::Outdated, Leadership::uncontested()).await;
    cluster.run_until(|state| state.patches.len() >= 4).await;
    let gaps = gaps(&cluster.api.state());
    assert!(gaps[0] >= 100 && gaps[1] >= 750 && gaps[2] >= 1500, "{gaps:?}");
    let metrics = cluster.metrics();
    for line in [
        r#"controller_runtime_reconcile_total{controller="node",result="requeue_after"} 1"#,
        r#"controller_runtime_reconcile_total{controller="node",result="error"} "#,
    ] {
        assert!(metrics.contains(line), "{line} is not in:\n{metrics}");
    }
}

#[tokio::test]
async fn a_replica_that_does_not_lead_patches_nothing() {
    let cluster = Cluster::start(Mood::Good, Leadership::of_another()).await;
    let found = cluster.node_labels.run_once().await.unwrap();
    assert_eq!((found.patched, found.failed), (0, 1));
    assert_eq!(cluster.api.state().patches.len(), 0);
}

#[tokio::test]
async fn a_patch_that_the_api_server_holds_is_given_up_before_another_replica_may_lead() {
    let mut cluster = Cluster::start(Mood::Holding, Leadership::renewed_now()).await;
    let found = cluster.node_labels.run_once().await.unwrap();
    assert_eq!((found.patched, found.failed), (0, 1));
    // The API server sees that the connection is closed. So it does not apply the patch after the Lease has ended.
    assert_eq!(timeout(TIMEOUT, cluster.held.recv()).await.unwrap(), Some(false));
    assert!(!is_labelled(&cluster.api.state()));
}

#[tokio::test]
async fn a_list_that_is_not_answered_is_asked_for_again() {
    let cluster = Cluster::start(Mood::Silent, Leadership::uncontested()).await;
    cluster.run_until(is_labelled).await;
    let cluster = Cluster::start(Mood::Silent, Leadership::uncontested()).await;
    let problem = format!("{:#}", cluster.node_labels.run_once().await.unwrap_err());
    assert!(problem.contains("listing Nodes: the API server does not answer within 200ms"), "{problem}");
}

#[tokio::test]
async fn a_node_that_waits_for_its_turn_costs_little() {
    let cluster = Cluster::start(Mood::Good, Leadership::uncontested()).await;
    let (node, slots) = (ObservedNode::default(), Semaphore::new(PATCHES_AT_ONCE));
    let looking = cluster.node_labels.outcome(&node, &slots);
    // In a new cluster, thousands of Nodes wait at the same time, so the state of each waiting reconcile must be small.
    assert!(size_of_val(&looking) <= 1024, "{} bytes", size_of_val(&looking));
}

#[test]
fn a_summary_counts_changed_refused_and_failed_nodes() {
    let mut found = Found::default();
    found.patches.insert("i-1".into(), NodePatch::default());
    found.problems.insert("i-2".into(), "it is another's".into());
    assert_eq!(found.summary(), "1 Nodes would change; 1 Nodes are refused");

    let mut found = Found { patched: 3, failed: 1, ..Found::default() };
    found.problems.insert("i-2".into(), "EC2 does not answer".into());
    assert_eq!(found.summary(), "3 Nodes were changed; 1 Nodes failed: repeat the command");
}
