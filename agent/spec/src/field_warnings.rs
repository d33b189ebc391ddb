//! Warnings about fields of a user's file that have no effect or are deprecated: misspelled fields, fields that
//! kOps dropped, and deprecated fields. kOps ignores them silently; `kops-agent config check` reports them.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::terminal::shortened;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldWarning {
    /// The field's path, as the file spells it.
    pub field: String,
    /// The problem of the field, and what to do about it.
    pub problem: &'static str,
}

impl fmt::Display for FieldWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

const UNKNOWN: &str =
    "is not read: misspelled, at the wrong place, or of another release of kOps; correct or remove it";

pub(super) const OF_GOSSIP: &str = "has no effect with kOps 1.37 and newer, which have no gossip DNS; kOps up to 1.36 uses it in *.k8s.local clusters";
pub(super) const OF_CLASSIC_LOAD_BALANCER: &str = "has no effect with kOps 1.37 and newer, which have no classic load balancers; kOps up to 1.36 uses it for these on AWS";

/// Fields that kOps' API marks as deprecated, removed or unused (pkg/apis/kops/v1alpha2), each with its
/// warning. A `*` stands for any text within one part of the path.
const KNOWN: &[(&str, &str)] = &[
    ("spec.api.loadBalancer.accessLog.interval", OF_CLASSIC_LOAD_BALANCER),
    ("spec.api.loadBalancer.idleTimeoutSeconds", OF_CLASSIC_LOAD_BALANCER),
    ("spec.containerRuntime", "was removed: containerd is the only runtime; remove it"),
    ("spec.dnsControllerGossipConfig", OF_GOSSIP),
    ("spec.docker", "was removed with Docker; remove it"),
    ("spec.etcdClusters[*].enableEtcdTLS", "is unused: etcd always uses TLS; remove it"),
    ("spec.etcdClusters[*].enableTLSAuth", "is unused: etcd always asks for client certificates; remove it"),
    ("spec.etcdClusters[*].image", "is unused: etcd-manager brings etcd; remove it"),
    ("spec.gossipConfig", OF_GOSSIP),
    ("spec.kubeAPIServer.address", "is deprecated; use bindAddress"),
    ("spec.kubeAPIServer.admissionControl", "is deprecated; use enableAdmissionPlugins"),
    (
        "spec.kubeControllerManager.experimentalClusterSigningDuration",
        "is deprecated; use ClusterSigningDuration",
    ),
    ("spec.kubeDNS.image", "is unused; use coreDNSImage"),
    ("spec.kubeDNS.replicas", "is unused: the number of servers follows from the cluster's size; remove it"),
    (
        "spec.kubeScheduler.usePolicyConfigMap",
        "is deprecated; add a KubeSchedulerConfiguration to the cluster's additional objects",
    ),
    ("spec.*.cgroupDriver", "is deprecated: kubelet asks the container runtime; remove it"),
    ("spec.*.dockerDisableSharedPID", "was removed with Docker; remove it"),
    (
        "spec.*.podInfraContainerImage",
        "has no effect with kOps 1.35 and newer, where the container runtime knows its sandbox image: remove it after the upgrade; kOps 1.34 gives an instance group's image to kubelet and containerd, and replaces a cluster's by its own",
    ),
    ("spec.masterInternalName", "is unused; remove it"),
    (
        "spec.networking.calico.crossSubnet",
        "has had no effect since kOps 1.22; use encapsulationMode, ipipMode and vxlanMode",
    ),
    ("spec.networking.calico.majorVersion", "is unused; remove it"),
    ("spec.networking.canal.disableTxChecksumOffloading", "is unused; remove it"),
    ("spec.networking.flannel.disableTxChecksumOffloading", "is unused; remove it"),
    ("spec.networking.lyftvpc", "was removed in kOps 1.23; choose another network plugin"),
    ("spec.networking.romana", "was removed in kOps 1.19; choose another network plugin"),
    ("spec.rootVolumeDeleteOnTermination", "is unused: root volumes go with their machine; remove it"),
    ("spec.topology.bastion.idleTimeoutSeconds", "is unused; remove it"),
];

/// The maximum length of a field's name in a path, in characters. Longer names are cut, because the path of every field below a field
/// repeats the field's name.
pub(super) const LONGEST_NAME: usize = 300;

