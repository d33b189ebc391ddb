//! Watches, reads and patches Nodes on the API server.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use k8s_openapi::jiff::Timestamp;
use kops_agent_cluster::fleet::{CONDITION, EARLY_WARNINGS, known_boot_id};
use kops_agent_cluster::labels::{FIELD_MANAGER, ObservedNode, managed_labels};
use kops_agent_cluster::pod_ranges::NodePatch;
use kube::api::{Api, ListParams, Patch, PatchParams, ValidationDirective};
use kube::core::{ApiResource, Object, Request};
use kube::{Client, Error};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::api_error::{ApiError, answer};

/// The type of the condition by which kubelet reports that the Node is ready.
pub const READY: &str = "Ready";

/// A Node with only the fields that the agent uses. A cluster may have thousands of Nodes.
pub type NodeObject = Object<NodeSpec, NodeStatus>;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    #[serde(rename = "providerID")]
    provider_id: String,
    #[serde(rename = "podCIDRs")]
    pod_cidrs: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeStatus {
    #[serde(deserialize_with = "conditions_that_matter")]
    conditions: Vec<Condition>,
    /// The first address of type `InternalIP`, as kubelet or the cloud reports it. The text may be no IP address.
    #[serde(rename = "addresses", deserialize_with = "first_internal_ip")]
    pub(crate) internal_ip_text: Option<String>,
    pub node_info: NodeInfo,
}

#[derive(Deserialize)]
struct Address {
    #[serde(rename = "type")]
    type_: String,
    address: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeInfo {
    pub kubelet_version: String,
    pub container_runtime_version: String,
    /// The architecture in Go's spelling, such as `amd64`.
    pub architecture: String,
    /// The boot ID that kubelet reports. Empty if kubelet has not reported a valid ID.
    #[serde(rename = "bootID", deserialize_with = "boot_id")]
    pub boot_id: String,
}

/// A condition of a Node. Kubernetes writes an unknown time as null.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    pub reason: String,
    pub message: String,
    /// The time of the last report, in RFC 3339.
    pub last_heartbeat_time: Option<String>,
    /// The time of the last change of the status, in RFC 3339.
    pub last_transition_time: Option<String>,
}

impl NodeStatus {
    /// The condition of type `wanted`. Only [`READY`], [`CONDITION`] and [`EARLY_WARNINGS`] are kept in memory.
    pub fn condition(&self, wanted: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == wanted)
    }

    /// The first address of type `InternalIP`. `None` if there is no such address, or if it is not an IP address.
    pub fn internal_ip(&self) -> Option<IpAddr> {
        self.internal_ip_text.as_ref()?.parse().ok()
    }
}

/// What the cluster knows about a Node whose name a new machine wants to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    pub is_ready: bool,
    /// When the Node was registered, in seconds since 1970, by the API server's clock.
    registered: Option<i64>,
    /// When kubelet last reported the condition of the Node, in seconds since 1970, by the clock of the Node's
    /// machine.
    last_heartbeat: Option<i64>,
}

impl Registration {
    fn from_node(node: &NodeObject) -> Registration {
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

    /// Whether the Node belongs to an earlier machine of the same name: kubelet registered the Node and last reported
    /// its condition before `launched`, when the present machine started. `false` if one of these times is unknown.
    pub fn is_of_predecessor(self, launched: Option<i64>) -> bool {
        match (self.registered, self.last_heartbeat, launched) {
            (Some(registered), Some(heartbeat), Some(launched)) => {
                registered < launched && heartbeat < launched
            }
            _ => false,
        }
    }
}

fn boot_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    String::deserialize(deserializer).map(known_boot_id)
}

fn first_internal_ip<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let addresses = Option::<Vec<Address>>::deserialize(deserializer)?.unwrap_or_default();
    let internal = addresses.into_iter().find(|address| address.type_ == "InternalIP");
    Ok(internal.map(|internal| internal.address))
}

pub fn pods_on(node: &str) -> ListParams {
    ListParams::default().fields(&format!("spec.nodeName={node}"))
}

