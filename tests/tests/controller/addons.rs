//! Add-ons on a real API server: status, diff, apply, pruning, and the failure of single add-ons.

use std::fs;
use std::process::Command;

use kops_agent_tests::digest::sha256_hex;
use serde_json::{Value, json};

use crate::cluster::{Cluster, NODE_ROLE, id};
use crate::controller::Controller;

pub const NEEDS_UPDATE: &str = "kops.k8s.io/needs-update";
pub const CHANNEL: &str = "s3://clusters/c.example.com/addons/bootstrap-channel.yaml";

struct Ended {
    code: Option<i32>,
    printed: String,
    said: String,
}

/// A channel of add-ons that kOps wrote, and the manifest of each add-on.
pub struct Addons<'a> {
    cluster: &'a Cluster,
    /// The add-ons in the channel's order, each with its name, its channel entry and its manifest. The channel entry contains
    /// neither the add-on's name nor the fields `manifest` and `manifestHash`.
    entries: Vec<(String, Value, String)>,
}

impl<'a> Addons<'a> {
    /// A channel without add-ons.
    pub fn new(cluster: &'a Cluster) -> Addons<'a> {
        Addons { cluster, entries: Vec::new() }
    }

    /// Adds or replaces an add-on in the channel, as `kops update cluster` does.
    pub fn put(&mut self, name: &str, entry: Value, manifest: &str) {
        match self.entries.iter_mut().find(|(known, _, _)| known == name) {
            Some(there) => *there = (name.to_owned(), entry, manifest.to_owned()),
            None => self.entries.push((name.to_owned(), entry, manifest.to_owned())),
        }
        self.write();
    }

    /// Removes an add-on from the channel.
    pub fn drop(&mut self, name: &str) {
        self.entries.retain(|(known, _, _)| known != name);
        self.write();
    }

    fn write(&self) {
        let entries = self.entries.iter().map(|(name, entry, manifest)| {
            let file = format!("{name}/k8s-1.16.yaml");
            self.cluster.write(&format!("addons/{file}"), manifest);
            let mut entry = entry.clone();
            entry["name"] = json!(name);
            entry["manifest"] = json!(file);
            entry["manifestHash"] = json!(hash(manifest));
            entry
        });
        let entries: Vec<Value> = entries.collect();
        let channel =
            json!({"kind": "Addons", "metadata": {"name": "bootstrap"}, "spec": {"addons": entries}});
        self.cluster.write("addons/bootstrap-channel.yaml", &channel.to_string());
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        let output = self.cluster.addons(arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Ended { code: output.status.code(), printed: text(output.stdout), said: text(output.stderr) }
    }

    /// Runs `kops-agent addons` with these arguments, checks its exit code, and returns its output and its log.
    #[track_caller]
    pub fn ends(&self, code: i32, arguments: &[&str]) -> String {
        let ended = self.run(arguments);
        assert_eq!(ended.code, Some(code), "{arguments:?}: {}{}", ended.printed, ended.said);
        ended.printed + &ended.said
    }

    /// The version of an add-on that is recorded in the namespace kube-system.
    pub fn recorded(&self, name: &str) -> Option<Value> {
        let namespace = self.get("namespace", "kube-system", "default")?;
        let value = namespace["metadata"]["annotations"].get(format!("addons.k8s.io/{name}"))?;
        Some(serde_json::from_str(value.as_str()?).unwrap())
    }

    pub fn get(&self, kind: &str, name: &str, namespace: &str) -> Option<Value> {
        let found = self
            .cluster
            .api
            .kubectl(&["get", kind, name, "-n", namespace, "-o", "json", "--show-managed-fields"], "");
        found.ok().map(|found| serde_json::from_str(&found).unwrap())
    }

    pub fn is_there(&self, kind: &str, name: &str, namespace: &str) -> bool {
        self.get(kind, name, namespace).is_some()
    }

    /// Whether a Node is marked for replacement.
    pub fn is_marked(&self, node: &str) -> bool {
        self.get("node", node, "default").unwrap()["metadata"]["annotations"].get(NEEDS_UPDATE).is_some()
    }
}

pub fn hash(manifest: &str) -> String {
    sha256_hex(manifest.trim().as_bytes())
}

/// A manifest of one ConfigMap.
pub fn config_map(name: &str, namespace: &str, value: &str) -> String {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"value": value},
        "metadata": {"name": name, "namespace": namespace, "labels": {"addon.kops.k8s.io/name": "config"}}});
    object.to_string()
}

