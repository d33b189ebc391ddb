//! Formats the change of an object like `kubectl diff`: as YAML, without fields that only the API server writes, and without secrets.

use serde_json::{Map, Value, json};

use kops_agent_spec::redaction::manifest::Manifest;
use kops_agent_spec::text_diff;

/// Fields of `metadata` that only the API server writes.
const OF_THE_SERVER: [&str; 5] =
    ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp"];
/// The annotation in which client-side `kubectl apply` keeps a copy of the object, including its secrets.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The fields of a Secret whose values are hidden.
const SECRET: [&str; 2] = ["data", "stringData"];

/// The unified diff between an object before and after a change. `None` if nothing changes. `before` is `None` for a new object, and
/// `after` is `None` for a deleted object.
pub fn unified(name: &str, before: Option<&Value>, after: Option<&Value>) -> Option<String> {
    let (before, after) = (before.map(of_user), after.map(of_user));
    if before == after {
        return None;
    }
    let (before, after) = masked(before, after);
    // kOps passes the cloud's credentials to its controllers in environment variables. So the diff has placeholders instead of the values
    // of environment variables.
    let text = |object: &Option<Value>| {
        object
            .as_ref()
            .map(|object| Manifest::from_documents(vec![object.clone()]).with_placeholders())
            .unwrap_or_default()
    };
    let header = |object: &Option<Value>| object.as_ref().map_or("/dev/null", |_| name).to_owned();
    let names = [header(&before), header(&after)];
    Some(text_diff::unified(names.each_ref().map(String::as_str), [&text(&before), &text(&after)]))
}

/// Removes the fields that only the API server writes.
fn of_user(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|field, _| !OF_THE_SERVER.contains(&field.as_str()));
            if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
                annotations.remove(LAST_APPLIED);
            }
        }
    }
    object
}

/// Hides the values of a Secret and of its annotations. The result still shows which values change.
fn masked(mut before: Option<Value>, mut after: Option<Value>) -> (Option<Value>, Option<Value>) {
    let is_secret = |object: &Option<Value>| {
        object.as_ref().is_some_and(|object| {
            object.get("kind").and_then(Value::as_str) == Some("Secret")
                && object.get("apiVersion").and_then(Value::as_str) == Some("v1")
        })
    };
    if !is_secret(&before) && !is_secret(&after) {
        return (before, after);
    }
    for pointer in
        SECRET.map(|field| format!("/{field}")).into_iter().chain(["/metadata/annotations".to_owned()])
    {
        let values = |object: &Option<Value>| -> Map<String, Value> {
            let values =
                object.as_ref().and_then(|object| object.pointer(&pointer)).and_then(Value::as_object);
            values.cloned().unwrap_or_default()
        };
        let (old, new) = (values(&before), values(&after));
        mask(&mut before, &pointer, &new, "***", "*** (before)");
        mask(&mut after, &pointer, &old, "***", "*** (after)");
    }
    (before, after)
}

fn mask(object: &mut Option<Value>, pointer: &str, other: &Map<String, Value>, same: &str, changed: &str) {
    let Some(values) =
        object.as_mut().and_then(|object| object.pointer_mut(pointer)).and_then(Value::as_object_mut)
    else {
        return;
    };
    for (key, value) in values {
        let is_changed = other.get(key).is_some_and(|other| other != value);
        *value = json!(if is_changed { changed } else { same });
    }
}
