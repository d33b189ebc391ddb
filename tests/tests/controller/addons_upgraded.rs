//! kOps is upgraded from 1.35 to 1.36 and 1.37 while the add-ons service runs, on a real API server. The rules of the release that
//! wrote the channel apply.

use serde_json::{Value, json};

use crate::addons::{Addons, CHANNEL, NEEDS_UPDATE, config_map, hash};
use crate::addons_run::addon_metric;
use crate::cluster::{Cluster, KOPS_VERSION, NODE_ROLE, eventually, id};

const NAME: &str = "scaler.example.com";
const SELECTOR: &str = "addon.kops.k8s.io/name=config";
/// A manifest that an operator gives to the service in place of a channel.
const MANIFEST: &str = "s3://clusters/c.example.com/mine.yaml";

/// The add-on's entry in the format of this kOps version. kOps 1.36 and newer omit the entry's version.
fn entry(kops: &str) -> Value {
    let rule = json!({"kind": "ConfigMap", "namespaces": ["kube-system"], "labelSelector": SELECTOR});
    let mut entry = json!({"id": "k8s-1.16", "needsRollingUpdate": "workers", "prune": {"kinds": [rule]}});
    if kops < "1.36" {
        entry["version"] = json!("9.99.0");
    }
    entry
}

/// The add-on's manifest: a Deployment and these ConfigMaps.
fn manifest(config_maps: &[String]) -> String {
    let container = json!({"name": "c", "image": "x:1"});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "scaler", "namespace": "kube-system"},
        "spec": {"selector": {"matchLabels": {"app": "scaler"}},
                 "template": {"metadata": {"labels": {"app": "scaler"}}, "spec": {"containers": [container]}}}});
    let objects: Vec<String> = config_maps.iter().cloned().chain([deployment.to_string()]).collect();
    objects.join("\n---\n")
}

fn settings(value: &str) -> String {
    config_map("settings", "kube-system", value)
}

/// Writes the status of the Deployment, as the Deployment controller does. The Deployment is available, and has this condition
/// with the status `False`.
fn report(cluster: &Cluster, condition: &str) {
    let conditions = json!([{"type": "Available", "status": "True"}, {"type": condition, "status": "False"}]);
    let status = json!({"status": {"observedGeneration": 9, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1,
        "availableReplicas": 1, "conditions": conditions}});
    let patch =
        ["patch", "deployment", "scaler", "-n", "kube-system", "--subresource=status", "--type=merge", "-p"];
    cluster.kubectl(&[&patch[..], &[&status.to_string()]].concat());
}