/// A manifest whose objects cannot be applied in their order: an object comes before the definition of its kind, and
/// before its namespace.
const WIDGETS: &str = r#"
apiVersion: example.com/v1
kind: Widget
metadata: {name: w, namespace: widgets}
spec: {size: 3}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  names: {kind: Widget, listKind: WidgetList, plural: widgets, singular: widget}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: v1
kind: Namespace
metadata: {name: widgets}
"#;

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn add_ons_are_shown_applied_updated_and_pruned() {
    let cluster = Cluster::start();
    for number in 1..=2 {
        cluster.create_node(&id(number), Some(&id(number)));
    }
    cluster.label_node(&id(1), NODE_ROLE, "");
    let mut addons = Addons::new(&cluster);
    // The first rule names a kind that the API server does not serve.
    let rules = json!({"kinds": [
        {"group": "not.served.example.com", "kind": "Gizmo", "labelSelector": "addon.kops.k8s.io/name=config"},
        {"kind": "ConfigMap", "namespaces": ["kube-system"], "labelSelector": "addon.kops.k8s.io/name=config"},
    ]});
    let config = json!({"id": "k8s-1.16", "needsRollingUpdate": "workers", "prune": rules});
    let two = format!(
        "{}\n---\n{}",
        config_map("kept", "kube-system", "1"),
        config_map("dropped", "kube-system", "1")
    );
    addons.put("widgets", json!({}), WIDGETS);
    addons.put("config", config.clone(), &two);
    addons.put("past", json!({"kubernetesVersion": "<1.20.0"}), "not: read");

    let status = addons.ends(4, &["status"]);
    assert!(status.contains("widgets  kube-system  new") && !status.contains("past"), "{status}");
    let diff = addons.ends(4, &["diff", "--exit-code"]);
    for shown in [
        "~ Widget.example.com widgets/w",
        "+  size: 3",
        "~ Namespace widgets",
        "~ ConfigMap kube-system/kept",
    ] {
        assert!(diff.contains(shown), "{shown}: {diff}");
    }
    assert!(!addons.is_there("namespace", "widgets", "default") && addons.recorded("config").is_none());
    assert!(!addons.is_there("configmap", "kept", "kube-system"), "a diff changes nothing");

    let applied = addons.ends(0, &["apply"]);
    assert!(applied.contains("widgets applied: 3 objects\n"), "{applied}");
    assert_eq!(addons.get("widget", "w", "widgets").unwrap()["spec"]["size"], 3);
    let version =
        json!({"channel": CHANNEL, "id": "k8s-1.16", "manifestHash": hash(&two), "systemGeneration": 1});
    assert_eq!(addons.recorded("config"), Some(version));
    let kept = addons.get("configmap", "kept", "kube-system").unwrap();
    let manager = &kept["metadata"]["managedFields"][0];
    assert_eq!((&manager["manager"], &manager["operation"]), (&json!("kops"), &json!("Apply")));
    assert!(!addons.is_marked(&id(1)), "a new add-on marks no node");

    assert!(addons.ends(0, &["status"]).contains("current"));
    assert!(addons.ends(0, &["diff", "--exit-code"]).contains("Nothing would change."));
    assert!(addons.ends(0, &["apply"]).contains("Nothing to do"));
    assert!(addons.ends(0, &["apply", "--reapply"]).contains("config applied: 2 objects\n"));
    let again = addons.get("configmap", "kept", "kube-system").unwrap();
    assert_eq!(
        again["metadata"]["resourceVersion"], kept["metadata"]["resourceVersion"],
        "nothing is written twice"
    );
    assert!(!addons.is_marked(&id(1)), "what is applied anew marks no node");

    // The prune rule does not cover these objects. The first is in a different namespace, and the second has a
    // different label.
    let others = [
        config_map("stays", "default", "1"),
        config_map("stays", "kube-system", "1").replace("config\"", "other\""),
    ];
    for other in others {
        cluster.api.kubectl(&["create", "-f", "-"], &other).unwrap();
    }
    addons.put("config", config, &config_map("kept", "kube-system", "2"));
    let diff = addons.ends(0, &["diff", "config"]);
    assert!(diff.contains("- ConfigMap kube-system/dropped") && !diff.contains("stays"), "{diff}");
    assert!(diff.contains("-  value: \"1\"") && diff.contains("+  value: \"2\""), "{diff}");
    assert!(addons.is_there("configmap", "dropped", "kube-system"), "a diff deletes nothing");
    let applied = addons.ends(0, &["apply", "config"]);
    assert!(applied.contains("config applied: 1 objects, 1 Nodes marked for replacement\n"), "{applied}");
    assert!(applied.contains("pruned ConfigMap kube-system/dropped"), "{applied}");
    assert_eq!(addons.get("configmap", "kept", "kube-system").unwrap()["data"]["value"], "2");
    assert!(!addons.is_there("configmap", "dropped", "kube-system"));
    assert!(
        addons.is_there("configmap", "stays", "kube-system")
            && addons.is_there("configmap", "stays", "default")
    );
    assert!(addons.is_marked(&id(1)) && !addons.is_marked(&id(2)), "only workers are marked");

    let unknown = addons.ends(3, &["apply", "nothing"]);
    assert!(unknown.contains("no add-on \"nothing\"") && unknown.contains("widgets, config"), "{unknown}");
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn a_failing_add_on_delays_no_other_and_is_retried() {
    let cluster = Cluster::start();
    let mut addons = Addons::new(&cluster);
    let bad = format!(
        "{}\n---\n{}",
        config_map("in-bad", "kube-system", "1"),
        config_map("in-bad", "nowhere", "1")
    );
    addons.put("a-stale", json!({}), &config_map("a", "kube-system", "1"));
    addons.put("bad", json!({}), &bad);
    addons.put("misplaced", json!({}), r#"{apiVersion: v1, kind: ConfigMap, metadata: {name: m}}"#);
    addons.put("wrong", json!({"needsRollingUpdate": "some"}), &config_map("w", "kube-system", "1"));
    addons.put("good", json!({}), &config_map("good", "kube-system", "1"));
    // The content of the file does not match its hash. This happens while kOps writes the file.
    cluster.write("addons/a-stale/k8s-1.16.yaml", &config_map("a", "kube-system", "0"));

    let said = addons.ends(1, &["apply", "--retries", "0"]);
    for told in [
        "a-stale FAILED: 0 objects\n",
        "its SHA-256 is",
        "bad FAILED: 1 objects\n",
        "ConfigMap nowhere/in-bad: the API server rejects the request: namespaces \"nowhere\" not found",
        "ConfigMap m has no metadata.namespace",
        "field spec.addons[3].needsRollingUpdate of",
        "good applied: 1 objects\n",
    ] {
        assert!(said.contains(told), "{told}: {said}");
    }
    for name in ["a-stale", "bad", "misplaced", "wrong"] {
        assert_eq!(addons.recorded(name), None, "{name}");
    }
    assert!(addons.recorded("good").is_some() && !addons.is_there("configmap", "a", "kube-system"));
    let status = addons.ends(4, &["status", "-o", "json"]);
    let rows: Value = serde_json::from_str(&status).unwrap();
    let states: Vec<(&str, &str)> = rows["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["name"].as_str().unwrap(), row["state"].as_str().unwrap()))
        .collect();
    assert_eq!(
        states,
        [("a-stale", "new"), ("bad", "new"), ("misplaced", "new"), ("wrong", "wrong"), ("good", "current")]
    );

    // The add-on `bad` failed above, because its namespace was missing. The test creates this namespace while the command retries.
    cluster.write("addons/a-stale/k8s-1.16.yaml", &config_map("a", "kube-system", "1"));
    let mut retrying = cluster.addons(&["apply", "bad"]).spawn().unwrap();
    cluster.kubectl(&["create", "namespace", "nowhere"]);
    assert!(retrying.wait().unwrap().success());
    assert!(addons.recorded("bad").is_some());
    assert!(addons.ends(0, &["apply", "a-stale"]).contains("a-stale applied"));

    cluster.write("addons/bootstrap-channel.yaml", "kind: Addons\nspec: {addons: [{name: a}, null]}");
    let said = addons.ends(3, &["apply"]);
    assert!(said.contains(&format!("field spec.addons[1] of {CHANNEL}")), "{said}");
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn taken_over_fields_are_reported() {
    let cluster = Cluster::start();
    let mut addons = Addons::new(&cluster);
    let old = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "kube-system"},
        "data": {"value": "old", "gone": "yes"}});
    cluster.api.kubectl(&["apply", "-f", "-"], &old.to_string()).unwrap();
    let theirs = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d", "namespace": "kube-system"},
        "data": {"value": "theirs", "more": "theirs"}});
    cluster
        .api
        .kubectl(&["apply", "--server-side", "--field-manager=helm", "-f", "-"], &theirs.to_string())
        .unwrap();
    let manifest =
        format!("{}\n---\n{}", config_map("c", "kube-system", "new"), config_map("d", "kube-system", "ours"));
    addons.put("config", json!({}), &manifest);
    let said = addons.ends(0, &["apply"]);
    assert!(
        said.contains("took over ConfigMap kube-system/d: .data.value (conflict with \"helm\""),
        "{said}"
    );
    assert!(
        said.contains("took over ConfigMap kube-system/c: all fields of \"kubectl-client-side-apply\"\n"),
        "what kubectl applied of old is ours: {said}"
    );
    let data = |name: &str| addons.get("configmap", name, "kube-system").unwrap()["data"].clone();
    assert_eq!(data("c"), json!({"value": "new"}), "what kubectl applied and the manifest has not is gone");
    assert_eq!(data("d"), json!({"value": "ours", "more": "theirs"}));
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn an_add_on_gets_its_authority_after_cert_manager() {
    let cluster = Cluster::start();
    let mut addons = Addons::new(&cluster);
    addons.put(
        "metrics.addons.k8s.io",
        json!({"needsPKI": true}),
        &config_map("metrics", "kube-system", "1"),
    );
    let diff = addons.ends(0, &["diff"]);
    assert!(diff.contains("+ Secret kube-system/metrics.addons.k8s.io-ca"), "{diff}");
    let said = addons.ends(1, &["apply", "--retries", "0"]);
    assert!(said.contains("install cert-manager first"), "{said}");
    assert!(!said.contains("PRIVATE KEY"));
    assert!(addons.recorded("metrics.addons.k8s.io").is_some(), "its objects are applied all the same");
    assert!(addons.ends(4, &["status"]).contains("authority due"));
    let secret = || addons.get("secret", "metrics.addons.k8s.io-ca", "kube-system").unwrap();
    let first = secret();
    assert_eq!(first["type"], "kubernetes.io/tls");

    let definition = WIDGETS.split("---").nth(1).unwrap();
    let definition = definition
        .replace("widgets.example.com", "issuers.cert-manager.io")
        .replace("example.com", "cert-manager.io")
        .replace(
            "{kind: Widget, listKind: WidgetList, plural: widgets, singular: widget}",
            "{kind: Issuer, plural: issuers}",
        );
    cluster.api.kubectl(&["create", "-f", "-"], &definition).unwrap();
    let said = addons.ends(0, &["apply"]);
    assert!(said.contains("metrics.addons.k8s.io applied: 0 objects, its authority made"), "{said}");
    assert_eq!(secret()["data"], first["data"], "the key that is there stays");
    let issuer = addons.get("issuer", "metrics.addons.k8s.io", "kube-system").unwrap();
    assert_eq!(issuer["spec"], json!({"ca": {"secretName": "metrics.addons.k8s.io-ca"}}));
    addons.ends(0, &["status"]);
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn versions_that_upstreams_pod_recorded_count() {
    let cluster = Cluster::start();
    let mut addons = Addons::new(&cluster);
    let manifest = config_map("c", "kube-system", "1");
    addons.put("same", json!({"id": "k8s-1.16"}), &manifest);
    addons.put("older", json!({"id": "k8s-1.16"}), &manifest);
    addons.put("elsewhere", json!({}), &manifest);
    let record = |namespace: &str, name: &str, version: Value| {
        let annotation = format!("addons.k8s.io/{name}={version}");
        cluster.kubectl(&["annotate", "namespace", namespace, &annotation]);
    };
    let version = |generation: u32| json!({"channel": CHANNEL, "id": "k8s-1.16", "manifestHash": hash(&manifest), "systemGeneration": generation});
    record("kube-system", "same", version(1));
    record("kube-system", "older", version(0));
    record(
        "default",
        "elsewhere",
        json!({"channel": CHANNEL, "manifestHash": hash(&manifest), "systemGeneration": 1}),
    );
    record("kube-system", "removed", json!({"channel": CHANNEL, "manifestHash": "abc"}));
    let rows: Value = serde_json::from_str(&addons.ends(4, &["status", "-o", "json"])).unwrap();
    let state = |name: &str, namespace: &str| {
        rows["items"]
            .as_array()
            .unwrap()
            .iter()
            .find(|row| row["name"] == name && row["namespace"] == namespace)
            .unwrap()["state"]
            .clone()
    };
    assert_eq!(state("same", "kube-system"), "current");
    assert_eq!(state("older", "kube-system"), "updateDue");
    assert_eq!(state("elsewhere", "kube-system"), "new", "only its own namespace's annotations count");
    assert_eq!(state("elsewhere", "default"), "unlisted");
    assert_eq!(state("removed", "kube-system"), "unlisted");
    addons.ends(0, &["apply"]);
    addons.ends(0, &["status"]);
    assert!(addons.recorded("removed").is_some(), "an add-on that no channel names stays");
}

impl Cluster {
    /// The command `kops-agent addons` with the administrator's rights.
    fn addons(&self, arguments: &[&str]) -> Command {
        let admin = self.api.kubeconfig("admin", &["system:masters"]).unwrap();
        let mut command = self.verb();
        command.arg("addons").args(arguments).arg("--kubeconfig").arg(admin);
        self.with_configuration(&mut command);
        command
    }

    /// Starts `kops-agent addons run` with the administrator's rights and an interval of one second.
    pub fn addons_run(&self, arguments: &[&str]) -> Controller {
        let mut command = self.addons(&["run", "--interval", "1", "--health-listen", "127.0.0.1:0"]);
        command.args(arguments);
        Controller::start(command)
    }

    /// Writes a file in the cluster's folder of the store.
    pub fn write(&self, file: &str, text: &str) {
        let path = self.store().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}
