//! Reads Nodes from the API server, with the fields that fleet commands need.

use std::collections::BTreeSet;

use kube::Client;
use kube::api::ListParams;

use kops_agent_cluster::fleet::{
    AGENT_VERSION, AUTHORITIES, CONDITION, FIRST_CERTIFICATE, FOLLOWED_FROM, MACHINE, NEXT, PROGRAM,
    REBOOT_REQUIRED, SeenCondition, SeenNode,
};
use kops_agent_cluster::labels::INSTANCE_GROUP;
use kops_agent_cluster::rollout::OUTCOME;
use kops_agent_kube::api_error::{ApiError, answer};
use kops_agent_kube::list_pages;
use kops_agent_kube::node_api::{Condition, NodeObject, Nodes, READY};

/// Lists all Nodes of a cluster.
pub async fn all(client: Client) -> Result<Vec<SeenNode>, ApiError> {
    let api = Nodes::new(client).api();
    let ask = |page: ListParams| {
        let api = api.clone();
        async move { answer(api.list(&page)).await }
    };
    list_pages::all(ListParams::default(), ask, seen).await
}

pub async fn groups_of_nodes(client: Client) -> Result<BTreeSet<String>, ApiError> {
    let nodes = all(client).await?;
    Ok(nodes.into_iter().map(|node| node.group).filter(|group| !group.is_empty()).collect())
}

pub(super) fn seen(node: NodeObject) -> SeenNode {
    let status = node.status.unwrap_or_default();
    let condition = |condition: &Condition| SeenCondition {
        status: condition.status.clone(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        last_heartbeat_time: condition.last_heartbeat_time.clone().unwrap_or_default(),
    };
    let mut labels = node.metadata.labels.unwrap_or_default();
    let mut annotations = node.metadata.annotations.unwrap_or_default();
    SeenNode {
        name: node.metadata.name.unwrap_or_default(),
        group: labels.remove(INSTANCE_GROUP).unwrap_or_default(),
        ready: status.condition(READY).map(|ready| ready.status.clone()).unwrap_or_default(),
        configured: status.condition(CONDITION).map(condition),
        first_certificate: annotations.remove(FIRST_CERTIFICATE).unwrap_or_default(),
        agent_version: annotations.remove(AGENT_VERSION).unwrap_or_default(),
        next: annotations.remove(NEXT).unwrap_or_default(),
        followed_from: annotations.remove(FOLLOWED_FROM).unwrap_or_default(),
        machine: annotations.remove(MACHINE).unwrap_or_default(),
        authorities: annotations.remove(AUTHORITIES).unwrap_or_default(),
        architecture: status.node_info.architecture,
        boot_id: status.node_info.boot_id,
        reboot: annotations.remove(REBOOT_REQUIRED).unwrap_or_default(),
        program: annotations.remove(PROGRAM).unwrap_or_default(),
        outcome: annotations.remove(OUTCOME).unwrap_or_default(),
        kubelet_version: status.node_info.kubelet_version,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use kops_agent_kube::node_watch::Watched;
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;

    #[test]
    fn fleet_status_reads_its_fields_of_a_node() {
        let conditions = json!([
            {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": null},
            {"type": CONDITION, "status": "False", "reason": "RunFailed", "message": "m",
             "lastHeartbeatTime": "2026-11-26T00:00:02Z", "lastTransitionTime": "2026-11-26T00:00:01Z"},
        ]);
        let node: NodeObject = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "i-1", "labels": {INSTANCE_GROUP: "nodes"}, "annotations": {FIRST_CERTIFICATE: "t kubelet", AGENT_VERSION: "0.1.0 (abc)", NEXT: "{}", FOLLOWED_FROM: "b=", MACHINE: "{m}", REBOOT_REQUIRED: "{r}", AUTHORITIES: "d0", PROGRAM: "{p}", OUTCOME: "{o}"}},
            "spec": {"providerID": "aws:///a/i-1"},
            "status": {"conditions": conditions, "nodeInfo": {"bootID": "b1", "architecture": "arm64", "kubeletVersion": "v1.36.0", "containerRuntimeVersion": "containerd://2.1.4"}}
        }))
        .unwrap();
        let expected = SeenNode {
            name: "i-1".into(),
            group: "nodes".into(),
            kubelet_version: "v1.36.0".into(),
            ready: "True".into(),
            configured: Some(SeenCondition {
                status: "False".into(),
                reason: "RunFailed".into(),
                message: "m".into(),
                last_heartbeat_time: "2026-11-26T00:00:02Z".into(),
            }),
            first_certificate: "t kubelet".into(),
            agent_version: "0.1.0 (abc)".into(),
            next: "{}".into(),
            followed_from: "b=".into(),
            machine: "{m}".into(),
            authorities: "d0".into(),
            architecture: "arm64".into(),
            boot_id: "b1".into(),
            reboot: "{r}".into(),
            program: "{p}".into(),
            outcome: "{o}".into(),
        };
        assert_eq!(seen(node), expected);
        let bare: NodeObject =
            serde_json::from_value(json!({"metadata": {"name": "new"}, "spec": {}, "status": {}})).unwrap();
        assert_eq!(seen(bare), SeenNode { name: "new".into(), ..SeenNode::default() });
    }

    #[test]
    fn a_list_counts_once_it_is_complete_and_a_report_that_changes_nothing_does_not() {
        let node = |name: &str, version: &str| -> NodeObject {
            serde_json::from_value(
                json!({"metadata": {"name": name, "resourceVersion": version}, "spec": {}, "status": {}}),
            )
            .unwrap()
        };
        let mut watched = Watched::new(seen);
        assert!(!watched.apply(Event::Init) && !watched.apply(Event::InitApply(node("a", "1"))));
        assert!(!watched.is_complete && watched.nodes.is_empty());
        assert!(watched.apply(Event::InitDone) && watched.is_complete);
        assert!(!watched.apply(Event::Apply(node("a", "2"))), "nothing that is shown has changed");
        assert!(watched.apply(Event::Apply(node("b", "3"))));
        // If a watch is lost, the watcher lists the Nodes again. A Node that is missing from this list is removed.
        for event in [Event::Init, Event::InitApply(node("b", "3")), Event::InitDone] {
            watched.apply(event);
        }
        assert_eq!(watched.nodes.keys().collect::<Vec<_>>(), ["b"]);
        assert!(
            watched.apply(Event::Delete(node("b", "4"))) && !watched.apply(Event::Delete(node("b", "4")))
        );
    }
}
