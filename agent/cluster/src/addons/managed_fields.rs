//! Takes over fields of an object that were not written by server-side apply: by client-side `kubectl apply`, by `kubectl edit`, or by an
//! update under kops-agent's own manager name. This must happen before the object is applied. Otherwise a field that the manifest drops
//! stays forever.
//!
//! Source: upstream's `pkg/applylib/applyset/managedfields.go`, which fails if entries of one manager have different versions. The format
//! is structured-merge-diff's (`fieldsV1`).

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::FIELD_MANAGER;

/// The field managers whose fields kops-agent takes over, from entries of both operations: `Apply` and `Update`.
const TAKEN_OVER: [&str; 2] = ["kubectl-edit", "kubectl-client-side-apply"];
/// The API server gives this manager all fields of an object that is older than managed fields. If the object has the annotation
/// [`LAST_APPLIED`], kops-agent removes this manager's entry and becomes the owner of the fields in that annotation.
const BEFORE_MANAGERS: &str = "before-first-apply";
/// The annotation in which client-side `kubectl apply` records the applied object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The key in `fieldsV1` that says that a field with subfields is itself owned.
const ITSELF: &str = ".";

/// The change that makes kops-agent the owner of fields of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Migration {
    /// A merge patch. The API server applies the patch only if the object has not changed since it was read.
    pub patch: Value,
    /// The previous owners of the fields, for a message.
    pub taken_over: Vec<String>,
}

/// The change that makes kops-agent the owner of fields of the object `live`. Make this change before you apply the object. `api_version`
/// is the `apiVersion` of the object's manifest. `None` if no field changes owner.
pub fn migration(live: &Value, api_version: &str) -> Option<Migration> {
    let entries = live.pointer("/metadata/managedFields").and_then(Value::as_array);
    let entries: Vec<&Value> = entries.into_iter().flatten().collect();
    let mut taken_over = BTreeSet::new();
    let mut migrated = Vec::new();
    let noted = noted_by_kubectl(live);
    for entry in &entries {
        let manager = text(entry, "manager");
        if TAKEN_OVER.contains(&manager) {
            taken_over.insert(format!("all fields of {manager:?}"));
        }
        if noted.is_none() || manager != BEFORE_MANAGERS {
            migrated.push(ours((*entry).clone()));
        }
    }
    if let Some(fields) = noted {
        migrated.push(json!({"manager": FIELD_MANAGER, "operation": "Apply", "apiVersion": api_version,
            "fieldsType": "FieldsV1", "fieldsV1": fields}));
    }
    let merged = merged(migrated, api_version);
    if merged.len() == entries.len() && merged.iter().all(|entry| entries.contains(&entry)) {
        return None;
    }
    if taken_over.is_empty()
        && live.pointer("/metadata/annotations").and_then(|all| all.get(LAST_APPLIED)).is_some()
    {
        taken_over.insert("the fields that kubectl recorded as applied".to_owned());
    }
    let version = live.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
    let patch = json!({ "metadata": { "managedFields": merged, "resourceVersion": version } });
    Some(Migration { patch, taken_over: taken_over.into_iter().collect() })
}

fn ours(mut entry: Value) -> Value {
    let is_taken_over = TAKEN_OVER.contains(&text(&entry, "manager"));
    let is_our_update = text(&entry, "manager") == FIELD_MANAGER && text(&entry, "operation") == "Update";
    if is_taken_over || is_our_update {
        entry["manager"] = json!(FIELD_MANAGER);
        entry["operation"] = json!("Apply");
    }
    entry
}

/// Merges kops-agent's entries into one for each subresource, because the API server keeps only one entry for each subresource. If the
/// entries have different API versions, the merged entry gets `api_version`, the version of the object to apply. A path to a field that
/// this version lacks is harmless, because the API server has no such field to remove. Entries of other managers stay unchanged.
fn merged(entries: Vec<Value>, api_version: &str) -> Vec<Value> {
    let is_ours =
        |entry: &Value| text(entry, "manager") == FIELD_MANAGER && text(entry, "operation") == "Apply";
    let mut merged: Vec<Value> = Vec::new();
    for entry in entries {
        let belongs_to = |first: &Value| text(first, "subresource") == text(&entry, "subresource");
        let first = merged.iter_mut().find(|first| is_ours(first) && is_ours(&entry) && belongs_to(first));
        let Some(first) = first else {
            merged.push(entry);
            continue;
        };
        if text(first, "apiVersion") != text(&entry, "apiVersion") {
            first["apiVersion"] = json!(api_version);
        }
        let fields = |entry: &Value| entry.get("fieldsV1").cloned().unwrap_or_else(|| json!({}));
        first["fieldsV1"] = union(&fields(first), &fields(&entry));
    }
    merged
}

fn text<'a>(entry: &'a Value, name: &str) -> &'a str {
    entry.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The fields of the object that the annotation [`LAST_APPLIED`] contains, plus the field of the annotation itself. `None` if the
/// annotation is missing or unreadable.
fn noted_by_kubectl(live: &Value) -> Option<Value> {
    let note = live.pointer("/metadata/annotations")?.get(LAST_APPLIED)?.as_str()?;
    let applied: Value = serde_json::from_str(note).ok()?;
    let mut fields: Map<String, Value> = Map::new();
    for (key, value) in applied.as_object()? {
        match key.as_str() {
            "apiVersion" | "kind" | "status" | "metadata" => {}
            key => drop(fields.insert(format!("f:{key}"), fields_of(value))),
        }
    }
    let of_metadata = |name: &str| applied.get("metadata")?.get(name).filter(|value| value.is_object());
    let mut annotations = of_metadata("annotations").cloned().unwrap_or_else(|| json!({}));
    annotations[LAST_APPLIED] = json!("");
    let mut metadata = json!({"f:annotations": fields_of(&annotations)});
    if let Some(labels) = of_metadata("labels") {
        metadata["f:labels"] = fields_of(labels);
    }
    fields.insert("f:metadata".to_owned(), metadata);
    Some(Value::Object(fields))
}

/// The fields of a value, in the form of `fieldsV1`. The key of a list item is its `name`. A list with an item that has no name is treated
/// as one field.
fn fields_of(value: &Value) -> Value {
    let name_of = |item: &Value| item.get("name")?.as_str().map(str::to_owned);
    match value {
        Value::Object(members) => {
            members.iter().map(|(key, value)| (format!("f:{key}"), fields_of(value))).collect()
        }
        Value::Array(items) => {
            let names: Option<BTreeSet<String>> = items.iter().map(name_of).collect();
            if names.is_none_or(|names| names.len() != items.len()) {
                return json!({});
            }
            let field = |item: &Value| {
                let mut fields = fields_of(item);
                fields[ITSELF] = json!({});
                Some((format!("k:{}", json!({"name": name_of(item)?})), fields))
            };
            items.iter().filter_map(field).collect()
        }
        _ => json!({}),
    }
}

/// The union of two field sets in the form of `fieldsV1`.
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

/// The union of one field's subfields. A field without subfields is itself owned. If the union adds subfields to it, the key `.` must
/// record that the field itself is still owned.
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
