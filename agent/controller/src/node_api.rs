//! Nodes on the API server: how they are watched, read and patched.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use k8s_openapi::jiff::Timestamp;
use kops_agent_plan::fleet::CONDITION;
use kops_agent_plan::labels::{FIELD_MANAGER, ObservedNode, managed_labels};
use kops_agent_plan::pod_ranges::NodePatch;
use kube::api::{Api, Patch, PatchParams, ValidationDirective};
use kube::core::{ApiResource, Object, Request};
use kube::{Client, Error};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// The type of the condition that kubelet sets.
pub const READY: &str = "Ready";

/// A Node with the little that is looked at here: a cluster has thousands of them.
pub type NodeObject = Object<NodeSpec, NodeStatus>;

/// `spec` of a Node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    #[serde(rename = "providerID")]
    provider_id: String,
    #[serde(rename = "podCIDRs")]
    pod_cidrs: Vec<String>,
}

/// `status` of a Node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeStatus {
    #[serde(deserialize_with = "conditions_that_matter")]
    conditions: Vec<Condition>,
    /// What its kubelet tells of itself.
    pub node_info: NodeInfo,
}

/// Its `nodeInfo`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeInfo {
    /// The version of its kubelet.
    pub kubelet_version: String,
}

/// One of its conditions. Kubernetes writes a time that is not known as null.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    pub reason: String,
    pub message: String,
    /// When it was told last, in RFC 3339.
    pub last_heartbeat_time: Option<String>,
    /// Since when it has its status, in RFC 3339.
    pub last_transition_time: Option<String>,
}

impl NodeStatus {
    /// Its condition of this type, which is [`READY`] or [`CONDITION`]: others are not kept.
    pub fn condition(&self, wanted: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == wanted)
    }
}

/// What a Node tells of itself to a machine that asks for its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Whether the Node is Ready.
    pub is_ready: bool,
    /// When the Node was registered, in seconds since 1970, by the API server's clock.
    registered: Option<i64>,
    /// When its kubelet has last told its condition, in seconds since 1970, by that machine's clock.
    last_heartbeat: Option<i64>,
}

impl Registration {
    fn of(node: &NodeObject) -> Registration {
        let ready = node.status.as_ref().and_then(|status| status.condition(READY));
        let heartbeat = ready.and_then(|ready| ready.last_heartbeat_time.as_deref());
        Registration {
            is_ready: ready.is_some_and(|ready| ready.status == "True"),
            registered: node.metadata.creation_timestamp.as_ref().map(|time| time.0.as_second()),
            last_heartbeat: heartbeat
                .and_then(|time| time.parse::<Timestamp>().ok())
                .map(Timestamp::as_second),
        }
    }

    /// Whether it is of a machine before the one that was started then, under the same name. The kubelet of the machine itself
    /// registers its Node after the start, or tells its condition anew.
    pub fn is_of_predecessor(self, launched: Option<i64>) -> bool {
        match (self.registered, self.last_heartbeat, launched) {
            (Some(registered), Some(heartbeat), Some(launched)) => {
                registered < launched && heartbeat < launched
            }
            _ => false,
        }
    }
}

/// A page of a list has thousands of others, of which each is gone before the next one is read.
fn conditions_that_matter<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Condition>, D::Error> {
    struct Conditions;
    impl<'de> Visitor<'de> for Conditions {
        type Value = Vec<Condition>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("conditions")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<Condition>, A::Error> {
            let mut kept = Vec::new();
            while let Some(condition) = seq.next_element::<Condition>()? {
                if [READY, CONDITION].contains(&condition.type_.as_str()) {
                    kept.push(condition);
                }
            }
            Ok(kept)
        }

        fn visit_unit<E>(self) -> Result<Vec<Condition>, E> {
            Ok(Vec::new())
        }
    }
    deserializer.deserialize_any(Conditions)
}

/// The Nodes of a cluster.
#[derive(Clone)]
pub struct Nodes {
    client: Client,
    api: Api<NodeObject>,
}

impl Nodes {
    /// The Nodes that this client can reach.
    pub fn of(client: Client) -> Nodes {
        Nodes { api: Api::all_with(client.clone(), &resource()), client }
    }

    /// For listing and watching them.
    pub fn api(&self) -> Api<NodeObject> {
        self.api.clone()
    }

    /// Asks for a Node that need not be there: Nodes can be read where that succeeds.
    ///
    /// # Errors
    /// The API server cannot be asked, or gives this process no right to Nodes.
    pub async fn can_be_read(&self) -> Result<(), Error> {
        self.api.get_opt("kops-agent").await.map(drop)
    }

    /// What the Node of this name tells of itself; `None` where there is none.
    ///
    /// # Errors
    /// The API server cannot be asked.
    pub async fn registration(&self, name: &str) -> Result<Option<Registration>, Error> {
        Ok(self.api.get_opt(name).await?.map(|node| Registration::of(&node)))
    }

    /// The `spec.providerID` of the Node of this name; `None` where there is none.
    ///
    /// # Errors
    /// The API server cannot be asked.
    pub async fn provider_id(&self, name: &str) -> Result<Option<String>, Error> {
        Ok(self.api.get_opt(name).await?.map(|node| node.spec.provider_id))
    }

