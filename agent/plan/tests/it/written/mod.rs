//! What a node's YAML files must hold after one value of its configuration was replaced by another: the same
//! as before, with the one value in the place of the other, and nothing besides.

// Each test binary has this module to itself and needs another part of it.
#![allow(dead_code, unreachable_pub)]

use kops_agent_plan::resource::{Content, DesiredState, Resource};
use serde_json::Value;

/// A text that no reader takes for anything but a text, and that stands nowhere else.
pub const HARMLESS: &str = "harmless-text";

/// Every text that is written to the node, by what it is written to.
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

/// What a YAML file holds, as we read it; `None` for other texts.
pub fn yaml(id: &str, text: &str) -> Option<Value> {
    let is_named_so = [".manifest", ".yaml", ".conf", ".config"].iter().any(|suffix| id.ends_with(suffix));
    let document: Value = is_named_so.then(|| serde_yaml::from_str(text).ok())??;
    (document.is_object() || document.is_array()).then_some(document)
}

/// The document with [`HARMLESS`] replaced in every key and text, in a shape that can be compared: lists that
/// are sorted by what is in them come out in one order.
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
