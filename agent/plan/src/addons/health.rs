//! Whether an object is well, as far as it says. An add-on's version is recorded once all of its objects are.
//!
//! Source: upstream's `pkg/applylib/applyset/health.go`.

use serde_json::Value;

/// Conditions whose `False` says that an object is not well, whatever its kind. Of any other type it may be good news.
const CONDITIONS: [&str; 8] = [
    "Available",
    "ContainersReady",
    "Established",
    "Healthy",
    "Initialized",
    "NamesAccepted",
    "PodScheduled",
    "Ready",
];

/// Conditions that say it of one kind: its group, its kind, their types.
const CONDITIONS_OF: [(&str, &str, &[&str]); 3] = [
    ("apps", "Deployment", &["Progressing"]),
    ("gateway.networking.k8s.io", "Gateway", &["Accepted", "Programmed"]),
    ("gateway.networking.k8s.io", "GatewayClass", &["Accepted"]),
];

/// Kinds that say nothing of it, whatever their status holds: `apiVersion` and kind.
const SILENT: [(&str, &str); 10] = [
    ("v1", "ConfigMap"),
    ("v1", "ServiceAccount"),
    ("autoscaling/v1", "HorizontalPodAutoscaler"),
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("scheduling.k8s.io/v1", "PriorityClass"),
    ("storage.k8s.io/v1", "StorageClass"),
];

/// Why an object is not well; `None` where it is, or does not say.
pub fn problem(object: &Value) -> Option<String> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("/apiVersion"), text("/kind"));
    if !text("/metadata/deletionTimestamp").is_empty() {
        return Some("it is being deleted".to_owned());
    }
    if SILENT.contains(&(api_version, kind)) {
        return None;
    }
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let of_kind = CONDITIONS_OF.iter().find(|(of, name, _)| *of == group && *name == kind);
    let of_kind = of_kind.map_or(&[][..], |(_, _, types)| types);
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array)?;
    let problems: Vec<String> = conditions
        .iter()
        .filter_map(|condition| {
            let text = |name: &str| condition.get(name).and_then(Value::as_str).unwrap_or_default();
            let tells = CONDITIONS.contains(&text("type")) || of_kind.contains(&text("type"));
            let is_bad = tells && text("status") == "False";
            is_bad.then(|| in_words(text("type"), text("reason"), text("message")))
        })
        .collect();
    (!problems.is_empty()).then(|| problems.join("; "))
}

/// Whether a definition's kind is served, by its conditions.
pub fn is_established(definition: &Value) -> bool {
    let conditions = definition.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|condition| {
        condition.get("type").and_then(Value::as_str) == Some("Established")
            && condition.get("status").and_then(Value::as_str) == Some("True")
    })
}

fn in_words(condition: &str, reason: &str, message: &str) -> String {
    let why: Vec<&str> = [reason, message].into_iter().filter(|text| !text.is_empty()).collect();
    match why.is_empty() {
        true => format!("{condition} is False"),
        false => format!("{condition} is False ({})", why.join(": ")),
    }
}
