//! What keeps nodes from a reboot: pods with a label, and results of a query of Prometheus. Prometheus is asked through the API
//! server's proxy of Services, so the controller needs no access to the network of pods.

use std::collections::BTreeMap;
use std::time::Duration;

use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ListParams, Object};
use kube::client::Body;
use kube::core::ApiResource;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, timeout};

use kops_agent_cluster::rollout::{Blocked, Blockers};
use kops_agent_kube::api_error::{ApiError, answer};
use kops_agent_kube::list_pages;
use kops_agent_process::output::one_line;

/// A pod, with only the fields that decide whether it blocks the reboot of its node.
type PodObject = Object<PodSpec, PodStatus>;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    node_name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct PodStatus {
    phase: String,
}

/// How long a result is reused. A rollout may need the result each second.
const TTL: Duration = Duration::from_secs(10);
/// Timeout of Prometheus. Rollouts wait for its answer. If the Service has no endpoints, the client repeats the request until this timeout.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum size of Prometheus's answer, in bytes. The query asks for at most one result (`limit`), and one result is smaller than this.
const LONGEST_ANSWER: usize = 64 << 10;
/// The maximum length of a query, a selector or an answer in a message, in characters.
const QUOTED: usize = 150;

/// The cached result of the last check of blockers: the checked blockers, the time of the check, and the blocked nodes. Blockers are
/// conditions that keep nodes from a reboot.
#[derive(Default)]
pub(super) struct Blocking(Option<(Blockers, Instant, Blocked)>);

impl Blocking {
    /// Which nodes these blockers keep from a reboot, and why.
    pub(super) async fn blocked_nodes(&mut self, client: &Client, blockers: &Blockers) -> Blocked {
        match &self.0 {
            Some((asked, at, blocked)) if asked == blockers && at.elapsed() < TTL => blocked.clone(),
            _ => {
                let blocked = check(client, blockers).await;
                self.0 = Some((blockers.clone(), Instant::now(), blocked.clone()));
                blocked
            }
        }
    }
}

/// Checks blockers of reboots. If a check fails, no node may reboot.
async fn check(client: &Client, blockers: &Blockers) -> Blocked {
    let nodes =
        if blockers.pods.is_empty() { Ok(BTreeMap::new()) } else { pods(client, &blockers.pods).await };
    let alerts = match blockers.service() {
        Ok(None) => Ok(None),
        Ok(Some(service)) => alerts(client, service, &blockers.alerts).await,
        Err(invalid) => Err(invalid.to_string()),
    };
    match (nodes, alerts) {
        (Ok(nodes), Ok(all)) => Blocked { all, nodes },
        (Err(problem), _) | (_, Err(problem)) => {
            Blocked { all: Some(format!("no node reboots: {problem}")), nodes: BTreeMap::new() }
        }
    }
}

/// The nodes on which a pod that matches this label selector is running or pending. The value for each node is why it may not reboot.
async fn pods(client: &Client, selector: &str) -> Result<BTreeMap<String, String>, String> {
    let api: Api<PodObject> = Api::all_with(client.clone(), &ApiResource::erase::<Pod>(&()));
    let ask = |page: ListParams| {
        let api = api.clone();
        async move { answer(api.list(&page)).await }
    };
    let node = |pod: PodObject| {
        let is_over =
            pod.status.is_some_and(|status| ["Succeeded", "Failed"].contains(&status.phase.as_str()));
        let (metadata, node) = (pod.metadata, pod.spec.node_name);
        let name =
            format!("{}/{}", metadata.namespace.unwrap_or_default(), metadata.name.unwrap_or_default());
        let why = || format!("the pod {name} blocks the reboot (selector {})", one_line(selector, QUOTED));
        (!is_over && !node.is_empty()).then(|| (node, why()))
    };
    let all = list_pages::all(ListParams::default().labels(selector), ask, node).await;
    let all =
        all.map_err(|error| format!("listing the pods with {:?}: {error}", one_line(selector, QUOTED)))?;
    Ok(all.into_iter().flatten().collect())
}

/// Returns the reason why no node may reboot, if Prometheus has a result for the query. `None` if it has no result.
async fn alerts(client: &Client, service: (&str, &str), query: &str) -> Result<Option<String>, String> {
    let (namespace, name) = service;
    let encoded = utf8_percent_encode(query, NON_ALPHANUMERIC);
    // An older Prometheus ignores the parameter `limit`.
    let path =
        format!("/api/v1/namespaces/{namespace}/services/{name}/proxy/api/v1/query?limit=1&query={encoded}");
    let query = one_line(query, QUOTED);
    let failed = |problem: String| format!("asking Prometheus ({namespace}/{name}) for {query}: {problem}");
    let text = timeout(TIMEOUT, ask(client, path)).await;
    let text = text.map_err(|_| failed(format!("no answer within {} s", TIMEOUT.as_secs())))?;
    let text = text.map_err(failed)?;
    let found: Value = serde_json::from_str(&text).unwrap_or_default();
    let result = found["data"]["result"].as_array().filter(|_| found["status"] == "success");
    match result.map(Vec::as_slice) {
        None => Err(failed(format!("the answer has no result: {}", one_line(&text, QUOTED)))),
        Some([]) => Ok(None),
        Some([first, ..]) => {
            let result = one_line(&first["metric"].to_string(), QUOTED);
            Ok(Some(format!("no node reboots while Prometheus has a result for {query}: {result}")))
        }
    }
}