/// All warnings about a document. `ignored` lists the fields that the agent does not read.
pub(super) fn warnings(document: &Value, ignored: Vec<String>) -> Vec<FieldWarning> {
    let mut found: BTreeMap<String, &'static str> = ignored
        .into_iter()
        .map(|field| {
            let problem = advice(&field).unwrap_or(UNKNOWN);
            (field, problem)
        })
        .collect();
    add_known_below(document, "", KNOWN, &mut found);
    found.into_iter().map(|(field, problem)| FieldWarning { field, problem }).collect()
}

fn advice(field: &str) -> Option<&'static str> {
    KNOWN.iter().find(|(pattern, _)| matches(pattern, field)).map(|(_, advice)| *advice)
}

fn matches(pattern: &str, field: &str) -> bool {
    let (mut wanted, mut parts) = (pattern.split('.'), field.split('.'));
    loop {
        match (wanted.next(), parts.next()) {
            (None, None) => return true,
            (Some(wanted), Some(part)) if part_matches(wanted, part) => {}
            _ => return false,
        }
    }
}

fn part_matches(wanted: &str, part: &str) -> bool {
    match wanted.split_once('*') {
        Some((start, end)) => {
            part.len() >= start.len() + end.len() && part.starts_with(start) && part.ends_with(end)
        }
        None => wanted == part,
    }
}

type Patterns = [(&'static str, &'static str)];

/// Adds to `found` the fields of a mapping that match a pattern, at any depth. `path` is the path of the mapping. The patterns are relative
/// to this path.
fn add_known_below(
    mapping: &Value,
    path: &str,
    patterns: &Patterns,
    found: &mut BTreeMap<String, &'static str>,
) {
    let Value::Object(fields) = mapping else { return };
    if patterns.is_empty() {
        return;
    }
    for (name, field) in fields {
        let name = shortened(name, LONGEST_NAME);
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        add_known(field, &path, &name, patterns, found);
    }
}

/// Adds to `found` this field, if it matches a pattern, and the matching fields below it. `part` is the last part of `path`. The first part
/// of a pattern must match `part`.
fn add_known(
    field: &Value,
    path: &str,
    part: &str,
    patterns: &Patterns,
    found: &mut BTreeMap<String, &'static str>,
) {
    if field.is_null() {
        return;
    }
    let mut below = Vec::new();
    for &(pattern, problem) in patterns {
        match pattern.split_once('.') {
            None if part_matches(pattern, part) => {
                found.entry(path.to_owned()).or_insert(problem);
            }
            Some((wanted, rest)) if part_matches(wanted, part) => below.push((rest, problem)),
            _ => {}
        }
    }
    add_known_below(field, path, &below, found);
    if let Value::Array(items) = field {
        for (index, item) in items.iter().enumerate() {
            add_known(item, &format!("{path}[{index}]"), &format!("{part}[{index}]"), patterns, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(document: Value, ignored: &[&str]) -> Vec<String> {
        let ignored = ignored.iter().map(|field| (*field).to_owned()).collect();
        warnings(&document, ignored).iter().map(|warning| warning.field.clone()).collect()
    }

    #[test]
    fn deprecated_fields_give_a_warning_at_any_depth() {
        let document = json!({"spec": {
            "kubelet": {"cgroupDriver": "systemd", "maxPods": 1},
            "masterKubelet": {"cgroupDriver": null},
            "etcdClusters": [{"name": "main"}, {"image": "x"}],
            "kubeAPIServer": {"admissionControl": ["A"]},
        }});
        assert_eq!(
            told(document, &[]),
            [
                "spec.etcdClusters[1].image",
                "spec.kubeAPIServer.admissionControl",
                "spec.kubelet.cgroupDriver"
            ]
        );
    }

    #[test]
    fn the_path_of_a_warning_is_short() {
        let name = "k".repeat(100_000);
        let fields = told(json!({"spec": {name: {"cgroupDriver": "x"}}}), &[]);
        assert_eq!(fields.len(), 1);
        assert!(fields[0].ends_with("….cgroupDriver") && fields[0].len() < 400, "{fields:?}");
    }

    #[test]
    fn an_ignored_field_gives_one_warning_with_known_details() {
        let document = json!({"spec": {"docker": {}, "dokcer": {}}});
        let ignored = vec!["spec.docker".to_owned(), "spec.dokcer".to_owned()];
        let warnings = warnings(&document, ignored);
        assert_eq!(warnings[0].to_string(), "spec.docker: was removed with Docker; remove it");
        assert_eq!(warnings[1].to_string(), format!("spec.dokcer: {UNKNOWN}"));
        assert_eq!(warnings.len(), 2);
    }
}