/// Keeps only the conditions that the agent uses. A page of a list has thousands of other conditions, and each is
/// freed before the next one is parsed.
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
                let type_ = condition.type_.as_str();
                if [READY, CONDITION].contains(&type_) || EARLY_WARNINGS.contains(&type_) {
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

#[derive(Clone)]
pub struct Nodes {
    client: Client,
    api: Api<NodeObject>,
}

impl Nodes {
    pub fn new(client: Client) -> Nodes {
        Nodes { api: Api::all_with(client.clone(), &resource()), client }
    }

    /// The API for listing and watching Nodes.
    pub fn api(&self) -> Api<NodeObject> {
        self.api.clone()
    }

    /// Checks that this process may read Nodes, by reading a Node that need not exist.
    pub async fn can_be_read(&self) -> Result<(), Error> {
        self.api.get_opt("kops-agent").await.map(drop)
    }

    /// Returns the registration of a Node; `None` if the Node does not exist.
    pub async fn registration(&self, name: &str) -> Result<Option<Registration>, Error> {
        Ok(self.api.get_opt(name).await?.map(|node| Registration::from_node(&node)))
    }

    /// Returns the `spec.providerID` of a Node; `None` if the Node does not exist.
    pub async fn provider_id(&self, name: &str) -> Result<Option<String>, Error> {
        Ok(self.api.get_opt(name).await?.map(|node| node.spec.provider_id))
    }

    /// Returns the labels of a Node; `None` if the Node does not exist.
    pub async fn labels(&self, name: &str) -> Result<Option<BTreeMap<String, String>>, Error> {
        Ok(self.api.get_opt(name).await?.map(|node| node.metadata.labels.unwrap_or_default()))
    }

    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Sets an annotation of a Node, as [`Nodes::annotate_all`] does.
    pub async fn annotate(
        &self,
        manager: &str,
        name: &str,
        annotation: &str,
        value: Value,
    ) -> Result<(), ApiError> {
        self.annotate_all(manager, name, &json!({annotation: value})).await
    }

    /// Sets annotations of a Node, with `manager` as the field manager. A null value removes its annotation. If the
    /// Node is missing, fails with 404.
    pub async fn annotate_all(&self, manager: &str, name: &str, annotations: &Value) -> Result<(), ApiError> {
        let parameters = PatchParams { field_manager: Some(manager.into()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        let nodes = Request::new(self.api.resource_url());
        let request = nodes.patch(name, &parameters, &patch);
        let request = request.map_err(|error| ApiError::Unanswered(error.to_string()))?;
        answer(self.client.request_text(request)).await.map(drop)
    }

    /// Patches a Node if its version is the version of `node`. Returns the patched Node as text. Fails with 409 if
    /// the Node has another version, and with 404 if the Node is missing.
    pub async fn patch(&self, node: &ObservedNode, patch: &NodePatch) -> Result<String, Error> {
        let parameters = PatchParams {
            field_manager: Some(FIELD_MANAGER.into()),
            // Without this setting, the API server searches the patch for unknown fields and warns about them. All
            // API servers know the patched fields.
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

/// The fields of a Node that a reconcile needs.
pub fn observed(node: NodeObject) -> Arc<ObservedNode> {
    let metadata = node.metadata;
    let entries = || metadata.managed_fields.iter().flatten();
    // An entry with the operation `Apply` is not from this program, because this program only sends updates. Another
    // client may apply its own labels under the same manager name. If those labels counted as this program's
    // labels, this program would remove them.
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

/// The keys of the labels in `entries`.
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
    fn a_boot_id_without_limits_is_unknown() {
        let boot_id = |reported: &str| {
            let status = json!({"nodeInfo": {"bootID": reported}});
            serde_json::from_value::<NodeStatus>(status).unwrap().node_info.boot_id
        };
        let known = "0f6cf5a6-4c3b-4c6e-9d0c-2d8d1f1c9a11";
        assert_eq!(boot_id(known), known);
        for other in ["", "a b", "\u{1b}[2J", &"b".repeat(65), &"b".repeat(1 << 20)] {
            assert_eq!(boot_id(other), "");
        }
    }

    #[test]
    fn the_address_of_a_machine_is_the_first_internal_ip() {
        let internal_ip = |addresses: Value| {
            let status = json!({"addresses": addresses});
            serde_json::from_value::<NodeStatus>(status).unwrap().internal_ip().map(|ip| ip.to_string())
        };
        let address = |kind: &str, address: &str| json!({"type": kind, "address": address});
        let addresses = [
            address("Hostname", "i-1"),
            address("ExternalIP", "192.0.2.1"),
            address("InternalIP", "fd00::1"),
            address("InternalIP", "10.0.0.1"),
        ];
        assert_eq!(internal_ip(json!(addresses)).as_deref(), Some("fd00::1"));
        for without in [json!(null), json!([]), json!(addresses[..2]), json!([address("InternalIP", "i-1")])]
        {
            assert_eq!(internal_ip(without), None);
        }
    }

    #[test]
    fn fields_applied_under_our_name_by_another_are_not_ours() {
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
            Registration::from_node(&node)
        };
        let (before, launched, after) = ("2026-01-01T10:00:00Z", 1_767_261_660, "2026-01-01T10:02:00Z");
        for (registered, heartbeat, launched, expected) in [
            (before, Some(before), Some(launched), true),
            (before, Some(after), Some(launched), false),
            // The clock of the Node's machine is slow.
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
    fn an_observed_node_has_its_identity_pod_ranges_and_label_owners() {
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
