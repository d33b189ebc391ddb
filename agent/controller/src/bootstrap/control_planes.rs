//! Checks the other control planes when a control plane asks for a slot. Leases show only runs in progress. If a machine is off,
//! or a change broke it, its slot is free minutes later. The next restart would then cost etcd its quorum.

use futures_util::future::join_all;
use kops_agent_cluster::pacing::CONTROL_PLANE_LABEL;
use kops_agent_cluster::pacing::message::NotReady;
use kops_agent_cluster::rollout::ApiServer;
use kops_agent_process::output::one_line;
use kube::Error;
use kube::api::ListParams;

use kops_agent_kube::ApiServers;
use kops_agent_kube::list_pages;
use kops_agent_kube::node_api::{NodeObject, Nodes, READY};

/// The maximum length of the reason why one Node is not ready, in characters.
const LONGEST_TOLD: usize = 200;

/// Returns the Nodes of all control planes except `asker`.
pub(super) async fn beside(nodes: &Nodes, asker: &str) -> Result<Vec<NodeObject>, Error> {
    let api = nodes.api();
    let ask = |page: ListParams| {
        let api = api.clone();
        async move { api.list(&page).await }
    };
    let selected = ListParams::default().labels(CONTROL_PLANE_LABEL);
    let mut all = list_pages::all(selected, ask, |node| node).await?;
    all.retain(|node| node.metadata.name.as_deref() != Some(asker));
    Ok(all)
}

/// Returns the control planes that are not Ready, or whose API servers are not ready. A Node without a Ready condition counts as not Ready.
/// Queries all API servers concurrently.
pub(super) async fn not_ready(control_planes: Vec<NodeObject>, api_servers: &ApiServers) -> Vec<NotReady> {
    let asked = control_planes.into_iter().map(|node| async move {
        let why = match node_not_ready(&node) {
            Some(why) => why,
            None => {
                let machine = node.status.as_ref().and_then(|status| status.internal_ip());
                match api_servers.ready(machine).await {
                    ApiServer::NotReady(why) => format!("its API server is not ready: {why}"),
                    ApiServer::Ready | ApiServer::NotAsked => return None,
                }
            }
        };
        let node = node.metadata.name.unwrap_or_default();
        Some(NotReady { node, why: one_line(&why, LONGEST_TOLD) })
    });
    join_all(asked).await.into_iter().flatten().collect()
}

/// Returns why a Node is not Ready; `None` if it is Ready.
fn node_not_ready(node: &NodeObject) -> Option<String> {
    match node.status.as_ref().and_then(|status| status.condition(READY)) {
        Some(ready) if ready.status == "True" => None,
        Some(ready) => {
            let since = ready.last_transition_time.as_deref().unwrap_or("some time");
            Some(format!("since {since}: {}: {}", ready.reason, ready.message))
        }
        None => Some("its kubelet has not reported its state yet".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use kops_agent_tests::test_server::{TestServer, text};
    use serde_json::{Value, json};

    use super::*;

    /// Returns why a control plane with this Node status is not ready; `None` if it is ready. Its API server answers readiness probes with
    /// `answer`.
    async fn told(status: Value, answer: (u16, &'static str)) -> Option<String> {
        kops_agent_net::tls::install_provider();
        let server = TestServer::start(move |_| async move { Ok(text(answer.0, answer.1)) }).await;
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "i-1"}, "spec": {}, "status": status});
        let api_servers = ApiServers::at_port_of(&server.url).unwrap();
        let told = not_ready(vec![serde_json::from_value(node).unwrap()], &api_servers).await;
        told.first().map(|other| format!("{}: {}", other.node, other.why))
    }

    fn ready(status: &str) -> Value {
        json!({"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}], "conditions": [{"type": "Ready",
            "status": status, "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting\nnode status.",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
    }

    #[tokio::test]
    async fn only_a_control_plane_that_reports_ready_is_ready() {
        assert_eq!(told(ready("True"), (200, "ok")).await, None);
        for status in ["False", "Unknown", ""] {
            let told = told(ready(status), (200, "ok")).await.unwrap();
            assert!(told.starts_with("i-1: since 2026-01-01T00:00:00Z: NodeStatusUnknown: "), "{told}");
            assert!(!told.contains('\n'), "{told}");
        }
        for status in [
            json!({}),
            json!({"conditions": null}),
            json!({"conditions": [{"type": "MemoryPressure", "status": "True"}]}),
        ] {
            assert!(told(status, (200, "ok")).await.unwrap().contains("has not reported its state yet"));
        }
    }

    #[tokio::test]
    async fn a_ready_node_without_etcd_is_not_ready() {
        let told = told(ready("True"), (500, "[-]etcd failed: reason withheld\nreadyz check failed")).await;
        assert_eq!(told.as_deref(), Some("i-1: its API server is not ready: failed checks: etcd"));
    }
}
