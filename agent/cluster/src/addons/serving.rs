//! Decides whether an object of a manifest serves, so that the objects it replaces may be deleted. A workload serves once its current
//! revision runs with as many pods as its update strategy requires. No kOps release checks this before it deletes, so the rules do not
//! depend on the release.
//!
//! Source: `DeploymentStatusViewer`, `DaemonSetStatusViewer` and `StatefulSetStatusViewer` of kubectl's
//! `pkg/polymorphichelpers/rollout_status.go`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::health::{self, has_condition};
use kops_agent_spec::kops_release::KopsRelease;

/// Groups and kinds whose objects run pods.
const WORKLOADS: [(&str, &str); 8] = [
    ("", "Pod"),
    ("", "ReplicationController"),
    ("apps", "DaemonSet"),
    ("apps", "Deployment"),
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
    ("batch", "CronJob"),
    ("batch", "Job"),
];
/// The default number of unavailable pods that a DaemonSet's update strategy allows.
const MAX_UNAVAILABLE: i64 = 1;

pub fn is_workload(group: &str, kind: &str) -> bool {
    WORKLOADS.contains(&(group, kind))
}

/// The reason why an object from the API server does not serve. `None` if the object serves, or if its status does not show whether it
/// serves.
pub fn problem(live: &Value) -> Option<String> {
    if let Some(problem) = health::problem(live, KopsRelease::NEWEST) {
        return Some(problem);
    }
    let text = |pointer: &str| live.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let group = text("/apiVersion").split_once('/').map_or("", |(group, _)| group);
    let check: fn(&Value) -> Option<String> = match (group, text("/kind")) {
        ("apps", "Deployment") => deployment,
        ("apps", "DaemonSet") => daemon_set,
        ("apps", "StatefulSet") => stateful_set,
        ("apps", "ReplicaSet") | ("", "ReplicationController") => replica_set,
        ("", "Pod") => |live| (!has_condition(live, "Ready")).then(|| "it is not Ready".to_owned()),
        ("batch", "Job") => |live| has_condition(live, "Failed").then(|| "it has failed".to_owned()),
        _ => return None,
    };
    // The status of Pods and Jobs has no `observedGeneration`, so the generations are not compared.
    let says_generation = !matches!(text("/kind"), "Pod" | "Job");
    if says_generation && count(live, "/status/observedGeneration") < count(live, "/metadata/generation") {
        return Some("its controller has not processed its last change yet".to_owned());
    }
    check(live)
}

fn deployment(live: &Value) -> Option<String> {
    let (wanted, updated) = (replicas(live), count(live, "/status/updatedReplicas"));
    let old = count(live, "/status/replicas") - updated;
    if wanted == 0 && old <= 0 {
        return None;
    }
    if old > 0 {
        return Some(format!("{old} pods of the previous revision still run"));
    }
    let available = count(live, "/status/availableReplicas");
    (updated == 0 || !has_condition(live, "Available"))
        .then(|| format!("{available} of {wanted} pods are available"))
}

fn daemon_set(live: &Value) -> Option<String> {
    let wanted = count(live, "/status/desiredNumberScheduled");
    let is_rolling = live
        .pointer("/spec/updateStrategy/type")
        .and_then(Value::as_str)
        .is_none_or(|kind| kind == "RollingUpdate");
    let updated = if is_rolling { count(live, "/status/updatedNumberScheduled") } else { wanted };
    let serving = updated.min(count(live, "/status/numberAvailable"));
    let most_missing = may_be_unavailable(live, wanted);
    (wanted - serving > most_missing || wanted > 0 && serving == 0).then(|| {
        format!("{serving} of {wanted} pods are updated and available; its update strategy allows {most_missing} unavailable pods")
    })
}

