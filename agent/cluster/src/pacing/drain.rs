//! A drain: a run cordons its node, evicts the pods and later uncordons the node. This module computes the patches of the Node,
//! and the pods to evict, from the API server's objects.
//!
//! A drain evicts the pods that `kops rolling-update cluster` evicts, with kubectl's drain and its options `--force`,
//! `--ignore-daemonsets` and `--delete-emptydir-data` (kops: `pkg/instancegroups/instancegroups.go`; kubectl:
//! `pkg/drain/filters.go`).

use kops_agent_spec::invalid::Invalid;
use kops_agent_spec::timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use time::OffsetDateTime;

/// The annotation of a Node that a run has cordoned, with the time. A cordon without this annotation is an operator's, and runs
/// do not remove that cordon.
pub const CORDONED: &str = "kops-agent/cordoned-since";

/// The annotation of a mirror pod, which represents a static pod (`k8s.io/api/core/v1`, `MirrorPodAnnotationKey`).
pub const MIRROR: &str = "kubernetes.io/config.mirror";

/// The time of a cordon for [`CORDONED`]. `now` is the time by the node's clock. `ordered` is the time of the node's order to reboot, by
/// the controller's clock. The cordon gets the later of both times, because a cordon before the order does not count as a drain for this
/// order.
pub fn cordon_time(now: OffsetDateTime, ordered: Option<OffsetDateTime>) -> String {
    timestamp(ordered.map_or(now, |ordered| ordered.max(now)))
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cordon {
    /// Whether the Node is unschedulable.
    pub is_cordoned: bool,
    /// Whether a run has cordoned the Node.
    pub is_of_a_run: bool,
    resource_version: Value,
}

impl Cordon {
    /// Reads the API server's object of a Node.
    pub fn from_node(node: &Value) -> Cordon {
        let annotations = &node["metadata"]["annotations"];
        Cordon {
            is_cordoned: node["spec"]["unschedulable"] == true,
            is_of_a_run: annotations.get(CORDONED).is_some(),
            resource_version: node["metadata"]["resourceVersion"].clone(),
        }
    }

    /// The merge patch with which a run cordons the Node; `None` if an operator has already cordoned it. If a killed run has left a cordon,
    /// the patch changes the cordon's time to `now`, because the controller compares the cordon's time with the time of the order to
    /// reboot.
    pub fn cordoned(&self, now: &str) -> Option<Value> {
        (!self.is_cordoned || self.is_of_a_run).then(|| self.patch(&json!(now), &json!(true)))
    }

    /// The merge patch that removes a run's cordon; `None` if no run has cordoned the Node.
    pub fn uncordoned(&self) -> Option<Value> {
        self.is_of_a_run.then(|| self.patch(&Value::Null, &Value::Null))
    }

    /// A merge patch that the API server accepts only if the Node has not changed since it was read.
    fn patch(&self, annotation: &Value, unschedulable: &Value) -> Value {
        json!({
            "metadata": {"resourceVersion": self.resource_version, "annotations": {CORDONED: annotation}},
            "spec": {"unschedulable": unschedulable},
        })
    }
}

/// A pod to evict from a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    pub namespace: String,
    pub name: String,
    /// The pod's UID. A new pod of this name has a different UID.
    pub uid: String,
    /// Whether the pod has no controller that would replace it.
    pub is_bare: bool,
    /// Whether the pod is already terminating.
    pub is_ending: bool,
}

impl Leaving {
    /// The Eviction of this pod. The UID protects a new pod of this name.
    pub fn eviction(&self) -> Value {
        json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"namespace": self.namespace, "name": self.name},
            "deleteOptions": {"preconditions": {"uid": self.uid}},
        })
    }
}

/// The pods to evict, from the API server's list of a node's pods.
pub fn leaving(pods: Value) -> Result<Vec<Leaving>, Invalid> {
    let pods: Pods = serde_json::from_value(pods).map_err(|error| Invalid::new(error.to_string()))?;
    Ok(pods.items.into_iter().map(|pod| pod.metadata).filter_map(one_leaving).collect())
}

