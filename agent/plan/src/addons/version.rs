//! The version of an add-on that a cluster has, as its namespace's annotations record it.

use std::collections::BTreeMap;

use kops_agent_spec::omit::is_zero;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_with::apply;

/// Begins the annotations that record versions; the add-on's name follows.
pub const ANNOTATION_PREFIX: &str = "addons.k8s.io/";

/// The generation of what applies add-ons: 1 prunes. A version that an older one has recorded is applied again.
const GENERATION: i64 = 1;

/// A version of an add-on.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ChannelVersion {
    /// The channel that it is of. By it alone no add-on is due.
    pub channel: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub id: String,
    #[serde(deserialize_with = "or_default")]
    pub manifest_hash: String,
    /// The generation of what has applied it.
    #[serde(deserialize_with = "or_default")]
    pub system_generation: i64,
}

impl ChannelVersion {
    /// The version of an entry, as it is applied here.
    pub fn of(channel: &str, id: &str, manifest_hash: &str) -> ChannelVersion {
        ChannelVersion {
            channel: Some(channel.to_owned()),
            id: id.to_owned(),
            manifest_hash: manifest_hash.to_owned(),
            system_generation: GENERATION,
        }
    }

    /// Whether this takes the place of a version. Neither is the older one: another id or hash is another version, whichever
    /// way. Where they are the same a generation only goes up.
    pub fn replaces(&self, existing: &ChannelVersion) -> bool {
        self.id != existing.id
            || self.manifest_hash != existing.manifest_hash
            || self.system_generation > existing.system_generation
    }

    /// The annotation's value, as Go writes it: with `&`, `<`, `>` and the line breaks of Unicode escaped.
    pub fn encode(&self) -> String {
        // A struct of texts and a number is always JSON.
        let json = serde_json::to_string(self).unwrap_or_default();
        let escape = |c: char| match c {
            '&' | '<' | '>' | '\u{2028}' | '\u{2029}' => format!("\\u{:04x}", u32::from(c)),
            c => c.to_string(),
        };
        json.chars().map(escape).collect()
    }

    /// Reads an annotation's value; `None` where it records no version.
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

/// The versions that a namespace's annotations record, by the add-ons' names. A value that records none is as good as not
/// there, and upstream's pod takes it so.
pub fn recorded(annotations: &BTreeMap<String, String>) -> BTreeMap<String, ChannelVersion> {
    let versions = annotations.iter().filter_map(|(key, value)| {
        Some((key.strip_prefix(ANNOTATION_PREFIX)?.to_owned(), ChannelVersion::parse(value)?))
    });
    versions.collect()
}

/// Go leaves a field at its zero value where JSON has null.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}