/// The `maxUnavailable` of a DaemonSet's update strategy, as a number of pods. A percentage is rounded up.
fn may_be_unavailable(live: &Value, wanted: i64) -> i64 {
    match live.pointer("/spec/updateStrategy/rollingUpdate/maxUnavailable") {
        Some(Value::Number(number)) => number.as_i64().unwrap_or(MAX_UNAVAILABLE),
        Some(Value::String(text)) => text
            .strip_suffix('%')
            .and_then(|percent| percent.parse::<i64>().ok())
            .map_or(MAX_UNAVAILABLE, |percent| wanted.saturating_mul(percent).saturating_add(99) / 100),
        _ => MAX_UNAVAILABLE,
    }
}

fn stateful_set(live: &Value) -> Option<String> {
    let wanted = replicas(live);
    let strategy = "/spec/updateStrategy";
    let is_rolling = live
        .pointer(&format!("{strategy}/type"))
        .and_then(Value::as_str)
        .is_none_or(|kind| kind == "RollingUpdate");
    let partition = count(live, &format!("{strategy}/rollingUpdate/partition"));
    let to_update = if is_rolling { (wanted - partition).max(0) } else { 0 };
    let (updated, ready) = (count(live, "/status/updatedReplicas"), count(live, "/status/readyReplicas"));
    (ready < wanted || updated < to_update)
        .then(|| format!("{ready} of {wanted} pods are ready, {updated} of {to_update} are updated"))
}

fn replica_set(live: &Value) -> Option<String> {
    let (wanted, available) = (replicas(live), count(live, "/status/availableReplicas"));
    (available < wanted).then(|| format!("{available} of {wanted} pods are available"))
}

/// Whether a workload does not serve because its pods wait for a host port of the workload `other`. The waiting workload can serve only
/// after `other` is deleted.
pub fn waits_for_port_of(waiting: &Value, other: &Value) -> bool {
    let has_pods = ["/status/replicas", "/status/currentNumberScheduled"]
        .iter()
        .any(|pointer| count(waiting, pointer) > 0);
    has_pods && !host_ports(waiting).is_disjoint(&host_ports(other))
}

/// The host ports of a workload's pods, with their protocols. With the host network, container ports are host ports.
fn host_ports(live: &Value) -> BTreeSet<(&str, i64)> {
    let Some(spec) = ["/spec/template/spec", "/spec"].iter().find_map(|spec| live.pointer(spec)) else {
        return BTreeSet::new();
    };
    let fields: &[&str] = match spec.get("hostNetwork").and_then(Value::as_bool) {
        Some(true) => &["hostPort", "containerPort"],
        _ => &["hostPort"],
    };
    let containers = spec.get("containers").and_then(Value::as_array).into_iter().flatten();
    let ports = containers.filter_map(|container| container.get("ports")?.as_array()).flatten();
    ports
        .filter_map(|port| {
            let protocol = port.get("protocol").and_then(Value::as_str).unwrap_or("TCP");
            let number =
                fields.iter().find_map(|field| port.get(field)?.as_i64().filter(|number| *number > 0))?;
            Some((protocol, number))
        })
        .collect()
}

fn replicas(live: &Value) -> i64 {
    number(live, "/spec/replicas").unwrap_or(1)
}

/// A number that defaults to zero, because Go omits zeros.
fn count(live: &Value, pointer: &str) -> i64 {
    number(live, pointer).unwrap_or(0)
}

