//! Which labels a Node must have, and the patch that gives it them, for the controller of nodes.
//!
//! A label is ours where the group's nodes have it, where it says the role of a node, or where the API server
//! knows that kops-controller wrote it. Nothing else is ever touched.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::identity::Identity;

/// The labels that say what a node is for. A node has exactly those of its group
/// (upstream: `cmd/kops-controller/controllers/node_controller.go`).
const ROLE_LABELS: [&str; 3] = [
    "node-role.kubernetes.io/api-server",
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/node",
];

/// By what name upstream's kops-controller and ours write, which is how the API server knows whose a label is.
pub const FIELD_MANAGER: &str = "kops-controller";

/// A Node, as far as its labels go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedNode {
    /// Its name.
    pub name: String,
    /// `spec.providerID`: by which instance its kubelet, or the cloud's controller, says that it is.
    pub provider_id: String,
    /// All its labels.
    pub labels: BTreeMap<String, String>,
    /// The keys of the labels that [`FIELD_MANAGER`] wrote.
    pub written_by_us: BTreeSet<String>,
    /// Which version of the Node this is.
    pub resource_version: String,
}

/// What must change about the labels of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelPatch {
    /// Labels that are absent or have another value, and the one they get.
    pub set: BTreeMap<String, String>,
    /// Keys of labels that go.
    pub remove: BTreeSet<String>,
}

impl LabelPatch {
    /// The patch as the API server takes it (a merge patch), for this version of the Node and no other.
    pub fn to_json(&self, resource_version: &str) -> Value {
        let set = self.set.iter().map(|(key, value)| (key.clone(), json!(value)));
        let remove = self.remove.iter().map(|key| (key.clone(), Value::Null));
        let labels: serde_json::Map<String, Value> = set.chain(remove).collect();
        json!({ "metadata": { "resourceVersion": resource_version, "labels": labels } })
    }
}

/// The labels that a node must have: those of its group where the state store could be read, else those that its
/// cloud has noted down.
pub fn wanted(identity: &Identity, of_group: Option<&BTreeMap<String, String>>) -> BTreeMap<String, String> {
    let mut labels = of_group.unwrap_or(&identity.noted_labels).clone();
    labels.extend(identity.instance_labels.clone());
    labels
}

/// What must change for a Node to have the wanted labels, if anything.
pub fn diff(observed: &ObservedNode, wanted: &BTreeMap<String, String>) -> Option<LabelPatch> {
    let differs = |(key, value): &(&String, &String)| observed.labels.get(*key) != Some(*value);
    let set: BTreeMap<String, String> =
        wanted.iter().filter(differs).map(|(key, value)| (key.clone(), value.clone())).collect();
    let is_ours = |key: &str| ROLE_LABELS.contains(&key) || observed.written_by_us.contains(key);
    let remove: BTreeSet<String> =
        observed.labels.keys().filter(|key| is_ours(key) && !wanted.contains_key(*key)).cloned().collect();
    (!set.is_empty() || !remove.is_empty()).then_some(LabelPatch { set, remove })
}