/// The body of the answer to a GET of this path.
async fn ask(client: &Client, path: String) -> Result<String, String> {
    let request = Request::get(path).body(Body::empty()).map_err(|error| error.to_string())?;
    let (head, body) =
        answer(client.send(request)).await.map_err(|error: ApiError| error.to_string())?.into_parts();
    let body = Limited::new(body, LONGEST_ANSWER).collect().await.map_err(|error| {
        match error.is::<LengthLimitError>() {
            true => format!(
                "the answer has more than {LONGEST_ANSWER} bytes; give a query with fewer results, such as count(…) > 0"
            ),
            false => format!("reading the answer: {error}"),
        }
    })?;
    let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    match head.status.is_success() {
        true => Ok(text),
        false => Err(format!("HTTP {}: {}", head.status.as_u16(), one_line(&text, QUOTED))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use kops_agent_tests::test_server::{TestServer, text};
    use kube::Config;
    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;

    const QUERY: &str = r#"ALERTS{alertstate="firing"}"#;

    /// Checks blockers at an API server that answers the query to Prometheus with this status and this text. Returns the blocked nodes, and
    /// the path of the query.
    async fn blocked(status: u16, answer: &str) -> (Blocked, String) {
        kops_agent_net::tls::install_provider();
        let (answer, asked) = (answer.to_owned(), Arc::new(Mutex::new(String::new())));
        let said = asked.clone();
        let server = TestServer::start(move |request| {
            let path = request.uri().to_string();
            let pod = |name: &str, phase: &str| {
                json!({"metadata": {"name": name, "namespace": "n"}, "spec": {"nodeName": name}, "status": {"phase": phase}})
            };
            let pods = [pod("a", "Running"), pod("b", "Pending"), pod("c", "Succeeded"), pod("d", "Failed")];
            let list = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": pods});
            let answer = if path.starts_with("/api/v1/pods?") { (200, list.to_string()) } else { (status, answer.clone()) };
            *said.lock() = path;
            async move { Ok(text(answer.0, &answer.1)) }
        })
        .await;
        let client = Client::try_from(Config::new(server.url.parse().unwrap())).unwrap();
        let blockers =
            Blockers { pods: "app=batch".into(), alerts: QUERY.into(), prometheus: "m/web:9090".into() };
        let blocked = Blocking::default().blocked_nodes(&client, &blockers).await;
        let path = asked.lock().clone();
        (blocked, path)
    }

    #[tokio::test]
    async fn pods_keep_their_nodes_and_alerts_keep_all() {
        let (found, path) =
            blocked(200, r#"{"status": "success", "data": {"resultType": "vector", "result": []}}"#).await;
        let query = "limit=1&query=ALERTS%7Balertstate%3D%22firing%22%7D";
        assert_eq!(path, format!("/api/v1/namespaces/m/services/web:9090/proxy/api/v1/query?{query}"));
        assert_eq!(found.all, None);
        assert_eq!(found.nodes.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(found.nodes["a"], "the pod n/a blocks the reboot (selector app=batch)");
        let fires = r#"{"status": "success", "data": {"result": [{"metric": {"alertname": "Fire"}, "value": [1, "1"]}]}}"#;
        let why = blocked(200, fires).await.0.all.unwrap();
        assert!(
            why.starts_with("no node reboots while Prometheus has a result for ALERTS")
                && why.contains("Fire"),
            "{why}"
        );
    }

    #[tokio::test]
    async fn an_unanswered_query_of_alerts_blocks_all_nodes() {
        let forbidden = r#"{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "message": "forbidden: services/proxy", "code": 403}"#;
        for (status, answer) in [(403, forbidden), (200, "{}"), (200, r#"{"status": "error"}"#)] {
            let why = blocked(status, answer).await.0.all.unwrap();
            assert!(
                why.starts_with("no node reboots: asking Prometheus (m/web:9090) for ALERTS"),
                "{answer}: {why}"
            );
        }
    }

    #[tokio::test]
    async fn an_answer_of_any_length_is_not_read_whole_and_shown_in_short() {
        let result = |metric: &str| {
            json!({"status": "success", "data": {"result": [{"metric": {"alertname": metric}, "value": [1, "1"]}]}}).to_string()
        };
        let within = result(&"F".repeat(LONGEST_ANSWER / 2));
        let beyond = result(&"F".repeat(8 << 20));
        let other = format!("{:?}", "x\n".repeat(LONGEST_ANSWER / 8));
        for (status, answer, why) in [
            (200, &within, "has a result"),
            (200, &beyond, "the answer has more than 65536 bytes"),
            (200, &other, "the answer has no result"),
            (500, &within, "HTTP 500"),
            (500, &beyond, "the answer has more than 65536 bytes"),
        ] {
            let all = blocked(status, answer).await.0.all.unwrap();
            assert!(
                all.contains(why) && all.len() < 600 && !all.contains('\n'),
                "{why}: {} bytes",
                all.len()
            );
        }
    }
}
