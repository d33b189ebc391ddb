//! The version of an add-on in a cluster, as an annotation of a namespace records it.

use std::collections::BTreeMap;

use kops_agent_spec::go_yaml::is_zero;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_with::apply;

/// The prefix of the annotations that record versions, followed by the add-on's name.
pub const ANNOTATION_PREFIX: &str = "addons.k8s.io/";

/// The generation of the program that applies add-ons. Programs of generation 1 also prune. A version that an older generation recorded is
/// applied again.
const GENERATION: i64 = 1;

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ChannelVersion {
    /// The channel that lists the version. If only the channel changes, the add-on is not updated.
    pub channel: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub id: String,
    #[serde(deserialize_with = "or_default")]
    pub manifest_hash: String,
    /// The generation of the program that applied the version.
    #[serde(deserialize_with = "or_default")]
    pub system_generation: i64,
}

impl ChannelVersion {
    /// The version of an entry, with this program's generation.
    pub fn new(channel: &str, id: &str, manifest_hash: &str) -> ChannelVersion {
        ChannelVersion {
            channel: Some(channel.to_owned()),
            id: id.to_owned(),
            manifest_hash: manifest_hash.to_owned(),
            system_generation: GENERATION,
        }
    }

    /// Whether this version replaces an existing version. Versions with different ids or hashes have no order, so each replaces the other.
    /// With equal ids and hashes only a higher generation replaces the existing version.
    pub fn replaces(&self, existing: &ChannelVersion) -> bool {
        self.id != existing.id
            || self.manifest_hash != existing.manifest_hash
            || self.system_generation > existing.system_generation
    }

    /// The annotation's value in Go's JSON form: `&`, `<`, `>` and the line breaks of Unicode are escaped.
    pub fn encode(&self) -> String {
        // Serialization cannot fail, because the struct contains only texts and a number.
        let json = serde_json::to_string(self).unwrap_or_default();
        let escape = |c: char| match c {
            '&' | '<' | '>' | '\u{2028}' | '\u{2029}' => format!("\\u{:04x}", u32::from(c)),
            c => c.to_string(),
        };
        json.chars().map(escape).collect()
    }

    /// Reads an annotation's value. Returns `None` if the value is not a version.
    pub fn parse(value: &str) -> Option<ChannelVersion> {
        match serde_json::from_str(value).ok()? {
            Value::Null => Some(ChannelVersion::default()),
            version @ Value::Object(_) => serde_json::from_value(version).ok(),
            _ => None,
        }
    }
}

/// The annotation that records the version of an add-on.
pub fn annotation(name: &str) -> String {
    format!("{ANNOTATION_PREFIX}{name}")
}

/// The recorded versions in a namespace's annotations, by add-on name. Invalid values are ignored, as in upstream's channels pod.
pub fn recorded(annotations: &BTreeMap<String, String>) -> BTreeMap<String, ChannelVersion> {
    let versions = annotations.iter().filter_map(|(key, value)| {
        Some((key.strip_prefix(ANNOTATION_PREFIX)?.to_owned(), ChannelVersion::parse(value)?))
    });
    versions.collect()
}

/// Reads null as the default value, because Go leaves a field at its zero value for null.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}
