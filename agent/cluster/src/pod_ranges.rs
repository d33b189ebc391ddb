//! The pod address ranges of a Node if kops-controller assigns them (`enableCloudIPAM`, on IPv6-only clusters). The cloud gives these
//! ranges to the machine for its pods. This module also makes the patch that writes ranges and labels into the Node.
//!
//! Source: upstream's `cmd/kops-controller/controllers/awsipam.go`, `gceipam.go` and `metalipam.go`.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Value, json};
use thiserror::Error;

use crate::labels::LabelPatch;

/// Why a Node gets no pod address range.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PodRangeProblem {
    #[error("the pods of {machine} get no addresses: the machine has no {wanted}; {to_do}")]
    None {
        machine: String,
        wanted: &'static str,
        /// The advice at the end of the message.
        to_do: &'static str,
    },
    /// The machine has several ranges, and nothing says which range is for pods.
    #[error("the pods of {machine} get no addresses: the machine has more than one {wanted} ({}); {to_do}", .ranges.join(", "))]
    Several {
        machine: String,
        wanted: &'static str,
        ranges: Vec<String>,
        /// The advice at the end of the message.
        to_do: &'static str,
    },
    #[error("the pods of {machine} get no addresses: {range:?} is not an address range")]
    Malformed { machine: String, range: String },
}

/// A machine that must have exactly one pod address range, and the texts of the message if it does not.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    pub machine: &'a str,
    /// The noun for one range of this machine, as messages use it.
    pub wanted: &'static str,
    /// The advice at the end of the message, if the machine does not have exactly one range.
    pub to_do: &'static str,
}

impl Source<'_> {
    /// Returns the machine's only range, unchanged.
    pub fn only(&self, ranges: &[String]) -> Result<Vec<String>, PodRangeProblem> {
        let Source { machine, wanted, to_do } = *self;
        let machine = machine.to_owned();
        match ranges {
            [range] if is_range(range) => Ok(vec![range.clone()]),
            [range] => Err(PodRangeProblem::Malformed { machine, range: range.clone() }),
            [] => Err(PodRangeProblem::None { machine, wanted, to_do }),
            several => Err(PodRangeProblem::Several { machine, wanted, ranges: several.to_vec(), to_do }),
        }
    }
}