/// The keys of the labels in an entry of `metadata.managedFields` (`fieldsV1`), as the API server tells them.
pub fn managed_labels(fields_v1: &Value) -> impl Iterator<Item = &str> {
    let labels = fields_v1.pointer("/f:metadata/f:labels").and_then(Value::as_object);
    labels.into_iter().flat_map(|labels| labels.keys()).filter_map(|key| key.strip_prefix("f:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
        labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn node(present: &[(&str, &str)], ours: &[&str]) -> ObservedNode {
        ObservedNode {
            labels: labels(present),
            written_by_us: ours.iter().map(|key| (*key).to_owned()).collect(),
            ..ObservedNode::default()
        }
    }

    const NODE: (&str, &str) = ("node-role.kubernetes.io/node", "");
    const GROUP: (&str, &str) = ("kops.k8s.io/instancegroup", "nodes");

    #[test]
    fn a_node_as_it_should_be_is_left_alone() {
        let observed = node(&[NODE, GROUP, ("kubernetes.io/hostname", "x")], &[GROUP.0]);
        assert_eq!(diff(&observed, &labels(&[NODE, GROUP])), None);
    }

    #[test]
    fn what_is_absent_or_differs_is_set() {
        let observed = node(&[("kops.k8s.io/instancegroup", "other")], &[]);
        let patch = diff(&observed, &labels(&[NODE, GROUP])).unwrap();
        assert_eq!(patch, LabelPatch { set: labels(&[NODE, GROUP]), remove: BTreeSet::new() });
        assert_eq!(
            patch.to_json("7"),
            json!({"metadata": {"resourceVersion": "7", "labels": {
                "kops.k8s.io/instancegroup": "nodes", "node-role.kubernetes.io/node": ""}}})
        );
    }

    #[test]
    fn roles_and_what_we_wrote_go_and_what_others_wrote_stays() {
        let observed = node(
            &[NODE, ("node-role.kubernetes.io/control-plane", ""), ("team", "a"), ("was-in-group", "1")],
            &["was-in-group", "long-gone"],
        );
        let patch = diff(&observed, &labels(&[NODE])).unwrap();
        let gone = ["node-role.kubernetes.io/control-plane", "was-in-group"].map(str::to_owned);
        assert_eq!(patch, LabelPatch { set: BTreeMap::new(), remove: gone.into() });
        assert_eq!(patch.to_json("1")["metadata"]["labels"]["was-in-group"], Value::Null);
    }

    #[test]
    fn the_group_wins_over_the_clouds_notes_and_the_instance_adds_its_own() {
        let identity = Identity {
            instance_group: "nodes".into(),
            noted_labels: labels(&[("noted", "1"), NODE]),
            instance_labels: labels(&[("node-role.kubernetes.io/spot-worker", "true")]),
        };
        let of_group = labels(&[NODE, GROUP]);
        let spot = ("node-role.kubernetes.io/spot-worker", "true");
        assert_eq!(wanted(&identity, Some(&of_group)), labels(&[NODE, GROUP, spot]));
        assert_eq!(wanted(&identity, None), labels(&[("noted", "1"), NODE, spot]));
    }

    #[test]
    fn the_api_server_tells_who_wrote_a_label() {
        let fields = json!({"f:metadata": {"f:labels": {".": {}, "f:a/b": {}, "f:c": {}}}, "f:spec": {}});
        assert_eq!(managed_labels(&fields).collect::<Vec<_>>(), ["a/b", "c"]);
        assert_eq!(managed_labels(&json!({"f:status": {}})).count(), 0);
    }

    mod properties {
        use proptest::prelude::*;

        use super::*;

        fn some_labels() -> impl Strategy<Value = BTreeMap<String, String>> {
            let key = prop_oneof![
                prop::sample::select(ROLE_LABELS.to_vec()).prop_map(str::to_owned),
                "[a-f]".prop_map(String::from)
            ];
            prop::collection::btree_map(key, "[xy]?", 0..6)
        }

        fn patched(observed: &ObservedNode, patch: &LabelPatch) -> ObservedNode {
            let mut node = observed.clone();
            node.labels.retain(|key, _| !patch.remove.contains(key));
            node.labels.extend(patch.set.clone());
            node.written_by_us.extend(patch.set.keys().cloned());
            node
        }

        proptest! {
            #[test]
            fn one_patch_is_enough_and_touches_nothing_of_others(
                present in some_labels(), wanted in some_labels(), ours in prop::collection::btree_set("[a-f]", 0..6)
            ) {
                let observed = ObservedNode { labels: present, written_by_us: ours, ..ObservedNode::default() };
                let Some(patch) = diff(&observed, &wanted) else { return Ok(()) };
                let after = patched(&observed, &patch);
                prop_assert_eq!(diff(&after, &wanted), None);
                for (key, value) in &observed.labels {
                    let is_ours = wanted.contains_key(key)
                        || ROLE_LABELS.contains(&key.as_str())
                        || observed.written_by_us.contains(key);
                    prop_assert!(is_ours || after.labels.get(key) == Some(value), "{} is not ours", key);
                }
            }
        }
    }
}
