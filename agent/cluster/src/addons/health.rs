//! Decides whether an object is healthy, from its status. An add-on's version is recorded once all of its objects are healthy.
//!
//! Source: upstream's `pkg/applylib/applyset/health.go`.

use serde_json::Value;

use kops_agent_spec::kops_release::KopsRelease;

/// Condition types whose `False` marks an object of any kind as unhealthy. In a condition of a different type, `False` may be good. By the
/// rules of kOps up to 1.35, `False` in any condition marks the object as unhealthy.
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

/// Additional condition types whose `False` marks an object of one kind as unhealthy: group, kind, condition types.
const CONDITIONS_OF: [(&str, &str, &[&str]); 3] = [
    ("apps", "Deployment", &["Progressing"]),
    ("gateway.networking.k8s.io", "Gateway", &["Accepted", "Programmed"]),
    ("gateway.networking.k8s.io", "GatewayClass", &["Accepted"]),
];

/// Kinds (`apiVersion` and kind) of objects whose status never shows their health.
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

/// The reason why an object is unhealthy by the rules of a kOps release. `None` if the object is healthy, or its health is unknown.
pub fn problem(object: &Value, release: KopsRelease) -> Option<String> {
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
        .filter(|condition| {
            let name = text_of(condition, "type");
            release.all_conditions_tell_of_health() || CONDITIONS.contains(&name) || of_kind.contains(&name)
        })
        .filter_map(falsehood)
        .collect();
    (!problems.is_empty()).then(|| problems.join("; "))
}

/// The reason why a CustomResourceDefinition can never be established: a different definition already uses one of its names.
pub fn refused_names(definition: &Value) -> Option<String> {
    condition(definition, "NamesAccepted").and_then(falsehood)
}

/// Whether the API server serves the kind of this CustomResourceDefinition, according to its condition `Established`.
pub fn is_established(definition: &Value) -> bool {
    has_condition(definition, "Established")
}

/// Whether an object has a condition with status `True`.
pub(super) fn has_condition(object: &Value, wanted: &str) -> bool {
    condition(object, wanted).is_some_and(|condition| text_of(condition, "status") == "True")
}

fn condition<'a>(object: &'a Value, wanted: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|condition| text_of(condition, "type") == wanted)
}

/// Describes a condition whose status is `False`.
fn falsehood(condition: &Value) -> Option<String> {
    let text = |field| text_of(condition, field);
    let why: Vec<&str> =
        ["reason", "message"].map(text).into_iter().filter(|text| !text.is_empty()).collect();
    let name = text("type");
    (text("status") == "False").then(|| match why.is_empty() {
        true => format!("{name} is False"),
        false => format!("{name} is False ({})", why.join(": ")),
    })
}

fn text_of<'a>(condition: &'a Value, field: &str) -> &'a str {
    condition.get(field).and_then(Value::as_str).unwrap_or_default()
}
