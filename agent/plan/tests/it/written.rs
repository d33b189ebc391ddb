//! The expected contents of a node's YAML files after one value of its configuration is replaced: only that one value changes in the files.

// All modules are in one test binary, so no `pub` item is reachable from outside.
#![allow(dead_code, unreachable_pub)]

use kops_agent_plan::resource::{Content, DesiredState, Resource};
use serde_json::Value;

/// A text that every parser reads as a string. A node's files contain this text only if a test puts it into the configuration.
pub const HARMLESS: &str = "harmless-text";

/// All texts that are written to the node, each with the id of its resource.
pub fn texts(state: &DesiredState) -> Vec<(String, String)> {
    let texts = state.iter().filter_map(|(id, resource)| {
        let text = match resource {
            Resource::File(file) => match &file.content {
                Content::Text(text) => text.clone(),
                _ => return None,
            },
            Resource::Unit(unit) => unit.text.clone()?,
            _ => return None,
        };
        Some((id.to_string(), text))
    });
    texts.collect()
}

/// The parsed contents of a YAML file. `None` if the text is no YAML file.
pub fn yaml(id: &str, text: &str) -> Option<Value> {
    let is_named_so = [".manifest", ".yaml", ".conf", ".config"].iter().any(|suffix| id.ends_with(suffix));
    let document: Value = is_named_so.then(|| serde_yaml::from_str(text).ok())??;
    (document.is_object() || document.is_array()).then_some(document)
}

/// Replaces [`HARMLESS`] in every key and text of the document. Sorts all lists, so that lists whose order depends on the replaced text
/// stay comparable.
pub fn with_value(document: &Value, value: &str) -> Value {
    let replaced = |text: &str| text.replace(HARMLESS, value);
    match document {
        Value::String(text) => replaced(text).into(),
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(|item| with_value(item, value)).collect();
            items.sort_by_key(Value::to_string);
            items.into()
        }
        Value::Object(fields) => {
            fields.iter().map(|(key, field)| (replaced(key), with_value(field, value))).collect()
        }
        other => other.clone(),
    }
}