fn number(live: &Value, pointer: &str) -> Option<i64> {
    live.pointer(pointer)?.as_i64()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn live(kind: &str, spec: &Value, status: &Value) -> Value {
        let api_version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a", "generation": 2}, "spec": spec, "status": status})
    }

    fn available(counts: &Value) -> Value {
        let mut status =
            json!({"observedGeneration": 2, "conditions": [{"type": "Available", "status": "True"}]});
        for (key, value) in counts.as_object().unwrap() {
            status[key] = value.clone();
        }
        status
    }

    #[test]
    fn a_deployment_serves_once_only_its_new_revision_is_available() {
        let of = |status: Value| problem(&live("Deployment", &json!({"replicas": 2}), &status));
        assert!(of(json!({})).unwrap().contains("has not processed its last change"));
        let old = available(&json!({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2}));
        assert!(of(old).unwrap().contains("has not processed its last change"));
        assert!(of(available(&json!({}))).unwrap().contains("0 of 2 pods are available"));
        let rolling = available(&json!({"replicas": 3, "updatedReplicas": 2, "availableReplicas": 2}));
        assert_eq!(of(rolling).as_deref(), Some("1 pods of the previous revision still run"));
        // The deployment's own strategy decides how many available pods are enough.
        assert_eq!(
            of(available(&json!({"replicas": 2, "updatedReplicas": 2, "availableReplicas": 1}))),
            None
        );
        let none = live("Deployment", &json!({"replicas": 0}), &json!({"observedGeneration": 2}));
        assert_eq!(problem(&none), None);
        let refused =
            json!({"observedGeneration": 2, "conditions": [{"type": "Available", "status": "False"}]});
        assert!(of(refused).unwrap().contains("Available is False"));
    }

    #[test]
    fn a_daemon_set_may_lack_as_many_pods_as_its_strategy_allows() {
        let of = |spec: &Value, scheduled: i64, updated: i64, available: i64| {
            let status = json!({"observedGeneration": 2, "desiredNumberScheduled": scheduled,
                "updatedNumberScheduled": updated, "numberAvailable": available});
            problem(&live("DaemonSet", spec, &status)).is_none()
        };
        let plain = json!({});
        assert!(of(&plain, 0, 0, 0) && of(&plain, 5, 5, 4) && of(&plain, 5, 4, 5));
        assert!(!of(&plain, 5, 3, 5) && !of(&plain, 5, 5, 3) && !of(&plain, 1, 0, 0));
        let tenth = json!({"updateStrategy": {"rollingUpdate": {"maxUnavailable": "10%"}}});
        assert!(of(&tenth, 25, 25, 22) && !of(&tenth, 25, 25, 21));
        let by_hand = json!({"updateStrategy": {"type": "OnDelete"}});
        assert!(of(&by_hand, 5, 0, 5) && !of(&by_hand, 5, 0, 3));
    }

    #[test]
    fn other_kinds_serve_by_their_replicas_or_always() {
        let status = |ready: i64, updated: i64| json!({"observedGeneration": 2, "readyReplicas": ready, "updatedReplicas": updated});
        let three = json!({"replicas": 3});
        assert_eq!(problem(&live("StatefulSet", &three, &status(3, 3))), None);
        assert!(problem(&live("StatefulSet", &three, &status(2, 3))).is_some());
        assert!(problem(&live("StatefulSet", &three, &status(3, 2))).is_some());
        let partition = json!({"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": 2}}});
        assert_eq!(problem(&live("StatefulSet", &partition, &status(3, 1))), None);
        let replicas = json!({"observedGeneration": 2, "availableReplicas": 3});
        assert_eq!(problem(&live("ReplicaSet", &three, &replicas)), None);
        let failed = json!({"conditions": [{"type": "Failed", "status": "True"}]});
        assert!(problem(&live("Job", &json!({}), &failed)).is_some());
        assert_eq!(problem(&live("Job", &json!({}), &json!({"active": 1}))), None);
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"generation": 3}});
        assert_eq!(problem(&account), None);
    }

    #[test]
    fn pods_wait_for_a_host_port_of_another_workload() {
        let of = |replicas: i64, host_network: bool, port: &Value| {
            let spec = json!({"hostNetwork": host_network, "containers": [{"name": "c", "ports": [port]}]});
            live("Deployment", &json!({"template": {"spec": spec}}), &json!({"replicas": replicas}))
        };
        let (inside, outside) =
            (json!({"containerPort": 8233}), json!({"containerPort": 1, "hostPort": 8233}));
        let other = of(1, false, &outside);
        assert!(waits_for_port_of(&of(1, false, &outside), &other));
        assert!(waits_for_port_of(&of(1, true, &inside), &other));
        assert!(!waits_for_port_of(&of(1, false, &inside), &other), "a port of its own");
        assert!(!waits_for_port_of(&of(0, false, &outside), &other), "no pod was admitted");
        let udp = json!({"containerPort": 1, "hostPort": 8233, "protocol": "UDP"});
        assert!(!waits_for_port_of(&of(1, false, &udp), &other));
    }
}
