//! Annotations that pause an add-on or one of its objects. kOps' own channels pod ignores them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// The annotation that pauses an object. A paused object is neither applied nor deleted.
pub const PAUSED: &str = "kops-agent/paused";
/// The prefix of the annotation that pauses an add-on, followed by the add-on's name. The annotation is on the namespace that records the
/// add-on's version.
const PAUSED_ADDON_PREFIX: &str = "paused.kops-agent/";
/// The annotation value that does not pause anything. Any other value pauses, so users can write a reason.
const NOT_PAUSED: &str = "false";

pub fn annotation_of_addon(name: &str) -> String {
    format!("{PAUSED_ADDON_PREFIX}{name}")
}

/// The add-ons that a namespace's annotations pause.
pub fn paused_addons(annotations: &BTreeMap<String, String>) -> BTreeSet<String> {
    let paused = annotations.iter().filter(|(_, value)| *value != NOT_PAUSED);
    paused.filter_map(|(key, _)| Some(key.strip_prefix(PAUSED_ADDON_PREFIX)?.to_owned())).collect()
}

pub fn is_paused(annotations: &BTreeMap<String, String>) -> bool {
    annotations.get(PAUSED).is_some_and(|value| value != NOT_PAUSED)
}

pub fn is_object_paused(live: &Value) -> bool {
    let value =
        live.pointer("/metadata/annotations").and_then(|annotations| annotations.get(PAUSED)?.as_str());
    value.is_some_and(|value| value != NOT_PAUSED)
}