/// Whether this text is an address with a prefix length. Bits after the prefix are not checked, as in upstream, because the API server
/// validates the range.
pub fn is_range(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let is_number = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    match (address.parse::<IpAddr>(), length.parse::<u8>()) {
        (Ok(IpAddr::V4(_)), Ok(length)) => is_number && length <= 32,
        (Ok(IpAddr::V6(_)), Ok(length)) => is_number && length <= 128,
        _ => false,
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodePatch {
    /// The changed labels. `None` if the labels are correct.
    pub labels: Option<LabelPatch>,
    /// The pod address ranges to set. Empty if the Node already has ranges, or gets none. The API server rejects a change of ranges.
    pub pod_ranges: Vec<String>,
}

impl NodePatch {
    pub fn new(labels: Option<LabelPatch>, pod_ranges: Vec<String>) -> Option<NodePatch> {
        (labels.is_some() || !pod_ranges.is_empty()).then_some(NodePatch { labels, pod_ranges })
    }

    /// The patch as a JSON merge patch. The API server applies it only if the Node still has this `resource_version`.
    pub fn to_json(&self, resource_version: &str) -> Value {
        let mut patch = match &self.labels {
            Some(labels) => labels.to_json(resource_version),
            None => json!({ "metadata": { "resourceVersion": resource_version } }),
        };
        if let Some(first) = self.pod_ranges.first() {
            patch["spec"] = json!({ "podCIDR": first, "podCIDRs": self.pod_ranges });
        }
        patch
    }

    /// The patch of the Node `node`, formatted as a diff.
    pub fn diff(&self, node: &str) -> String {
        let NodePatch { labels, pod_ranges } = self;
        let patch = labels.clone().unwrap_or_default();
        let line = |sign: char, key: &str, value: Option<&String>| {
            value.map_or_else(String::new, |value| format!("  {sign} {key}: {value:?}\n"))
        };
        let keys: BTreeSet<&String> = patch.before.keys().chain(patch.set.keys()).collect();
        let lines = keys
            .into_iter()
            .map(|key| line('-', key, patch.before.get(key)) + &line('+', key, patch.set.get(key)));
        let ranges = pod_ranges.iter().map(|range| format!("  + spec.podCIDRs: {range:?}\n"));
        format!("node {node}\n{}", lines.chain(ranges).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const SOURCE: Source<'static> = Source { machine: "i-1", wanted: "prefix", to_do: "give it one" };

    #[test]
    fn the_only_range_is_returned_unchanged() {
        for range in ["2001:db8::/80", "2600:1900:4000:1:0:1::/96", "10.1.0.0/24", "fd00::1/128", "0.0.0.0/0"]
        {
            assert_eq!(SOURCE.only(&[range.to_owned()]).unwrap(), [range]);
        }
        for range in [
            "",
            "2001:db8::",
            "2001:db8::/129",
            "10.0.0.0/33",
            "10.0.0.0/-1",
            "a/1",
            "::/",
            "::/+1",
            "::/1/2",
        ] {
            let problem = SOURCE.only(&[range.to_owned()]).unwrap_err();
            assert!(matches!(problem, PodRangeProblem::Malformed { .. }), "{range}");
        }
    }

    #[test]
    fn no_range_and_several_ranges_are_errors_with_advice() {
        let none = SOURCE.only(&[]).unwrap_err().to_string();
        assert_eq!(none, "the pods of i-1 get no addresses: the machine has no prefix; give it one");
        let several = SOURCE.only(&["::1/80".to_owned(), "::2/80".to_owned()]).unwrap_err().to_string();
        assert!(several.contains("has more than one prefix (::1/80, ::2/80); give it one"), "{several}");
    }

    #[test]
    fn a_patch_has_the_version_and_both_range_fields() {
        assert_eq!(NodePatch::new(None, vec![]), None);
        let ranges = vec!["2001:db8::/80".to_owned(), "10.0.0.0/24".to_owned()];
        let patch = NodePatch::new(None, ranges.clone()).unwrap();
        assert_eq!(
            patch.to_json("7"),
            json!({"metadata": {"resourceVersion": "7"}, "spec": {"podCIDR": "2001:db8::/80", "podCIDRs": ranges}})
        );
        let labels = LabelPatch { set: [("a".to_owned(), "1".to_owned())].into(), ..LabelPatch::default() };
        let both = NodePatch::new(Some(labels.clone()), ranges).unwrap().to_json("7");
        assert_eq!(
            (&both["metadata"]["labels"]["a"], &both["spec"]["podCIDR"]),
            (&json!("1"), &json!("2001:db8::/80"))
        );
        let only_labels = NodePatch::new(Some(labels), vec![]).unwrap().to_json("7");
        assert!(only_labels.get("spec").is_none(), "{only_labels}");
    }

    #[test]
    fn a_changed_label_is_shown_as_it_is_and_as_it_would_be() {
        let labels = |labels: &[(&str, &str)]| {
            labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let patch = LabelPatch {
            set: labels(&[("new", "1"), ("other", "after")]),
            remove: ["gone".to_owned()].into(),
            before: labels(&[("other", "before"), ("gone", "")]),
        };
        let ranges = vec!["2001:db8::/80".to_owned()];
        assert_eq!(
            NodePatch { labels: Some(patch), pod_ranges: ranges }.diff("i-1"),
            "node i-1\n  - gone: \"\"\n  + new: \"1\"\n  - other: \"before\"\n  + other: \"after\"\n  \
             + spec.podCIDRs: \"2001:db8::/80\"\n"
        );
    }
}
