//! Checks the other control planes when a control plane asks for a slot. Leases show only runs in progress. If a machine is off,
//! or a change broke it, its slot is free minutes later. The next restart would then cost etcd its quorum.

use kops_agent_cluster::pacing::CONTROL_PLANE_LABEL;
use kops_agent_cluster::pacing::message::NotReady;
use kops_agent_process::output::one_line;
use kube::Error;
use kube::api::ListParams;

use kops_agent_kube::list_pages;
use kops_agent_kube::node_api::{NodeObject, Nodes, READY};

/// The longest text about one Node, in characters.
const LONGEST_TOLD: usize = 200;

/// Returns the other control planes that are not Ready. A Node without a Ready condition counts as not Ready.
pub(super) async fn not_ready_beside(nodes: &Nodes, asker: &str) -> Result<Vec<NotReady>, Error> {
    let api = nodes.api();
    let ask = |page: ListParams| {
        let api = api.clone();
        async move { api.list(&page).await }
    };
    let selected = ListParams::default().labels(CONTROL_PLANE_LABEL);
    let all = list_pages::all(selected, ask, |node| not_ready(&node)).await?;
    Ok(all.into_iter().flatten().filter(|other| other.node != asker).collect())
}

/// Returns the Node and why it is not Ready; `None` if it is Ready.
fn not_ready(node: &NodeObject) -> Option<NotReady> {
    let why = match node.status.as_ref().and_then(|status| status.condition(READY)) {
        Some(ready) if ready.status == "True" => return None,
        Some(ready) => {
            let since = ready.last_transition_time.as_deref().unwrap_or("some time");
            format!("since {since}: {}: {}", ready.reason, ready.message)
        }
        None => "its kubelet has not reported its state yet".to_owned(),
    };
    let node = node.metadata.name.clone().unwrap_or_default();
    Some(NotReady { node, why: one_line(&why, LONGEST_TOLD) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn told(status: Value) -> Option<String> {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "i-1"}, "spec": {}, "status": status});
        not_ready(&serde_json::from_value(node).unwrap())
            .map(|other| format!("{}: {}", other.node, other.why))
    }

    #[test]
    fn only_what_says_that_it_is_ready_is_ready() {
        let ready = |status: &str| {
            told(json!({"conditions": [{"type": "Ready", "status": status, "reason": "NodeStatusUnknown",
                "message": "Kubelet stopped posting\nnode status.", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}))
        };
        assert_eq!(ready("True"), None);
        for status in ["False", "Unknown", ""] {
            let told = ready(status).unwrap();
            assert!(told.starts_with("i-1: since 2026-01-01T00:00:00Z: NodeStatusUnknown: "), "{told}");
            assert!(!told.contains('\n'), "{told}");
        }
        for status in [
            json!({}),
            json!({"conditions": null}),
            json!({"conditions": [{"type": "MemoryPressure", "status": "True"}]}),
        ] {
            assert!(told(status).unwrap().contains("has not reported its state yet"));
        }
    }
}
