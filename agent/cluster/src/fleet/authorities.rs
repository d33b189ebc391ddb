//! The authorities that a node trusts, as a digest in an annotation of its own Node. A worker gets them with its boot config, so the hash of
//! its configuration does not change with them.

use std::collections::{BTreeMap, BTreeSet};

use super::groups::named;
use super::message::short_hash;
use kops_agent_spec::certificate::certificates;
use kops_agent_spec::digest::{is_sha256_hex, sha256_hex};

/// The annotation with the digest of the `kubernetes-ca` authorities that the node trusts.
pub const AUTHORITIES: &str = "kops-agent/authorities";
/// The maximum number of digests in a note about nodes with different authorities.
const NAMED: usize = 3;

/// The digest of the certificates in a PEM bundle, whatever their order and white space. `None` if the bundle has no certificate.
pub fn authorities_digest(bundle: &str) -> Option<String> {
    let mut certificates = certificates(bundle);
    certificates.sort();
    certificates.dedup();
    (!certificates.is_empty()).then(|| sha256_hex(certificates.concat().as_bytes()))
}

/// Checks the value of the annotation [`AUTHORITIES`], because a kubelet can write any value into its own Node. `None` if the value is not
/// a digest.
pub fn read_authorities(value: &str) -> Option<String> {
    is_sha256_hex(value).then(|| value.to_owned())
}

/// If nodes of the cluster trust different `kubernetes-ca` authorities, returns a note for each group about the authorities that its nodes
/// trust. The configuration hashes do not show this difference. `nodes` has each node's group, name and digest of its trusted authorities.
pub(crate) fn different_authorities<'a>(
    nodes: impl Iterator<Item = (&'a str, &'a str, &'a str)>,
) -> BTreeMap<&'a str, String> {
    let mut groups: BTreeMap<&str, BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
    let mut all = BTreeSet::new();
    for (group, name, digest) in nodes {
        all.insert(digest);
        groups.entry(group).or_default().entry(digest).or_default().push(name);
    }
    let each = |(digest, names): (&&str, &Vec<&str>)| format!("{} ({})", short_hash(digest), named(names));
    let note = |by_digest: &BTreeMap<&str, Vec<&str>>| {
        let mut shown: Vec<String> = by_digest.iter().take(NAMED).map(each).collect();
        if by_digest.len() > NAMED {
            shown.push("…".to_owned());
        }
        format!(
            "nodes of the cluster trust different sets of kubernetes-ca certificates; nodes of this group \
             trust the sets with the digests {}",
            shown.join(", ")
        )
    };
    match all.len() {
        0 | 1 => BTreeMap::new(),
        _ => groups.iter().map(|(group, by_digest)| (*group, note(by_digest))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(content: &str) -> String {
        format!("-----BEGIN CERTIFICATE-----\n{content}\n-----END CERTIFICATE-----\n")
    }

    #[test]
    fn the_same_authorities_have_one_digest_in_any_order() {
        let (a, b) = (certificate("a"), certificate("b"));
        let digest = authorities_digest(&format!("{a}{b}"));
        assert!(digest.is_some());
        assert_eq!(authorities_digest(&format!("{b}\n  {a}{a}")), digest);
        assert_ne!(authorities_digest(&a), digest);
        assert_eq!(authorities_digest("\n"), None);
        assert_eq!(read_authorities(&digest.clone().unwrap_or_default()), digest);
        assert_eq!(read_authorities("not a digest"), None);
    }

    #[test]
    fn a_cluster_whose_nodes_trust_different_authorities_has_a_note_for_each_group() {
        let same = [("masters", "m-0", "new"), ("nodes", "i-0", "new"), ("nodes", "i-1", "new")];
        assert_eq!(different_authorities(same.into_iter()), BTreeMap::new());
        let [master, node, _] = same;
        let notes = different_authorities([master, node, ("nodes", "i-1", "old")].into_iter());
        let of = |group: &str| notes.get(group).cloned().unwrap_or_default();
        assert!(of("masters").ends_with("with the digests new (m-0)"), "{notes:?}");
        assert!(of("nodes").ends_with("with the digests new (i-0), old (i-1)"), "{notes:?}");
    }
}