fn one_leaving(pod: Metadata) -> Option<Leaving> {
    let controller = pod.owner_references.iter().find(|owner| owner.controller);
    let is_mirror = pod.annotations.get(MIRROR).is_some();
    if is_mirror || controller.is_some_and(|owner| owner.kind == "DaemonSet") {
        return None;
    }
    let (is_bare, is_ending) = (controller.is_none(), pod.deletion_timestamp.is_some());
    Some(Leaving { namespace: pod.namespace, name: pod.name, uid: pod.uid, is_bare, is_ending })
}

#[derive(Deserialize)]
struct Pods {
    items: Vec<Pod>,
}

#[derive(Deserialize)]
struct Pod {
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    namespace: String,
    name: String,
    uid: String,
    annotations: Value,
    owner_references: Vec<Owner>,
    deletion_timestamp: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Owner {
    kind: String,
    controller: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(unschedulable: &Value, annotations: &Value) -> Cordon {
        Cordon::from_node(&json!({
            "metadata": {"resourceVersion": "7", "annotations": annotations}, "spec": {"unschedulable": unschedulable},
        }))
    }

    #[test]
    fn only_a_runs_cordon_is_removed() {
        let open = node(&Value::Null, &Value::Null);
        let cordoned = open.cordoned("now").unwrap();
        assert_eq!(cordoned["spec"]["unschedulable"], true);
        assert_eq!(cordoned["metadata"], json!({"resourceVersion": "7", "annotations": {CORDONED: "now"}}));
        assert_eq!(open.uncordoned(), None);

        let ours = node(&json!(true), &json!({CORDONED: "then"}));
        assert_eq!(ours.cordoned("now"), Some(cordoned), "the cordon has a new time");
        let uncordoned = ours.uncordoned().unwrap();
        assert_eq!(uncordoned["spec"], json!({"unschedulable": null}));
        assert_eq!(uncordoned["metadata"]["annotations"], json!({CORDONED: null}));

        let operators = node(&json!(true), &json!({"a": "b"}));
        assert_eq!((operators.cordoned("now"), operators.uncordoned()), (None, None));
        // An operator's uncordon does not remove the annotation.
        assert!(node(&json!(false), &json!({CORDONED: "then"})).cordoned("now").is_some());
    }

    #[test]
    fn a_cordon_is_never_earlier_than_its_order() {
        let now = OffsetDateTime::UNIX_EPOCH;
        let hour = time::Duration::HOUR;
        assert_eq!(cordon_time(now, None), "1970-01-01T00:00:00Z");
        assert_eq!(cordon_time(now, Some(now + hour)), "1970-01-01T01:00:00Z", "the node's clock is behind");
        assert_eq!(cordon_time(now + hour, Some(now)), "1970-01-01T01:00:00Z", "the order waited for a slot");
    }

    #[test]
    fn pods_of_daemon_sets_and_static_pods_stay() {
        let pod = |name: &str, more: Value| {
            let mut metadata = json!({"namespace": "n", "name": name, "uid": format!("uid-{name}")});
            metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"metadata": metadata, "spec": {}, "status": {}})
        };
        let owned = |kind: &str| json!({"ownerReferences": [{"kind": kind, "controller": true}]});
        let pods = json!({"items": [
            pod("web", owned("ReplicaSet")), pod("proxy", owned("DaemonSet")), pod("bare", json!({})),
            pod("etcd", json!({"annotations": {MIRROR: "x"}, "ownerReferences": [{"kind": "Node", "controller": true}]})),
            pod("ending", json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": [{"kind": "DaemonSet"}]})),
        ]});
        let leaving = leaving(pods).unwrap();
        let told: Vec<_> =
            leaving.iter().map(|pod| (pod.name.as_str(), pod.is_bare, pod.is_ending)).collect();
        assert_eq!(told, [("web", false, false), ("bare", true, false), ("ending", true, true)]);
        assert_eq!(leaving[0].eviction()["deleteOptions"], json!({"preconditions": {"uid": "uid-web"}}));
        assert!(super::leaving(json!({"kind": "Status"})).is_err());
    }
}
