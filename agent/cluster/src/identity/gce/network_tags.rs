//! The network tags with which kOps' firewall rules mark an instance's role, and the node labels for these roles.
//!
//! Sources: upstream's `upup/pkg/fi/cloudup/gce/labels.go` (`TagForRole`), `utils.go` (`ClusterPrefixedName`) and
//! `pkg/truncate`.

use std::collections::BTreeMap;

use kops_agent_spec::fnv::fnv32a;

/// The suffix of a role's tag, and the role's node label.
const ROLES: [(&str, &str); 3] = [
    ("-k8s-io-role-control-plane", "node-role.kubernetes.io/control-plane"),
    ("-k8s-io-role-node", "node-role.kubernetes.io/node"),
    ("-k8s-io-role-apiserver", "node-role.kubernetes.io/api-server"),
];
/// The maximum length of a tag in GCE.
const LONGEST_TAG: usize = 63;
/// The number of hash characters in a shortened name.
const HASH_LENGTH: usize = 6;
/// The alphabet of base32hex (RFC 4648, section 7) in lower case.
const BASE32_HEX: [u8; 32] = *b"0123456789abcdefghijklmnopqrstuv";

/// The role labels for the role tags of this cluster.
pub(super) fn role_labels(tags: &[String], cluster: &str) -> BTreeMap<String, String> {
    let is_tagged = |suffix: &str| tags.contains(&prefixed_with_cluster(suffix, cluster));
    let labels = ROLES.iter().filter(|(suffix, _)| is_tagged(suffix));
    labels.map(|(_, label)| ((*label).to_owned(), String::new())).collect()
}

/// Joins the cluster's name and the suffix. If both together exceed the maximum length of a tag, shortens the name and adds its hash.
fn prefixed_with_cluster(suffix: &str, cluster: &str) -> String {
    let name = cluster.replace('.', "-");
    let place = LONGEST_TAG - suffix.len();
    if name.len() <= place {
        return name + suffix;
    }
    let beginning = &name.as_bytes()[..place - HASH_LENGTH - 1];
    format!("{}-{}{suffix}", String::from_utf8_lossy(beginning), hash(&name))
}

/// The first base32hex digits of the name's hash.
fn hash(name: &str) -> String {
    let hash = fnv32a(name.as_bytes());
    let digit = |number: usize| BASE32_HEX[(hash >> (27 - 5 * number)) as usize % 32];
    (0..HASH_LENGTH).map(|number| char::from(digit(number))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = "minimal-gce-with-a-very-very-very-very-very-long-name.example.com";

    fn labels(tags: &[&str], cluster: &str) -> Vec<String> {
        let tags: Vec<String> = tags.iter().map(|tag| (*tag).to_owned()).collect();
        role_labels(&tags, cluster).into_keys().collect()
    }

    #[test]
    fn role_tags_equal_upstreams_also_for_long_names() {
        for (role, cluster, expected) in [
            ("-k8s-io-role-node", "minimal-gce.example.com", "minimal-gce-example-com-k8s-io-role-node"),
            // From upstream's golden files, minimal_gce_longclustername.
            ("-k8s-io-role-node", LONG, "minimal-gce-with-a-very-very-very-very--96dqvi-k8s-io-role-node"),
            (
                "-k8s-io-role-control-plane",
                LONG,
                "minimal-gce-with-a-very-very-v-96dqvi-k8s-io-role-control-plane",
            ),
        ] {
            assert_eq!(prefixed_with_cluster(role, cluster), expected);
        }
    }

    #[test]
    fn role_tags_of_other_clusters_are_ignored() {
        let tags = ["c-example-com-k8s-io-role-control-plane", "c-example-com-k8s-io-role-master", "http"];
        assert_eq!(labels(&tags, "c.example.com"), ["node-role.kubernetes.io/control-plane"]);
        assert_eq!(labels(&tags, "d.example.com"), Vec::<String>::new());
        let tags = ["c-example-com-k8s-io-role-apiserver", "c-example-com-k8s-io-role-node"];
        assert_eq!(
            labels(&tags, "c.example.com"),
            ["node-role.kubernetes.io/api-server", "node-role.kubernetes.io/node"]
        );
    }
}
