//! Manual operations on add-ons, on a real API server. Objects were written by an old kubectl or must be recreated, and add-ons are
//! removed or paused.

use serde_json::{Value, json};

use crate::addons::{Addons, config_map};
use crate::cluster::{Cluster, eventually};

const NAME: &str = "scaler.example.com";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

fn kubectl_apply(cluster: &Cluster, object: &Value, manager: &str) {
    let manager = format!("--field-manager={manager}");
    cluster.api.kubectl(&["apply", &manager, "-f", "-"], &object.to_string()).unwrap();
}

fn get(cluster: &Cluster, kind: &str, name: &str) -> Value {
    let found =
        cluster.kubectl(&["get", kind, name, "-n", "kube-system", "-o", "json", "--show-managed-fields"]);
    serde_json::from_str(&found).unwrap()
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn kubectl_fields_in_two_versions_block_no_add_on() {
    let cluster = Cluster::start();
    let mut addons = Addons::new(&cluster);
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let metadata = |labels: Value| json!({"name": "h", "namespace": "kube-system", "labels": labels});
    let scaler = |version: &str, labels: Value, spec: Value| {
        let mut object = json!({"apiVersion": format!("autoscaling/{version}"), "kind": "HorizontalPodAutoscaler",
            "metadata": metadata(labels), "spec": {"maxReplicas": 5, "scaleTargetRef": target}});
        for (key, value) in spec.as_object().unwrap() {
            object["spec"][key] = value.clone();
        }
        object
    };
    kubectl_apply(
        &cluster,
        &scaler("v1", json!({"first": "1"}), json!({"minReplicas": 2})),
        "kubectl-client-side-apply",
    );
    let behavior = json!({"behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}}});
    kubectl_apply(&cluster, &scaler("v2", json!({"first": "1", "second": "1"}), behavior), "kubectl-edit");
    let versions: Vec<Value> = get(&cluster, "hpa", "h")["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["apiVersion"].clone())
        .collect();
    assert!(
        versions.contains(&json!("autoscaling/v1")) && versions.contains(&json!("autoscaling/v2")),
        "{versions:?}"
    );

    addons.put(NAME, json!({}), &scaler("v2", json!({"third": "1"}), json!({})).to_string());
    let said = addons.ends(0, &["apply", "--retries", "0"]);
    assert!(
        said.contains(
            r#"took over HorizontalPodAutoscaler.autoscaling kube-system/h: all fields of "kubectl-edit""#
        ),
        "{said}"
    );
    let after = get(&cluster, "hpa", "h");
    assert_eq!(after["metadata"]["labels"], json!({"third": "1"}), "{after}");
    assert_eq!(after["spec"].get("behavior"), None, "{after}");
    assert_eq!(after["metadata"]["annotations"].get(LAST_APPLIED), None, "{after}");
    let again = addons.ends(0, &["apply", "--reapply", "--retries", "0"]);
    assert!(!again.contains("took over"), "{again}");
    assert_eq!(
        get(&cluster, "hpa", "h")["metadata"]["resourceVersion"],
        after["metadata"]["resourceVersion"]
    );
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn fields_in_kubectls_record_are_removed_unless_others_own_them() {
    let cluster = Cluster::start();
    let mut addons = Addons::new(&cluster);
    let old = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "kube-system"},
        "data": {"value": "old", "gone": "yes"}});
    kubectl_apply(&cluster, &old, "kubectl-client-side-apply");
    // Without recorded managers, the object looks as if it was created before server-side apply existed. Afterwards, Helm sets a field of
    // the object.
    let patch = json!([{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}]).to_string();
    cluster.kubectl(&["patch", "configmap", "c", "-n", "kube-system", "--type=json", "-p", &patch]);
    let theirs = json!({"data": {"more": "theirs"}}).to_string();
    let of_helm = ["--field-manager=helm", "--type=merge", "-p", &theirs];
    cluster.kubectl(&[&["patch", "configmap", "c", "-n", "kube-system"], &of_helm[..]].concat());

    addons.put(NAME, json!({}), &config_map("c", "kube-system", "new"));
    let said = addons.ends(0, &["apply", "--retries", "0"]);
    assert!(
        said.contains("took over ConfigMap kube-system/c: the fields that kubectl recorded as applied"),
        "{said}"
    );
    let after = get(&cluster, "configmap", "c");
    assert_eq!(after["data"], json!({"value": "new", "more": "theirs"}), "{after}");
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn an_object_with_changed_immutable_fields_is_recreated_on_request() {
    let cluster = Cluster::start();
    let mut addons = Addons::new(&cluster);
    let deployment = |app: &str| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "kube-system"},
            "spec": {"selector": {"matchLabels": {"app": app}},
                     "template": {"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "c", "image": "x:1"}]}}}})
    };
    addons.put(NAME, json!({}), &deployment("one").to_string());
    addons.ends(0, &["apply"]);
    addons.put(NAME, json!({}), &deployment("two").to_string());
    let said = addons.ends(1, &["apply", "--retries", "0"]);
    let advice = format!("kops-agent addons apply {NAME} --recreate Deployment.apps/kube-system/d");
    assert!(said.contains(&advice), "{said}");

    let uid = || get(&cluster, "deployment", "d")["metadata"]["uid"].clone();
    let before = uid();
    let recreate = ["apply", NAME, "--recreate", "Deployment.apps/kube-system/d"];
    let shown = addons.ends(0, &recreate);
    assert!(shown.contains("would be deleted with its dependents, and recreated"), "{shown}");
    assert_eq!(uid(), before, "it is only shown");

    // If the API server would reject the new object, the old object is not deleted.
    let mut wrong = deployment("two");
    wrong["spec"]["template"]["metadata"]["labels"]["app"] = json!("three");
    addons.put(NAME, json!({}), &wrong.to_string());
    let refused = addons.ends(1, &[&recreate[..], &["--yes"][..]].concat());
    assert!(refused.contains("the old object stays, because the new one fails in a dry run"), "{refused}");
    assert_eq!(uid(), before);

    addons.put(NAME, json!({}), &deployment("two").to_string());
    addons.ends(0, &[&recreate[..], &["--yes"][..]].concat());
    let after = get(&cluster, "deployment", "d");
    assert!(
        after["metadata"]["uid"] != before && after["spec"]["selector"]["matchLabels"]["app"] == "two",
        "{after}"
    );
    let unknown = addons.ends(3, &["apply", NAME, "--recreate", "Service/x"]);
    assert!(unknown.contains("no such object; it has Deployment.apps/kube-system/d"), "{unknown}");
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn an_add_on_outside_its_channel_is_removed_on_request() {
    let cluster = Cluster::start();
    let mut addons = Addons::new(&cluster);
    let labelled = |api_version: &str, kind: &str, name: &str| {
        json!({"apiVersion": api_version, "kind": kind, "metadata":
            {"name": name, "labels": {"addon.kops.k8s.io/name": NAME}}})
    };
    let mut map = labelled("v1", "ConfigMap", "c");
    map["metadata"]["namespace"] = json!("kube-system");
    let manifest = [
        labelled("v1", "Namespace", "scaler"),
        labelled("rbac.authorization.k8s.io/v1", "ClusterRole", "scaler"),
        map,
    ]
    .map(|object| object.to_string())
    .join("\n---\n");
    addons.put(NAME, json!({}), &manifest);
    addons.put("other", json!({}), &config_map("other", "kube-system", "1"));
    addons.ends(0, &["apply"]);
    let listed = addons.ends(3, &["remove", NAME, "--yes"]);
    assert!(
        listed.contains(&format!("has the add-on {NAME}, so kops-agent would apply the add-on again")),
        "{listed}"
    );

    addons.drop(NAME);
    let shown = addons.ends(0, &["remove", NAME]);
    for line in [
        "- ConfigMap kube-system/c\n",
        "- ClusterRole.rbac.authorization.k8s.io scaler\n",
        "kept Namespace scaler (deleting it would delete all objects in it)\n",
        "Nothing was changed.",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert!(addons.is_there("configmap", "c", "kube-system") && addons.recorded(NAME).is_some());
    addons.ends(0, &["remove", NAME, "--yes"]);
    assert!(!addons.is_there("configmap", "c", "kube-system"));
    assert!(
        !addons.is_there("clusterrole", "scaler", "default")
            && addons.is_there("namespace", "scaler", "default")
    );
    assert!(addons.recorded(NAME).is_none() && addons.is_there("configmap", "other", "kube-system"));
    let unknown = addons.ends(3, &["remove", "nothing"]);
    assert!(unknown.contains("the cluster has no add-on \"nothing\""), "{unknown}");
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn annotations_pause_an_add_on_or_one_of_its_objects() {
    let cluster = Cluster::start();
    let mut addons = Addons::new(&cluster);
    let rules = json!({"kinds": [{"kind": "ConfigMap", "namespaces": ["kube-system"],
        "labelSelector": "addon.kops.k8s.io/name=config"}]});
    let two = |value: &str| {
        format!("{}\n---\n{}", config_map("a", "kube-system", value), config_map("b", "kube-system", value))
    };
    addons.put(NAME, json!({"prune": rules}), &two("1"));
    addons.ends(0, &["apply"]);
    let value = |name: &str| get(&cluster, "configmap", name)["data"]["value"].clone();
    let annotate = |object: &[&str], annotation: &str| {
        cluster.kubectl(&[&["annotate"][..], object, &["-n", "kube-system", annotation][..]].concat());
    };
    let pause = format!("paused.kops-agent/{NAME}");
    annotate(&["namespace", "kube-system"], &format!("{pause}=for a while"));
    addons.put(NAME, json!({"prune": rules}), &two("2"));
    assert!(addons.ends(0, &["status"]).contains("paused"));
    let said = addons.ends(0, &["apply"]);
    assert!(said.contains(&format!("the namespace kube-system has the annotation {pause}")), "{said}");
    assert_eq!(value("a"), "1");

    let service = cluster.addons_run(&[]);
    eventually("it is ready", || service.get("/readyz") == "ok");
    assert_eq!(value("a"), "1");
    annotate(&["configmap", "a"], "kops-agent/paused=true");
    annotate(&["namespace", "kube-system"], &format!("{pause}-"));
    eventually("the other object is applied", || value("b") == "2");
    assert_eq!(value("a"), "1", "a paused object stays");
    addons.put(NAME, json!({"prune": rules}), &config_map("b", "kube-system", "3"));
    eventually("the next version is applied", || value("b") == "3");
    assert!(addons.is_there("configmap", "a", "kube-system"), "nor is it deleted");
}
