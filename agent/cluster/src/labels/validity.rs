//! Checks labels by the API server's rules. Without these checks, one invalid label would block a Node's other labels.
//!
//! Source: `ValidateLabels` in `k8s.io/apimachinery/pkg/apis/meta/v1/validation`, `IsQualifiedName` and `IsValidLabelValue` in its
//! `pkg/util/validation`.

use std::collections::BTreeMap;

use super::LabelPatch;

/// The maximum length of a label's name, and of its value, in bytes.
pub const LONGEST: usize = 63;
/// The maximum length of a label's prefix, in bytes.
const LONGEST_PREFIX: usize = 253;

impl LabelPatch {
    /// Removes the labels that the API server would reject. Returns the rest of the patch, and the reason for each removed label.
    #[must_use]
    pub fn without_invalid(mut self) -> (Option<LabelPatch>, Vec<String>) {
        let problems = retain_valid(&mut self.set);
        self.before.retain(|key, _| self.set.contains_key(key) || self.remove.contains(key));
        ((!self.set.is_empty() || !self.remove.is_empty()).then_some(self), problems)
    }

    /// Splits the patch into one patch for each label.
    pub fn each(&self) -> Vec<LabelPatch> {
        let before =
            |key: &String| self.before.get_key_value(key).map(|(key, value)| (key.clone(), value.clone()));
        let set = self.set.iter().map(|(key, value)| LabelPatch {
            set: [(key.clone(), value.clone())].into(),
            before: before(key).into_iter().collect(),
            ..LabelPatch::default()
        });
        let removed = self.remove.iter().map(|key| LabelPatch {
            remove: [key.clone()].into(),
            before: before(key).into_iter().collect(),
            ..LabelPatch::default()
        });
        set.chain(removed).collect()
    }
}

/// Removes the labels that the API server would reject, and returns the reasons.
pub fn retain_valid(labels: &mut BTreeMap<String, String>) -> Vec<String> {
    let mut problems = Vec::new();
    labels.retain(|key, value| {
        let why = problem(key, value);
        let is_valid = why.is_none();
        problems.extend(why);
        is_valid
    });
    problems
}

/// The reason why the API server would reject a label, for a message. `None` if the label is valid.
pub fn problem(key: &str, value: &str) -> Option<String> {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    if prefix.is_some_and(|prefix| !is_domain(prefix)) {
        return Some(format!("{key:?} is not a valid label key: the part before the / is not a DNS name"));
    }
    let rule = "at most 63 letters, digits, -, _ and ., and begin and end with a letter or digit";
    if !is_name(name) {
        return Some(format!("{key:?} is not a valid label key: its name must have {rule}"));
    }
    (!value.is_empty() && !is_name(value)).then(|| {
        format!("{value:?} is not a valid value of the label {key}: it must be empty, or have {rule}")
    })
}

/// Whether a text is valid as the name in a label's key, or as a value that is not empty.
pub fn is_name(text: &str) -> bool {
    is_between_alphanumerics(text, |byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && text.len() <= LONGEST
}

/// Whether a text is valid as the prefix of a label's key: a DNS subdomain of RFC 1123.
pub fn is_domain(text: &str) -> bool {
    let is_part = |part: &str| {
        is_between_alphanumerics(part, |byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'
        })
    };
    text.len() <= LONGEST_PREFIX && text.split('.').all(is_part)
}

fn is_between_alphanumerics(text: &str, is_inner: impl Fn(u8) -> bool) -> bool {
    let is_outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.iter().all(|byte| is_inner(*byte)) && is_outer(bytes.first()) && is_outer(bytes.last())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{ObservedNode, Wanted, diff};
    use super::*;

    const NODE: (&str, &str) = ("node-role.kubernetes.io/node", "");
    const GROUP: (&str, &str) = ("kops.k8s.io/instancegroup", "nodes");

    fn labels(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
        labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn invalid_labels_are_dropped_and_the_others_are_set() {
        let observed = ObservedNode {
            labels: labels(&[("team", "old"), ("dropped", "1")]),
            written_by_us: ["team", "dropped"].map(str::to_owned).into(),
            ..ObservedNode::default()
        };
        let bad = [("team", "data platform"), ("a b", "c")];
        let patch = diff(&observed, &Wanted::OfGroup(labels(&[NODE, GROUP, bad[0], bad[1]]))).unwrap();
        let (patch, problems) = patch.without_invalid();
        let patch = patch.unwrap();
        assert_eq!(patch.set, labels(&[NODE, GROUP]));
        assert_eq!(patch.before, labels(&[("dropped", "1")]));
        assert_eq!(problems.len(), 2);
        assert!(
            problems[1].contains("\"data platform\" is not a valid value of the label team"),
            "{problems:?}"
        );
        let parts = patch.each();
        assert_eq!(parts.len(), 3);
        assert!(parts.iter().all(|part| part.set.len() + part.remove.len() == 1));
        assert_eq!(parts[2].before, labels(&[("dropped", "1")]));
        let only_bad = diff(&observed, &Wanted::Partial(labels(&bad))).unwrap();
        assert_eq!(only_bad.without_invalid().0, None);
    }

    #[test]
    fn validity_follows_the_api_servers_rules() {
        let long = "a".repeat(LONGEST + 1);
        let long_prefix = format!("{}b/c", "a.".repeat(LONGEST_PREFIX / 2 + 1));
        let (long, long_prefix) = (long.as_str(), long_prefix.as_str());
        for (key, value) in [
            ("team", "data-platform_1.0"),
            ("a.b-c.d/N_a.m-e", ""),
            ("node-role.kubernetes.io/node", ""),
            (&long[1..], &long[1..]),
        ] {
            assert_eq!(problem(key, value), None, "{key}={value}");
        }
        for (key, value) in [
            ("team", "data platform"),
            ("team", "-a"),
            ("team", "a."),
            ("team", "é"),
            ("team", long),
            ("", "a"),
            ("/a", "a"),
            ("a/", "a"),
            ("a/b/c", "a"),
            ("A.b/c", "a"),
            ("-a/c", "a"),
            ("a..b/c", "a"),
            ("a b", "a"),
            (long, "a"),
            (long_prefix, "a"),
        ] {
            assert!(problem(key, value).is_some(), "{key}={value}");
        }
    }
}