/// The managers of a ConfigMap's fields, each with the operation that it used.
fn managers(addons: &Addons<'_>, name: &str) -> Vec<(String, String)> {
    let found = addons.get("configmap", name, "kube-system").unwrap();
    let entries = found["metadata"]["managedFields"].as_array().unwrap().iter();
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap().to_owned();
    entries.map(|entry| (text(entry, "manager"), text(entry, "operation"))).collect()
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn an_upgrade_of_kops_applies_the_rules_of_each_release() {
    let cluster = Cluster::start();
    let mut addons = Addons::new(&cluster);
    let upgrade = |version: &str| cluster.write(KOPS_VERSION, version);
    let [worker, other] = [id(1), id(2)];
    for node in [&worker, &other] {
        cluster.create_node(node, Some(node));
    }
    cluster.label_node(&worker, NODE_ROLE, "");
    // An old kubectl applied one of the objects, and Helm has added a field to it.
    let old = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "kube-system"},
        "data": {"value": "0", "gone": "yes"}});
    cluster.api.kubectl(&["apply", "-f", "-"], &old.to_string()).unwrap();
    let theirs = json!({"data": {"more": "theirs"}}).to_string();
    let of_helm = ["--field-manager=helm", "--type=merge", "-p", &theirs];
    cluster.kubectl(&[&["patch", "configmap", "settings", "-n", "kube-system"], &of_helm[..]].concat());
    // The prune rule does not select the label of these objects.
    let of_others = |name: &str| config_map(name, "kube-system", "1").replace("config\"", "other\"");
    cluster.api.kubectl(&["create", "-f", "-"], &of_others("unselected")).unwrap();
    cluster.write("mine.yaml", &of_others("mine"));
    let data = || data(&cluster);
    let recorded = |addons: &Addons<'_>, manifest: &str| {
        addons.recorded(NAME).is_some_and(|version| version["manifestHash"] == hash(manifest))
    };

    upgrade("1.35.2");
    let first = manifest(&[settings("1"), config_map("retired", "kube-system", "1")]);
    addons.put(NAME, entry("1.35.2"), &first);
    addons.put("unlisted", json!({"version": "9.99.0"}), &of_others("unlisted"));
    let service = cluster.addons_run(&["--channel", CHANNEL, "--channel", MANIFEST]);
    eventually("it is applied", || recorded(&addons, &first) && addons.recorded("unlisted").is_some());
    assert_eq!(data(), json!({"value": "1", "more": "theirs"}), "what kubectl applied is kOps' own");
    let owned = [("kops".to_owned(), "Apply".to_owned()), ("helm".to_owned(), "Update".to_owned())];
    assert_eq!(managers(&addons, "settings"), owned);
    assert!(!addons.is_marked(&worker), "a new add-on marks no Node");
    assert!(addons.is_there("configmap", "retired", "kube-system"));
    eventually("all channels are looked at", || service.get("/readyz") == "ok");
    assert!(
        !addons.is_there("configmap", "mine", "kube-system"),
        "to kOps 1.35 a manifest is an empty channel"
    );

    // In kOps 1.35, a Deployment is unhealthy if any condition is `False`.
    report(&cluster, "ReplicaFailure");
    let second = manifest(&[settings("2"), config_map("retired", "kube-system", "1")]);
    addons.put(NAME, entry("1.35.2"), &second);
    eventually("it is unhealthy", || service.get("/readyz").contains("ReplicaFailure is False"));
    assert_eq!(data()["value"], "2");
    assert!(recorded(&addons, &first) && !addons.is_marked(&worker));

    // The add-on's manifest stays the same. The Deployment becomes healthy, because kOps 1.36 ignores the condition ReplicaFailure.
    upgrade("1.36.2");
    addons.put(NAME, entry("1.36.2"), &second);
    eventually("it is healthy", || recorded(&addons, &second));
    eventually("the manifest is an add-on", || addons.is_there("configmap", "mine", "kube-system"));
    eventually("it is ready", || service.get("/readyz") == "ok");
    assert!(addons.is_marked(&worker) && !addons.is_marked(&other), "only workers are marked");
    cluster.annotate_node(&worker, NEEDS_UPDATE, Value::Null);

    let third = manifest(&[settings("3")]);
    addons.put(NAME, entry("1.36.2"), &third);
    eventually("it is updated", || recorded(&addons, &third));
    eventually("the prune rule deletes what it names", || {
        !addons.is_there("configmap", "retired", "kube-system")
    });
    assert!(addons.is_there("configmap", "unselected", "kube-system"));
    assert!(addons.is_marked(&worker) && !addons.is_marked(&other));
    cluster.annotate_node(&worker, NEEDS_UPDATE, Value::Null);

    // If an upgrade of kOps does not change an add-on's manifest, the add-on is not updated. If an upgrade removes an add-on from the
    // channel, the add-on's objects stay in the cluster.
    upgrade("1.37.0");
    addons.drop("unlisted");
    let fourth = manifest(&[settings("4")]);
    report(&cluster, "Progressing");
    addons.put(NAME, entry("1.37.0"), &third);
    let last_look = || addon_metric(&service, "kops_agent_addon_last_success_seconds", NAME).unwrap();
    let begun = last_look();
    eventually("it is looked at some times", || last_look() >= begun + 3);
    assert_eq!(addon_metric(&service, "kops_agent_addon_due", NAME), Some(0));
    assert!(!addons.is_marked(&worker), "nothing of the add-on has changed");
    assert!(addons.is_there("configmap", "unlisted", "kube-system") && addons.recorded("unlisted").is_some());

    // For every kOps version, a Deployment with the condition `Progressing: False` is unhealthy.
    addons.put(NAME, entry("1.37.0"), &fourth);
    eventually("it is unhealthy", || service.get("/readyz").contains("Progressing is False"));
    assert!(recorded(&addons, &third) && !addons.is_marked(&worker));
    report(&cluster, "ReplicaFailure");
    eventually("it is healthy", || recorded(&addons, &fourth));
    assert!(addons.is_marked(&worker) && !addons.is_marked(&other));
    assert_eq!(data(), json!({"value": "4", "more": "theirs"}));
    assert_eq!(managers(&addons, "settings"), owned);
}

fn data(cluster: &Cluster) -> Value {
    let found =
        cluster.kubectl(&["get", "configmap", "settings", "-n", "kube-system", "-o", "jsonpath={.data}"]);
    serde_json::from_str(&found).unwrap()
}
