//! Reads kOps' tags in clouds whose tags are plain texts. kOps writes a key and a value into each tag.

use super::{Identity, Refusal};

/// The values of all tags with this key. `key` includes the separator.
pub(super) fn values<'a>(tags: &'a [String], key: &'a str) -> impl Iterator<Item = &'a str> {
    tags.iter().filter_map(move |tag| tag.strip_prefix(key)).filter(|value| !value.is_empty())
}

/// Checks that the tags name only this cluster. `own` is the cluster's name as a tag contains it.
pub(super) fn require_cluster(
    instance: &str,
    tags: &[String],
    key: &str,
    own: &str,
    cluster: &str,
) -> Result<(), Refusal> {
    let unknown =
        |says| Refusal::NoCluster { instance: instance.to_owned(), says, cluster: cluster.to_owned() };
    let mut owners = values(tags, key);
    match (owners.next(), owners.next()) {
        (Some(owner), None) if owner == own => Ok(()),
        (Some(owner), None) => {
            let owner = format!("the cluster {owner}");
            Err(Refusal::OtherCluster { instance: instance.to_owned(), owner, cluster: cluster.to_owned() })
        }
        (None, _) => Err(unknown(format!("it has no tag {key}{own}"))),
        (Some(_), Some(_)) => Err(unknown(format!("it has more than one tag {key}"))),
    }
}

/// The identity of a machine in the group that its tags name. Fails unless the tags name exactly one group.
pub(super) fn identity(instance: &str, tags: &[String], key: &str) -> Result<Identity, Refusal> {
    let mut groups = values(tags, key);
    let missing = match (groups.next(), groups.next()) {
        (Some(group), None) => {
            return Ok(Identity { instance_group: group.to_owned(), ..Identity::default() });
        }
        (None, _) => format!("it has no tag {key}"),
        (Some(_), Some(_)) => format!("it has more than one tag {key}"),
    };
    Err(Refusal::NoInstanceGroup { instance: instance.to_owned(), missing })
}
