//! The labels that a Node must have, and the patch that sets them. The node controller uses both.
//!
//! The controller changes a label only in one of these cases:
//! * The Node's group has the label.
//! * The label states the Node's role.
//! * The API server records kops-controller as the label's only manager. Labels with a prefix in `DECIDED_HERE` may have further managers.

mod validity;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::identity::Identity;
use kops_agent_spec::{NodeupConfig, SpecError};

pub use validity::{LONGEST, is_domain, is_name};
pub use validity::{problem, retain_valid};

/// The labels that state a node's role. A node has exactly the role labels of its group
/// (upstream: `cmd/kops-controller/controllers/node_controller.go`).
const ROLE_LABELS: [&str; 3] = [
    "node-role.kubernetes.io/api-server",
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/node",
];
/// The label that names a node's instance group.
pub const INSTANCE_GROUP: &str = "kops.k8s.io/instancegroup";
/// The label of the machines that have kops-controller's signing keys. The scheduler places kops-controller's pods by this label (upstream:
/// `BuildMandatoryControlPlaneLabels` in `pkg/nodelabels/builder.go`).
const PKI_LABEL: &str = "kops.k8s.io/kops-controller-pki";
/// The labels of every control plane Node (upstream: `BuildMandatoryControlPlaneLabels`).
pub const OF_ANY_CONTROL_PLANE: [&str; 3] = [
    "node-role.kubernetes.io/control-plane",
    PKI_LABEL,
    "node.kubernetes.io/exclude-from-external-load-balancers",
];

/// Prefixes of the labels that only the controller decides. Operators use these labels to separate trusted workloads from others.
///
/// The admission plugin NodeRestriction forbids a kubelet to set these labels. However, a kubelet may apply a label with its current value,
/// under any manager's name, and becomes a second owner of the label. Therefore a second owner does not protect these labels from removal.
const DECIDED_HERE: [&str; 3] =
    ["node-role.kubernetes.io/", "kops.k8s.io/", "node-restriction.kubernetes.io/"];

/// The field manager name, which upstream's kops-controller and kops-agent's controller share. The API server records this name as the
/// owner of each label that one of these controllers sets.
pub const FIELD_MANAGER: &str = "kops-controller";

/// The observed state of a Node that matters for its labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedNode {
    pub name: String,
    /// `spec.providerID`: the instance that the kubelet or the cloud controller names for this Node.
    pub provider_id: String,
    pub labels: BTreeMap<String, String>,
    /// The keys of the labels that [`FIELD_MANAGER`] owns.
    pub written_by_us: BTreeSet<String>,
    /// The keys in `written_by_us` that a second manager also owns.
    pub shared: BTreeSet<String>,
    /// Whether the Node has pod addresses (`spec.podCIDRs`).
    pub has_pod_ranges: bool,
    pub resource_version: String,
}

/// The labels that a Node must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The labels of the group. The list is complete.
    OfGroup(BTreeMap<String, String>),
    /// The labels that the cloud recorded, used while the state store cannot be read. These labels may be outdated, and some clouds record
    /// few labels. Therefore a label that the controller took from the group earlier stays unchanged.
    Noted(BTreeMap<String, String>),
    /// Some of the labels, used if the group cannot be read and the cloud recorded no labels. All other labels of the Node stay.
    Partial(BTreeMap<String, String>),
    /// The labels that upstream's kops-controller would set: the labels that the cloud recorded.
    AsUpstream(BTreeMap<String, String>),
}

