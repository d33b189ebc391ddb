//! Whose an object's fields are, where it was written otherwise than by a server-side apply: by `kubectl apply` of old, by
//! `kubectl edit`, or by an update under our own name. Those fields are made ours before we apply, else what a manifest
//! no longer has would stay for ever.
//!
//! Source: upstream's `pkg/applylib/applyset/managedfields.go`; the format is structured-merge-diff's (`fieldsV1`).

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::FIELD_MANAGER;

/// The managers whose fields become ours, whatever operation they wrote them by.
const TAKEN_OVER: [&str; 2] = ["kubectl-edit", "kubectl-client-side-apply"];
/// Says in `fieldsV1` that what has fields below it is owned itself, too.
const ITSELF: &str = ".";

/// The merge patch that makes fields of an object ours, for this version of it and no other; `None` where none are to be.
///
/// # Errors
/// If fields of one manager are of different versions of the API: nothing merges those.
pub fn migration(object: &Value) -> Result<Option<Value>, String> {
    let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    let entries: Vec<&Value> = entries.into_iter().flatten().collect();
    let migrated: Vec<Value> = entries.iter().map(|entry| ours((*entry).clone())).collect();
    if migrated.iter().zip(&entries).all(|(after, before)| after == *before) {
        return Ok(None);
    }
    let version = object.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
    Ok(Some(json!({ "metadata": { "managedFields": merged(migrated)?, "resourceVersion": version } })))
}

fn ours(mut entry: Value) -> Value {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
    let is_taken_over = TAKEN_OVER.contains(&text("manager"));
    let is_our_update = text("manager") == FIELD_MANAGER && text("operation") == "Update";
    if is_taken_over || is_our_update {
        entry["manager"] = json!(FIELD_MANAGER);
        entry["operation"] = json!("Apply");
    }
    entry
}

/// One entry of each manager, subresource and operation: of several the API server would take one, and lose the others.
fn merged(entries: Vec<Value>) -> Result<Vec<Value>, String> {
    let text =
        |entry: &Value, name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut by_key: BTreeMap<[String; 3], Value> = BTreeMap::new();
    for entry in entries {
        let key = ["manager", "subresource", "operation"].map(|name| text(&entry, name));
        let Some(first) = by_key.get_mut(&key) else {
            by_key.insert(key, entry);
            continue;
        };
        let (one, other) = (text(first, "apiVersion"), text(&entry, "apiVersion"));
        if one != other {
            return Err(format!(
                "{:?} manages fields of {one} and of {other}, which cannot be merged",
                key[0]
            ));
        }
        let fields = |entry: &Value| entry.get("fieldsV1").cloned().unwrap_or_else(|| json!({}));
        first["fieldsV1"] = union(&fields(first), &fields(&entry));
    }
    Ok(by_key.into_values().collect())
}

/// All fields of two sets of them, in the form of `fieldsV1`.
pub fn union(one: &Value, other: &Value) -> Value {
    let mut all = members(one);
    for (key, value) in members(other) {
        let both = match all.get(&key) {
            Some(there) => union_of_field(there, &value),
            None => value,
        };
        all.insert(key, both);
    }
    Value::Object(all)
}

/// The same of one field. A field without others below it is owned itself, which is said otherwise once there are some.
fn union_of_field(one: &Value, other: &Value) -> Value {
    let mut all = union(one, other);
    let is_itself = |field: &Value| members(field).is_empty() || members(field).contains_key(ITSELF);
    if (is_itself(one) || is_itself(other)) && !members(&all).is_empty() {
        all[ITSELF] = json!({});
    }
    all
}

fn members(fields: &Value) -> Map<String, Value> {
    fields.as_object().cloned().unwrap_or_default()
}
