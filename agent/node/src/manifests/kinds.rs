//! Tells manifests of kOps from documents for other programs, by their kind and API version.

use std::collections::BTreeMap;

use kops_agent_spec::manifests::value_at;
use kops_agent_spec::terminal::shortened;
use serde_json::Value;

use crate::findings::Finding;

const CHECKED: [&str; 3] = ["Cluster", "InstanceGroup", "SSHCredential"];
/// The kinds of kOps' API that are not checked (`addKnownTypes` in pkg/apis/kops/v1alpha2/register.go).
const OTHERS: [&str; 7] =
    ["ClusterList", "Host", "HostList", "InstanceGroupList", "Keyset", "KeysetList", "SSHCredentialList"];
/// Maximum number of kinds whose unchecked documents are counted by kind. Documents of all further kinds are counted together.
const MOST_KINDS: usize = 60;
/// Maximum length of a kind in a message, in characters. Kubernetes refuses longer names.
const LONGEST_KIND: usize = 63;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// A manifest of kOps that is checked.
    Checked,
    /// A manifest that names kOps' API, but a kind that kOps does not have.
    Unknown,
    /// A document for another program, or a kOps manifest whose kind is not checked.
    Other,
}

pub(super) fn class(value: &Value) -> Class {
    let (kind, api) = (kind(value), text_at(value, "apiVersion"));
    let is_of_kops = api.starts_with("kops.k8s.io/") || api.starts_with("kops/");
    // Old manifests of kOps have no API version, so only their kind identifies them.
    if CHECKED.contains(&kind) && (is_of_kops || api.is_empty()) {
        Class::Checked
    } else if is_of_kops && !OTHERS.contains(&kind) {
        Class::Unknown
    } else {
        Class::Other
    }
}

pub(super) fn kind(value: &Value) -> &str {
    text_at(value, "kind")
}

pub(super) fn text_at<'a>(value: &'a Value, field: &str) -> &'a str {
    value_at(value, field).and_then(Value::as_str).unwrap_or_default()
}

/// The documents that are not checked, counted by their kind.
#[derive(Debug, Default)]
pub(super) struct OtherDocuments {
    by_kind: BTreeMap<String, usize>,
    /// The number of documents of kinds that are not counted by name.
    of_other_kinds: usize,
}

impl OtherDocuments {
    pub(super) fn add(&mut self, kind: &str) {
        let kind = if kind.is_empty() { "without kind".to_owned() } else { shortened(kind, LONGEST_KIND) };
        if self.by_kind.len() < MOST_KINDS || self.by_kind.contains_key(&kind) {
            *self.by_kind.entry(kind).or_default() += 1;
        } else {
            self.of_other_kinds += 1;
        }
    }

    pub(super) fn finding(&self) -> Option<Finding> {
        let named = self.by_kind.iter().map(|(kind, count)| format!("{kind} ({count})"));
        let others = (self.of_other_kinds > 0).then(|| format!("other kinds ({})", self.of_other_kinds));
        let counts: Vec<String> = named.chain(others).collect();
        let problem = format!(
            "documents that are no Cluster, InstanceGroup or SSHCredential of kOps: {}",
            counts.join(", ")
        );
        (!counts.is_empty()).then(|| Finding { problem, ..Finding::default() })
    }
}