impl Wanted {
    fn labels(&self) -> &BTreeMap<String, String> {
        match self {
            Wanted::OfGroup(labels)
            | Wanted::Noted(labels)
            | Wanted::Partial(labels)
            | Wanted::AsUpstream(labels) => labels,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelPatch {
    /// The labels that are missing or different, with their wanted values.
    pub set: BTreeMap<String, String>,
    /// Keys of the labels to remove.
    pub remove: BTreeSet<String>,
    /// The current values of all labels that the patch changes or removes.
    pub before: BTreeMap<String, String>,
}

impl LabelPatch {
    /// The patch as a JSON merge patch. The API server applies it only if the Node still has this `resource_version`.
    pub fn to_json(&self, resource_version: &str) -> Value {
        let set = self.set.iter().map(|(key, value)| (key.clone(), json!(value)));
        let remove = self.remove.iter().map(|key| (key.clone(), Value::Null));
        let labels: serde_json::Map<String, Value> = set.chain(remove).collect();
        json!({ "metadata": { "resourceVersion": resource_version, "labels": labels } })
    }
}

/// The labels that a node must have: the labels of its group. If the state store cannot be read, these are the labels that the node's cloud
/// recorded.
///
/// A label that the cloud recorded is wanted even if the group no longer has this label. Otherwise, upstream's kops-controller would set
/// the label again whenever it is the leader, until the instance is replaced.
pub fn wanted(identity: &Identity, of_group: Option<&BTreeMap<String, String>>) -> Wanted {
    let mut labels = noted(identity);
    match of_group {
        None if identity.noted_labels.is_empty() => Wanted::Partial(labels),
        None => Wanted::Noted(labels),
        Some(of_group) => {
            labels.extend(of_group.clone());
            labels.extend(identity.proven_labels.clone());
            Wanted::OfGroup(labels)
        }
    }
}

/// The labels that upstream's kops-controller sets on the node (upstream: `IdentifyNode` in `pkg/nodeidentity/aws`, `gce` and `hetzner`).
pub fn wanted_by_upstream(identity: &Identity) -> Wanted {
    Wanted::AsUpstream(noted(identity))
}

fn noted(identity: &Identity) -> BTreeMap<String, String> {
    let mut labels = identity.instance_labels.clone();
    labels.extend(identity.noted_labels.clone());
    labels.extend(identity.proven_labels.clone());
    labels
}

/// The labels that `kops update cluster --yes` set on a group's nodes. They are in the group's `nodeupconfig.yaml` (upstream:
/// `upup/pkg/fi/cloudup/populate_instancegroup_spec.go` writes the labels of `pkg/nodelabels` into the kubelet's configuration). Errors
/// name `url`. A file without a role label is an error: kOps then stores the labels in a different place, and an empty result would be
/// wrong.
pub fn applied(nodeup_config: &[u8], url: &str) -> Result<BTreeMap<String, String>, SpecError> {
    let labels = NodeupConfig::parse(nodeup_config, url)?.kubelet_config.node_labels;
    match ROLE_LABELS.iter().any(|role| labels.contains_key(*role)) {
        true => Ok(labels),
        false => Err(SpecError::of_field(
            url,
            "KubeletConfig.nodeLabels",
            "it has no role label of kOps, such as node-role.kubernetes.io/node",
        )),
    }
}

pub fn have_same_roles(labels: &BTreeMap<String, String>, others: &BTreeMap<String, String>) -> bool {
    ROLE_LABELS.iter().all(|role| labels.contains_key(*role) == others.contains_key(*role))
}

/// The patch that removes the role labels and kops-controller's scheduling label. The patch is for a Node that is definitely not the
/// machine that it claims to be. Returns `None` if the Node has none of these labels.
pub fn without_roles(observed: &ObservedNode) -> Option<LabelPatch> {
    let is_role = |key: &str| ROLE_LABELS.contains(&key) || key == PKI_LABEL;
    let before: BTreeMap<String, String> = observed
        .labels
        .iter()
        .filter(|(key, _)| is_role(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let remove: BTreeSet<String> = before.keys().cloned().collect();
    (!remove.is_empty()).then_some(LabelPatch { set: BTreeMap::new(), remove, before })
}

fn is_decided_here(key: &str) -> bool {
    DECIDED_HERE.iter().any(|prefix| key.starts_with(prefix))
}

/// The patch that gives a Node the wanted labels. `None` if the Node already has them.
pub fn diff(observed: &ObservedNode, wanted: &Wanted) -> Option<LabelPatch> {
    let labels = wanted.labels();
    let is_written_by_us = |key: &str| observed.written_by_us.contains(key);
    let is_shared = |key: &str| observed.shared.contains(key) && !is_decided_here(key);
    let is_ours_alone = |key: &str| is_written_by_us(key) && !is_shared(key);
    let may_be_set = |key: &str| match wanted {
        Wanted::OfGroup(_) | Wanted::Partial(_) | Wanted::AsUpstream(_) => true,
        Wanted::Noted(_) => !(is_written_by_us(key) && observed.labels.contains_key(key)),
    };
    let may_be_removed = |key: &str| match wanted {
        Wanted::OfGroup(_) => ROLE_LABELS.contains(&key) || is_ours_alone(key),
        Wanted::Noted(_) => ROLE_LABELS.contains(&key) && !is_written_by_us(key),
        Wanted::Partial(_) => false,
        Wanted::AsUpstream(_) => ROLE_LABELS.contains(&key),
    };
    let set: BTreeMap<String, String> = labels
        .iter()
        .filter(|(key, value)| observed.labels.get(*key) != Some(*value) && may_be_set(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let remove: BTreeSet<String> = observed
        .labels
        .keys()
        .filter(|key| !labels.contains_key(*key) && may_be_removed(key))
        .cloned()
        .collect();
    let is_changed = |key: &String| set.contains_key(key) || remove.contains(key);
    let before = observed.labels.iter().filter(|(key, _)| is_changed(key));
    let before = before.map(|(key, value)| (key.clone(), value.clone())).collect();
    (!set.is_empty() || !remove.is_empty()).then_some(LabelPatch { set, remove, before })
}

/// The keys of the labels in an entry of `metadata.managedFields` (`fieldsV1`).
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

    fn of_group(wanted: &[(&str, &str)]) -> Wanted {
        Wanted::OfGroup(labels(wanted))
    }

    const NODE: (&str, &str) = ("node-role.kubernetes.io/node", "");
    const GROUP: (&str, &str) = ("kops.k8s.io/instancegroup", "nodes");

    #[test]
    fn a_node_with_correct_labels_gets_no_patch() {
        let observed = node(&[NODE, GROUP, ("kubernetes.io/hostname", "x")], &[GROUP.0]);
        assert_eq!(diff(&observed, &of_group(&[NODE, GROUP])), None);
    }

    #[test]
    fn missing_and_different_labels_are_set() {
        let observed = node(&[("kops.k8s.io/instancegroup", "other")], &[]);
        let patch = diff(&observed, &of_group(&[NODE, GROUP])).unwrap();
        let before = labels(&[("kops.k8s.io/instancegroup", "other")]);
        assert_eq!(patch, LabelPatch { set: labels(&[NODE, GROUP]), remove: BTreeSet::new(), before });
        assert_eq!(
            patch.to_json("7"),
            json!({"metadata": {"resourceVersion": "7", "labels": {
                "kops.k8s.io/instancegroup": "nodes", "node-role.kubernetes.io/node": ""}}})
        );
    }

    #[test]
    fn stale_roles_and_our_own_stale_labels_are_removed() {
        let observed = node(
            &[NODE, ("node-role.kubernetes.io/control-plane", ""), ("team", "a"), ("was-in-group", "1")],
            &["was-in-group", "long-gone"],
        );
        let patch = diff(&observed, &of_group(&[NODE])).unwrap();
        let gone = [("node-role.kubernetes.io/control-plane", ""), ("was-in-group", "1")];
        assert_eq!(patch.remove, gone.iter().map(|(key, _)| (*key).to_owned()).collect());
        assert_eq!((patch.set.clone(), patch.before.clone()), (BTreeMap::new(), labels(&gone)));
        assert_eq!(patch.to_json("1")["metadata"]["labels"]["was-in-group"], Value::Null);
    }

    #[test]
    fn proven_labels_override_the_group_which_overrides_recorded_labels() {
        const SPOT: (&str, &str) = ("node-role.kubernetes.io/spot-worker", "true");
        let identity = Identity {
            instance_group: "nodes".into(),
            noted_labels: labels(&[("noted", "1"), NODE]),
            instance_labels: labels(&[SPOT]),
            proven_labels: labels(&[GROUP]),
        };
        let with_noted = of_group(&[("noted", "1"), NODE, GROUP, SPOT]);
        assert_eq!(wanted(&identity, Some(&labels(&[NODE]))), with_noted);
        assert_eq!(wanted(&identity, None), Wanted::Noted(labels(&[("noted", "1"), NODE, SPOT, GROUP])));
        let with_its_own = labels(&[(SPOT.0, ""), (GROUP.0, "mine")]);
        let with_its_own = wanted(&identity, Some(&with_its_own));
        assert_eq!(with_its_own, of_group(&[("noted", "1"), NODE, (SPOT.0, ""), GROUP]));
        assert_eq!(
            wanted_by_upstream(&identity),
            Wanted::AsUpstream(labels(&[("noted", "1"), NODE, SPOT, GROUP]))
        );
        let with_its_own = Identity { noted_labels: labels(&[(SPOT.0, "")]), ..identity };
        assert_eq!(wanted(&with_its_own, None), Wanted::Noted(labels(&[(SPOT.0, ""), GROUP])));
    }

    #[test]
    fn our_own_labels_stay_while_the_group_cannot_be_read() {
        let labelled = node(
            &[NODE, ("tier", "web"), ("edited", "since"), ("node-role.kubernetes.io/api-server", "")],
            &[NODE.0, "tier", "edited"],
        );
        let noted = Wanted::Noted(labels(&[("edited", "at launch"), ("new", "1")]));
        let patch = diff(&labelled, &noted).unwrap();
        assert_eq!(patch.set, labels(&[("new", "1")]));
        assert_eq!(patch.remove, ["node-role.kubernetes.io/api-server".to_owned()].into());
        let others = node(&[("edited", "by hand")], &[]);
        assert_eq!(diff(&others, &noted).unwrap().set, labels(&[("edited", "at launch"), ("new", "1")]));
    }

    #[test]
    fn without_a_source_of_labels_none_are_removed() {
        let identity = Identity {
            instance_group: "nodes".into(),
            proven_labels: labels(&[GROUP]),
            ..Identity::default()
        };
        let wanted = wanted(&identity, None);
        assert_eq!(wanted, Wanted::Partial(labels(&[GROUP])));
        let patch = diff(&node(&[NODE, ("ours", "1")], &["ours"]), &wanted).unwrap();
        assert_eq!((patch.set, patch.remove), (labels(&[GROUP]), BTreeSet::new()));
    }

    #[test]
    fn labels_in_the_tags_stay_and_our_other_labels_are_removed() {
        let identity = Identity {
            instance_group: "nodes".into(),
            noted_labels: labels(&[NODE, ("tier", "at launch"), ("dropped", "1")]),
            ..Identity::default()
        };
        // The tags still have the label `dropped`, which kOps has removed from the group. The tags never had the label `ours`.
        let observed = node(
            &[NODE, ("tier", "at launch"), ("dropped", "1"), ("ours", "1")],
            &["tier", "dropped", "ours"],
        );
        let applied = labels(&[NODE, ("tier", "web")]);
        let patch = diff(&observed, &wanted(&identity, Some(&applied))).unwrap();
        assert_eq!(patch.set, labels(&[("tier", "web")]));
        assert_eq!(patch.remove, ["ours".to_owned()].into());
        // Upstream only knows the tags, and removes only role labels.
        assert_eq!(diff(&observed, &wanted_by_upstream(&identity)), None);
        let mut edited = observed;
        edited.labels.insert("tier".into(), "web".into());
        edited.labels.insert("node-role.kubernetes.io/api-server".into(), String::new());
        let patch = diff(&edited, &wanted_by_upstream(&identity)).unwrap();
        assert_eq!(patch.set, labels(&[("tier", "at launch")]));
        assert_eq!(patch.remove, ["node-role.kubernetes.io/api-server".to_owned()].into());
    }

    #[test]
    fn labels_that_another_manager_also_owns_stay() {
        let mut observed = node(&[NODE, ("ours", "1"), ("theirs-too", "1")], &["ours", "theirs-too"]);
        observed.shared = ["theirs-too".to_owned()].into();
        let patch = diff(&observed, &of_group(&[NODE])).unwrap();
        assert_eq!(patch.remove, ["ours".to_owned()].into());
    }

    #[test]
    fn a_second_owner_does_not_protect_labels_that_the_controller_decides() {
        let decided =
            ["node-role.kubernetes.io/gpu", "kops.k8s.io/gpu", "node-restriction.kubernetes.io/pci"];
        let others =
            ["team", "feature.node.kubernetes.io/cpu", "xkops.k8s.io/gpu", "node-role.kubernetes.iox/gpu"];
        let all: Vec<(&str, &str)> = decided.iter().chain(&others).map(|key| (*key, "")).collect();
        let keys: Vec<&str> = all.iter().map(|(key, _)| *key).collect();
        let mut observed = node(&all, &keys);
        // A compromised kubelet becomes a second owner of every label.
        observed.shared = keys.iter().map(|key| (*key).to_owned()).collect();
        let patch = diff(&observed, &of_group(&[NODE])).unwrap();
        assert_eq!(patch.remove, decided.map(str::to_owned).into());
        // The patch keeps labels that only an operator has set.
        observed.written_by_us = BTreeSet::new();
        assert_eq!(diff(&observed, &of_group(&[NODE])).unwrap().remove, BTreeSet::new());
    }

    #[test]
    fn an_impostor_loses_its_role_labels() {
        const ROLE: (&str, &str) = ("node-role.kubernetes.io/control-plane", "");
        const PKI: (&str, &str) = (PKI_LABEL, "");
        let impostor = node(&[ROLE, PKI, NODE, GROUP, ("team", "a")], &[]);
        let patch = without_roles(&impostor).unwrap();
        assert_eq!((patch.set, patch.before), (BTreeMap::new(), labels(&[ROLE, PKI, NODE])));
        assert_eq!(patch.remove.len(), 3);
        assert_eq!(without_roles(&node(&[GROUP, ("team", "a")], &[GROUP.0])), None);
    }

    #[test]
    fn applied_labels_are_read_from_the_nodeup_config() {
        let text = b"{KubeletConfig: {nodeLabels: {tier: web, node-role.kubernetes.io/node: ''}}, New: 1}";
        assert_eq!(applied(text, "nodeupconfig.yaml").unwrap(), labels(&[NODE, ("tier", "web")]));
        for elsewhere in ["{Labels: {tier: web}}", "{KubeletConfig: {nodeLabels: {tier: web}}}"] {
            let error = applied(elsewhere.as_bytes(), "s3://b/nodeupconfig.yaml").unwrap_err().to_string();
            assert!(error.contains("KubeletConfig.nodeLabels"), "{error}");
        }
    }

    #[test]
    fn managed_fields_name_the_owned_labels() {
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
            fn one_patch_gives_the_wanted_labels_and_keeps_others(
                present in some_labels(),
                labels in some_labels(),
                kind in prop::sample::select(vec![Wanted::OfGroup, Wanted::Noted, Wanted::Partial, Wanted::AsUpstream]),
                ours in prop::collection::btree_set("[a-f]", 0..6),
                shared in prop::collection::btree_set("[a-f]", 0..3),
            ) {
                let wanted = kind(labels);
                let observed =
                    ObservedNode { labels: present, written_by_us: ours, shared, ..ObservedNode::default() };
                let Some(patch) = diff(&observed, &wanted) else { return Ok(()) };
                let after = patched(&observed, &patch);
                prop_assert_eq!(diff(&after, &wanted), None);
                for (key, value) in &observed.labels {
                    let is_ours = wanted.labels().contains_key(key)
                        || ROLE_LABELS.contains(&key.as_str())
                        || observed.written_by_us.contains(key) && !observed.shared.contains(key);
                    prop_assert!(is_ours || after.labels.get(key) == Some(value), "{} is not ours", key);
                }
            }
        }
    }
}
