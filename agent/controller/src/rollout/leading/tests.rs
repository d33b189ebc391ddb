#![allow(clippy::unwrap_used)]
use std::net::Ipv4Addr;

use http_body_util::BodyExt as _;
use kops_agent_cluster::fleet::ProgramReport;
use kops_agent_cluster::rollout::Rollout;
use kops_agent_tests::test_server::{TestServer, text};
use kube::Config;
use kube::runtime::watcher::Event;
use parking_lot::Mutex;

use super::*;

#[test]
fn a_rollout_reads_its_fields_of_a_node() {
    let node = json!({
        "metadata": {
            "name": "i-1", "labels": {INSTANCE_GROUP: "masters", CONTROL_PLANE_LABEL: ""},
            "annotations": {
                ORDER: "{}", OUTCOME: r#"{"rollout": "r", "attempt": 1, "hash": "b="}"#, AUTHORITIES: "x",
                AGENT_VERSION: "0.2.0", PROGRAM: ProgramReport::new("0.2.0", &"a".repeat(64)).unchecked(true).value(),
                CORDONED: "2026-11-29T00:00:00Z",
            },
        },
        "spec": {},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}], "conditions": [
            {"type": "Ready", "status": "True"},
            {"type": CONDITION, "status": "True", "message": "configuration b= since 2026-11-29T00:00:00Z"},
        ], "nodeInfo": {"architecture": "arm64"}},
    });
    let member = member(serde_json::from_value(node).unwrap());
    assert_eq!(
        (member.rank, member.is_ready, member.runs.as_deref()),
        (Rank::ControlPlane, true, Some("b="))
    );
    assert_eq!((member.group.as_str(), member.order.as_str()), ("masters", "{}"));
    assert_eq!(member.address, Some(Ipv4Addr::new(10, 0, 0, 1).into()));
    assert_eq!(member.outcome.unwrap().rollout, "r");
    assert_eq!(member.authorities, None, "any text of a kubelet counted as a digest");
    assert_eq!((member.program, member.architecture), (Some("a".repeat(64)), "arm64".to_owned()));
    assert_eq!(member.cordoned_since, parse_timestamp("2026-11-29T00:00:00Z"));
    assert!(member.is_healthy && member.is_unchecked && member.cordoned_since.is_some());
}

#[test]
fn a_heartbeat_changes_no_decision() {
    let node = |heartbeat: &str| -> Event<NodeObject> {
        let conditions = json!([{"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat}]);
        let node = json!({"metadata": {"name": "a"}, "spec": {}, "status": {"conditions": conditions}});
        Event::Apply(serde_json::from_value(node).unwrap())
    };
    let mut members = Watched::new(member);
    assert!(members.apply(node("2026-11-29T00:00:00Z")) && !members.apply(node("2026-11-29T00:00:10Z")));
}

/// The objects on the API server, and the received requests.
#[derive(Default)]
struct Served {
    /// The data of the ConfigMap with the rollout.
    data: Value,
    /// The order of the Node `a`; null if the Node has no order.
    order: Value,
    fires: bool,
    /// The paths of the patched objects, without their queries.
    patched: Vec<String>,
    queries: usize,
}

fn answer_of(served: &mut Served, path: &str, body: &[u8]) -> String {
    let mut patch: Value = serde_json::from_slice(body).unwrap_or_default();
    if !patch.is_null() {
        served.patched.push(path.to_owned());
    }
    if path.contains("/proxy/") {
        served.queries += 1;
        let result = if served.fires { json!([{"metric": {"alertname": "Fire"}}]) } else { json!([]) };
        return json!({"status": "success", "data": {"result": result}}).to_string();
    }
    if path == "/api/v1/nodes/a" {
        served.order = patch["metadata"]["annotations"][ORDER].take();
    }
    if let Value::Object(changed) = patch["data"].take() {
        served.data.as_object_mut().unwrap().extend(changed);
    }
    json!({"metadata": {"name": "x", "resourceVersion": "1"}, "data": served.data}).to_string()
}

#[tokio::test]
async fn an_alert_takes_an_order_back_once_and_an_end_of_the_alert_gives_another_one() {
    kops_agent_net::tls::install_provider();
    let rollout: Rollout = serde_json::from_value(json!({
        "id": "r-1", "state": "running", "attempt": 1, "reboot": {"a": "boot-1"}, "checkPodsAfter": 0,
        "blockedBy": {"alerts": "ALERTS", "prometheus": "m/web:9090"},
    }))
    .unwrap();
    let data = json!({"rollout": serde_json::to_string(&rollout).unwrap()});
    let server = Arc::new(Mutex::new(Served { data, ..Served::default() }));
    let state = server.clone();
    let api = TestServer::start(move |request| {
        let (path, state) = (request.uri().path().to_owned(), state.clone());
        async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            Ok(text(200, &answer_of(&mut state.lock(), &path, &body)))
        }
    })
    .await;
    let client = Client::try_from(Config::new(api.url.parse().unwrap())).unwrap();
    let store = Arc::new(Store::new(&[]).unwrap());
    let leadership = Leadership::uncontested();
    let api_servers = ApiServers::at_port_of(&api.url).unwrap();
    let metrics = RolloutMetrics::default();
    let rollouts = Rollouts::new(client, api_servers, store, "memfs://none", metrics, leadership);
    let mut hashes = Hashes::default();
    // Decides once for the current Node. Returns the patched objects and the number of queries.
    let mut step = async |blocking: &mut Blocking| {
        let order = server.lock().order.clone();
        let node = json!({
            "metadata": {"name": "a", "labels": {INSTANCE_GROUP: "nodes"}, "annotations": {ORDER: order.as_str().unwrap_or_default()}},
            "spec": {},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"bootID": "boot-1"}},
        });
        let mut members = Watched::new(member);
        members.apply(Event::Apply(serde_json::from_value(node).unwrap()));
        assert!(rollouts.step(&members, &mut hashes, blocking).await.is_ok());
        let mut server = server.lock();
        (std::mem::take(&mut server.patched), std::mem::take(&mut server.queries))
    };
    let config_map = "/api/v1/namespaces/kops-agent/configmaps/rollout".to_owned();
    let node = "/api/v1/nodes/a".to_owned();
    let mut blocking = Blocking::default();
    assert_eq!(step(&mut blocking).await, (vec![config_map.clone(), node.clone()], 1));
    assert_eq!(step(&mut blocking).await, (vec![], 0), "the node waits for its slot");

    // A new `Blocking` has no result, as if the TTL of the last result had passed.
    server.lock().fires = true;
    let mut blocking = Blocking::default();
    let (patched, queries) = step(&mut blocking).await;
    assert!(patched.contains(&node) && queries == 1, "{patched:?}");
    assert!(server.lock().order.is_null());
    // The controller may write the status only now, because it now sees the Node without the order. `blocking` still has a result, so this
    // decision does not query Prometheus.
    assert_eq!(step(&mut blocking).await.1, 0);
    let status: Status = serde_json::from_str(server.lock().data["status"].as_str().unwrap()).unwrap();
    assert!(status.ordered.is_empty() && status.waits_for.contains("Fire"), "{status:?}");
    for _ in 0..3 {
        assert_eq!(step(&mut blocking).await, (vec![], 0));
    }
    for _ in 0..3 {
        assert_eq!(step(&mut Blocking::default()).await, (vec![], 1), "the answer is the same");
    }

    server.lock().fires = false;
    assert_eq!(step(&mut Blocking::default()).await, (vec![config_map, node], 1));
    assert!(server.lock().order.is_string());
}