    /// The labels of the Node of this name; `None` where there is none.
    ///
    /// # Errors
    /// The API server cannot be asked.
    pub async fn labels(&self, name: &str) -> Result<Option<BTreeMap<String, String>>, Error> {
        Ok(self.api.get_opt(name).await?.map(|node| node.metadata.labels.unwrap_or_default()))
    }

    /// For what else there is on the same API server.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Changes a Node, if it is still the one that was observed. Returns it as it is then, unread.
    ///
    /// # Errors
    /// It is another one by now (409), is gone (404), or the API server cannot be asked.
    pub async fn patch(&self, node: &ObservedNode, patch: &NodePatch) -> Result<String, Error> {
        let parameters = PatchParams {
            field_manager: Some(FIELD_MANAGER.into()),
            // It has fields that each API server knows, which by default would look for others, and warn of them.
            field_validation: Some(ValidationDirective::Ignore),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(patch.to_json(&node.resource_version));
        let nodes = Request::new(self.api.resource_url());
        let request = nodes.patch(&node.name, &parameters, &patch).map_err(Error::BuildRequest)?;
        self.client.request_text(request).await
    }
}

fn resource() -> ApiResource {
    ApiResource::erase::<Node>(&())
}

/// What is looked at of a Node as the API server has it.
pub fn observed(node: NodeObject) -> Arc<ObservedNode> {
    let metadata = node.metadata;
    let entries = || metadata.managed_fields.iter().flatten();
    // Our patches are updates. Another may apply under our name what is there already, and would have us take it away.
    let is_ours = |entry: &&ManagedFieldsEntry| {
        entry.manager.as_deref() == Some(FIELD_MANAGER) && entry.operation.as_deref() != Some("Apply")
    };
    let written_by_us = labels_of(entries().filter(is_ours));
    let mut shared = labels_of(entries().filter(|entry| !is_ours(entry)));
    shared.retain(|label| written_by_us.contains(label));
    Arc::new(ObservedNode {
        name: metadata.name.unwrap_or_default(),
        provider_id: node.spec.provider_id,
        labels: metadata.labels.unwrap_or_default(),
        written_by_us,
        shared,
        has_pod_ranges: !node.spec.pod_cidrs.is_empty(),
        resource_version: metadata.resource_version.unwrap_or_default(),
    })
}

/// The keys of the labels that managers own.
fn labels_of<'a>(entries: impl Iterator<Item = &'a ManagedFieldsEntry>) -> BTreeSet<String> {
    let fields = entries.filter_map(|entry| entry.fields_v1.as_ref());
    fields.flat_map(|fields| managed_labels(&fields.0)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn what_another_applies_under_our_name_is_not_ours() {
        let fields = json!({"f:metadata": {"f:labels": {"f:node-role.kubernetes.io/dmz": {}}}});
        let entry = |operation: &str| json!({"manager": FIELD_MANAGER, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields});
        let ours = |operation: &str| {
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "managedFields": [entry(operation)]}, "spec": {}, "status": {}});
            observed(serde_json::from_value(node).unwrap()).written_by_us.len()
        };
        assert_eq!((ours("Update"), ours("Apply")), (1, 0));
    }

    #[test]
    fn a_node_that_was_last_heard_of_before_a_machine_was_started_is_of_the_one_before() {
        let registration = |registered: &str, heartbeat: Option<&str>| {
            let node: NodeObject = serde_json::from_value(json!({
                "metadata": {"name": "a", "creationTimestamp": registered}, "spec": {},
                "status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat}]},
            }))
            .unwrap();
            Registration::of(&node)
        };
        let (before, launched, after) = ("2026-01-01T10:00:00Z", 1_767_261_660, "2026-01-01T10:02:00Z");
        for (registered, heartbeat, launched, expected) in [
            (before, Some(before), Some(launched), true),
            (before, Some(after), Some(launched), false),
            // Its machine's clock is slow.
            (after, Some(before), Some(launched), false),
            (before, None, Some(launched), false),
            (before, Some("yesterday"), Some(launched), false),
            (before, Some(before), None, false),
        ] {
            let registration = registration(registered, heartbeat);
            assert!(registration.is_ready);
            assert_eq!(registration.is_of_predecessor(launched), expected, "{registered} {heartbeat:?}");
        }
    }

    #[test]
    fn what_matters_of_a_node_is_read() {
        let node: NodeObject = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "i-1", "resourceVersion": "7", "labels": {"a": "1", "b": "2"}, "managedFields": [
                {"manager": "kops-controller", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                 "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}, "f:c": {}}}}},
                {"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:metadata": {"f:labels": {"f:b": {}, "f:c": {}}}}}]},
            "spec": {"providerID": "aws:///a/i-1", "podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"]},
            "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}
        }))
        .unwrap();
        let node = observed(node);
        assert_eq!((node.name.as_str(), node.provider_id.as_str()), ("i-1", "aws:///a/i-1"));
        assert!(node.has_pod_ranges);
        assert_eq!(node.written_by_us, ["a".to_owned(), "c".to_owned()].into());
        assert_eq!(node.shared, ["c".to_owned()].into());
        let bare: NodeObject =
            serde_json::from_value(json!({"metadata": {"name": "new"}, "spec": {}, "status": {}})).unwrap();
        let bare = observed(bare);
        assert_eq!((bare.provider_id.as_str(), bare.has_pod_ranges), ("", false));
    }
}
