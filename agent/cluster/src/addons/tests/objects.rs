//! Test cases for manifests, pruning, health, managed fields and diffs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::manifest::{ApplyStage, ObjectKind, objects};
use super::prune::{Listed, Tried, doomed, holders};
use super::{PruneKind, health, managed_fields, object_diff, pause};
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_spec::kops_release::KopsRelease;

const URL: &str = "s3://clusters/c.example.com/addons/a.yaml";

const MANIFEST: &str = "\
---
# kOps wrote this
---
apiVersion: example.com/v1
kind: Widget
metadata: {name: w, namespace: widgets}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: d, namespace: widgets}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec: {group: example.com, names: {kind: Widget}}
---
apiVersion: v1
kind: Namespace
metadata: {name: widgets}
---
";

#[test]
fn objects_are_sorted_by_namespaces_then_definitions_then_others() {
    for manifest in [MANIFEST.to_owned(), MANIFEST.replace('\n', "\r\n")] {
        let objects = objects(manifest.as_bytes(), URL).unwrap();
        let shown: Vec<String> = objects.iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "Namespace widgets",
                "CustomResourceDefinition.apiextensions.k8s.io widgets.example.com",
                "Widget.example.com widgets/w",
                "Deployment.apps widgets/d"
            ]
        );
        assert_eq!(objects[1].defines(), Some(("example.com", "Widget")));
        assert_eq!((objects[0].stage(), objects[3].stage()), (ApplyStage::Namespace, ApplyStage::Other));
        assert_eq!((objects[3].defines(), objects[3].kind.api_version()), (None, "apps/v1".to_owned()));
        assert_eq!(ObjectKind::parse("v1", "Pod").unwrap().api_version(), "v1");
    }
    assert_eq!(objects(b"", URL), Ok(vec![]));
}

#[test]
fn document_separators_may_have_spaces_or_comments() {
    let pod = |name: &str| format!("{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}}}");
    let text = [
        "--- # first",
        &pod("a"),
        "---   ",
        &pod("b"),
        "---\t# Source: c",
        &pod("c"),
        "--- #",
        "# nothing",
        "---",
    ]
    .join("\n");
    for text in [text.clone(), text.replace('\n', "\r\n"), format!("{text} ")] {
        let names: Vec<String> =
            objects(text.as_bytes(), URL).unwrap().into_iter().map(|one| one.name).collect();
        assert_eq!(names, ["a", "b", "c"]);
    }
}

#[test]
fn lists_are_expanded_into_their_items() {
    let text = "\
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMapList, items: [{metadata: {name: a}}, {metadata: {name: b}, data: {c: d}}]}
- {apiVersion: v1, kind: Namespace, metadata: {name: n}}
---
{apiVersion: example.com/v1, kind: AllowList, metadata: {name: x}, spec: {items: []}}
---
{apiVersion: v1, kind: List, items: []}
";
    let shown: Vec<String> = objects(text.as_bytes(), URL)
        .unwrap()
        .iter()
        .map(|one| format!("{one} {}", one.kind.api_version()))
        .collect();
    assert_eq!(
        shown,
        ["Namespace n v1", "ConfigMap a v1", "ConfigMap b v1", "AllowList.example.com x example.com/v1"]
    );
}

#[test]
fn a_document_without_an_object_is_an_error_with_its_index() {
    for (second, wanted) in [
        ("[1]", "field documents[1] of"),
        ("a: [", "field documents[1] of"),
        ("kind: Pod\n---#\nkind: Pod", "field documents[1] of"),
        ("kind: Pod\n--- \nkind: Pod", "field documents[1].apiVersion of"),
        ("kind: List\nitems: [{kind: Pod}]", "field documents[1].items[0].apiVersion of"),
        ("apiVersion: v1", "field documents[1].kind of"),
        ("kind: Pod\nmetadata: {name: a}", "field documents[1].apiVersion of"),
        ("apiVersion: a/b/c\nkind: Pod\nmetadata: {name: a}", "field documents[1].apiVersion of"),
        ("apiVersion: v1\nkind: Pod", "field documents[1].metadata.name of"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {generateName: a}", "field documents[1].metadata.name of"),
    ] {
        let text = format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\n---\n{second}");
        let problem = objects(text.as_bytes(), URL).unwrap_err().to_string();
        assert!(problem.contains(wanted) && problem.contains(URL), "{second:?}: {problem}");
    }
}

#[test]
fn only_objects_outside_the_manifest_are_pruned() {
    let objects = objects(MANIFEST.as_bytes(), URL).unwrap();
    let listed = |namespace: &str, name: &str| Listed {
        namespace: namespace.into(),
        name: name.into(),
        is_paused: false,
        is_owned: false,
    };
    let rule = |group: &str, kind: &str| PruneKind {
        group: group.into(),
        kind: kind.into(),
        ..PruneKind::default()
    };
    let all = vec![listed("widgets", "d"), listed("widgets", "old"), listed("other", "d")];
    assert_eq!(doomed(&rule("apps", "Deployment"), &objects, all.clone()), all[1..]);
    // A different kind or group makes a different object, even if the names are equal.
    assert_eq!(doomed(&rule("apps", "DaemonSet"), &objects, all.clone()), all);
    assert_eq!(doomed(&rule("extensions", "Deployment"), &objects, all.clone()), all);
    assert_eq!(doomed(&rule("", "Namespace"), &objects, vec![listed("", "widgets")]), []);
    let paused = Listed { is_paused: true, ..listed("widgets", "old") };
    assert_eq!(doomed(&rule("apps", "Deployment"), &objects, vec![paused]), []);
}

#[test]
fn objects_stay_until_their_kind_and_all_workloads_serve() {
    let objects = objects(MANIFEST.as_bytes(), URL).unwrap();
    let tried = |deployment: Result<Value, Failure>, widget: Result<Value, Failure>| -> Vec<Tried<'_>> {
        let live = |object: &super::manifest::Object| match object.kind.kind.as_str() {
            "Deployment" => deployment.clone(),
            "Widget" => widget.clone(),
            _ => Ok(object.value.clone()),
        };
        objects.iter().map(|object| Tried { object, live: live(object) }).collect()
    };
    let held = |tried: &[Tried<'_>], group: &str, kind: &str| -> Vec<String> {
        holders(group, kind, tried).into_iter().map(|(_, why)| why).collect()
    };
    let serves = Ok(
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"generation": 1}, "spec": {"replicas": 0},
        "status": {"observedGeneration": 1}}),
    );
    let fine = Ok(json!({"kind": "Widget"}));
    let refused = Err(Failure::new(Kind::ApiServerRefused, "refused"));
    let all = [("apps", "Deployment"), ("apps", "DaemonSet"), ("", "ConfigMap"), ("example.com", "Widget")];
    for (group, kind) in all {
        assert_eq!(held(&tried(serves.clone(), fine.clone()), group, kind), [""; 0], "{kind}");
        assert_eq!(held(&tried(refused.clone(), fine.clone()), group, kind), ["refused"], "{kind}");
        let of_widget = usize::from(kind == "Widget");
        assert_eq!(held(&tried(serves.clone(), refused.clone()), group, kind).len(), of_widget, "{kind}");
    }
    // A stale webhook may be the reason why the API server rejects the Deployment. Therefore the Deployment does not prevent the deletion
    // of the webhook.
    let webhook = "ValidatingWebhookConfiguration";
    assert_eq!(held(&tried(refused, fine), "admissionregistration.k8s.io", webhook), [""; 0]);
}

fn with_condition(api_version: &str, kind: &str, condition: &str, status: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"},
           "status": {"conditions": [{"type": condition, "status": status, "reason": "Why", "message": "told"}]}})
}

#[test]
fn an_object_is_healthy_unless_a_relevant_condition_is_false() {
    for (api_version, kind, condition, is_healthy) in [
        ("apps/v1", "Deployment", "Available", false),
        ("apps/v1", "Deployment", "Progressing", false),
        ("apps/v1", "Deployment", "ReplicaFailure", true),
        ("apps/v1", "DaemonSet", "Progressing", true),
        ("v1", "Pod", "Ready", false),
        ("v1", "Node", "MemoryPressure", true),
        ("keda.sh/v1alpha1", "ScaledObject", "Paused", true),
        ("gateway.networking.k8s.io/v1", "Gateway", "Programmed", false),
        ("example.com/v1", "Gateway", "Programmed", true),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "NamesAccepted", false),
        ("autoscaling/v2", "HorizontalPodAutoscaler", "Ready", true),
        ("v1", "ConfigMap", "Ready", true),
    ] {
        let told =
            health::problem(&with_condition(api_version, kind, condition, "False"), KopsRelease::NEWEST);
        let wanted = (!is_healthy).then(|| format!("{condition} is False (Why: told)"));
        assert_eq!(told, wanted, "{api_version} {kind}");
        for status in ["True", "Unknown", ""] {
            assert_eq!(
                health::problem(&with_condition(api_version, kind, condition, status), KopsRelease::NEWEST),
                None
            );
        }
    }
    assert_eq!(health::problem(&json!({"kind": "Deployment"}), KopsRelease::NEWEST), None);
    assert_eq!(
        health::problem(&json!({"kind": "X", "status": {"conditions": null}}), KopsRelease::NEWEST),
        None
    );
    let going = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"deletionTimestamp": "2026-11-24T00:00:00Z"}});
    assert_eq!(health::problem(&going, KopsRelease::NEWEST).as_deref(), Some("it is being deleted"));
}

#[test]
fn up_to_kops_1_35_any_false_condition_means_unhealthy() {
    for (version, counts) in
        [("1.34.3", true), ("1.35.2", true), ("1.36.2", false), ("1.37.0-alpha.1", false)]
    {
        let release = KopsRelease::of_version(version).unwrap();
        let problem = |kind, condition, status| {
            health::problem(&with_condition("keda.sh/v1alpha1", kind, condition, status), release)
        };
        assert_eq!(problem("ScaledObject", "Paused", "False").is_some(), counts, "{version}");
        assert_eq!(problem("ScaledObject", "Paused", "True"), None);
        assert!(problem("ScaledObject", "Ready", "False").is_some());
        let silent = with_condition("v1", "ConfigMap", "Paused", "False");
        assert_eq!(health::problem(&silent, release), None);
    }
}

#[test]
fn an_annotation_pauses_an_add_on_or_an_object() {
    let annotations = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let of_namespace = annotations(&[
        ("paused.kops-agent/a.addons.k8s.io", "until the upgrade is over"),
        ("paused.kops-agent/b", "false"),
        ("addons.k8s.io/c", "{}"),
    ]);
    assert_eq!(pause::paused_addons(&of_namespace), ["a.addons.k8s.io".to_owned()].into());
    assert_eq!(pause::annotation_of_addon("a"), "paused.kops-agent/a");
    for (value, is_paused) in [("true", true), ("", true), ("false", false)] {
        assert_eq!(pause::is_paused(&annotations(&[(pause::PAUSED, value)])), is_paused);
        let live = json!({"metadata": {"annotations": {pause::PAUSED: value}}});
        assert_eq!(pause::is_object_paused(&live), is_paused);
    }
    assert!(!pause::is_paused(&annotations(&[])) && !pause::is_object_paused(&json!({})));
}

#[test]
fn a_definition_is_established_by_its_condition() {
    let definition =
        |status| with_condition("apiextensions.k8s.io/v1", "CustomResourceDefinition", "Established", status);
    assert!(health::is_established(&definition("True")) && !health::is_established(&definition("False")));
    assert!(!health::is_established(&json!({})));
}

fn entry(manager: &str, operation: &str, fields: Value) -> Value {
    json!({"manager": manager, "operation": operation, "apiVersion": "apps/v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
}

fn managed(entries: &[Value]) -> Value {
    json!({"metadata": {"name": "a", "resourceVersion": "7", "managedFields": entries}})
}

#[test]
fn fields_of_client_side_kubectl_are_taken_over() {
    let replicas = json!({"f:spec": {"f:replicas": {}}});
    let image = json!({"f:spec": {"f:image": {}}});
    let of_kubelet = entry("kubelet", "Update", json!({"f:status": {}}));
    let live = managed(&[
        entry("kubectl-client-side-apply", "Update", replicas.clone()),
        of_kubelet.clone(),
        entry("kops", "Apply", image.clone()),
        entry("kubectl-edit", "Update", replicas.clone()),
    ]);
    let migration = managed_fields::migration(&live, "apps/v1").unwrap();
    assert_eq!(
        migration.patch,
        json!({"metadata": {"resourceVersion": "7", "managedFields": [
            entry("kops", "Apply", json!({"f:spec": {"f:image": {}, "f:replicas": {}}})),
            of_kubelet,
        ]}})
    );
    let told = [r#"all fields of "kubectl-client-side-apply""#, r#"all fields of "kubectl-edit""#];
    assert_eq!(migration.taken_over, told);
    let after = managed(migration.patch["metadata"]["managedFields"].as_array().unwrap());
    assert_eq!(managed_fields::migration(&after, "apps/v1"), None, "once is enough");
    let update = managed(&[entry("kops", "Update", image.clone())]);
    let migration = managed_fields::migration(&update, "apps/v1").unwrap();
    assert_eq!(migration.patch["metadata"]["managedFields"], json!([entry("kops", "Apply", image)]));
    assert_eq!(migration.taken_over, [""; 0]);
}

#[test]
fn fields_of_other_managers_stay() {
    let of_controller = entry("kube-controller-manager", "Update", json!({"f:status": {}}));
    let mut of_older_version = of_controller.clone();
    of_older_version["apiVersion"] = json!("apps/v1beta1");
    for entries in [
        vec![of_older_version, of_controller],
        vec![],
        vec![entry("kops", "Apply", json!({})), entry("kube-controller-manager", "Update", json!({}))],
        vec![entry("helm", "Apply", json!({}))],
        vec![entry("before-first-apply", "Update", json!({}))],
    ] {
        assert_eq!(managed_fields::migration(&managed(&entries), "apps/v1"), None);
    }
    assert_eq!(managed_fields::migration(&json!({}), "apps/v1"), None);
}

#[test]
fn fields_of_two_versions_are_merged_into_the_applied_version() {
    let mut other = entry("kops", "Apply", json!({"f:a": {}}));
    other["apiVersion"] = json!("apps/v1beta1");
    let live = managed(&[other, entry("kubectl-edit", "Update", json!({"f:b": {}}))]);
    let patch = managed_fields::migration(&live, "apps/v1").unwrap().patch;
    assert_eq!(
        patch["metadata"]["managedFields"],
        json!([entry("kops", "Apply", json!({"f:a": {}, "f:b": {}}))])
    );
}

#[test]
fn kubectls_record_decides_the_fields_of_objects_without_managers() {
    let noted = json!({"apiVersion": "apps/v1beta1", "kind": "Deployment", "status": {"replicas": 1},
        "metadata": {"name": "a", "labels": {"old": "1"}},
        "spec": {"paused": true, "args": ["a"], "containers": [{"name": "gone", "image": "x"}]}});
    let of_helm = entry("helm", "Update", json!({"f:spec": {"f:paused": {}}}));
    let mut live = managed(&[entry("before-first-apply", "Update", json!({"f:spec": {}})), of_helm.clone()]);
    live["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/last-applied-configuration": noted.to_string()});
    let migration = managed_fields::migration(&live, "apps/v1").unwrap();
    let fields = json!({
        "f:metadata": {"f:labels": {"f:old": {}},
                       "f:annotations": {"f:kubectl.kubernetes.io/last-applied-configuration": {}}},
        "f:spec": {"f:paused": {}, "f:args": {},
                   "f:containers": {"k:{\"name\":\"gone\"}": {".": {}, "f:name": {}, "f:image": {}}}},
    });
    assert_eq!(
        migration.patch["metadata"]["managedFields"],
        json!([of_helm, entry("kops", "Apply", fields)])
    );
    assert_eq!(migration.taken_over, ["the fields that kubectl recorded as applied"]);
    live["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": "no JSON"});
    assert_eq!(managed_fields::migration(&live, "apps/v1"), None);
}

#[test]
fn a_field_owned_itself_stays_owned_beside_its_subfields() {
    let union = managed_fields::union(&json!({"f:a": {}}), &json!({"f:a": {"f:b": {}}}));
    assert_eq!(union, json!({"f:a": {".": {}, "f:b": {}}}));
    let union = managed_fields::union(&json!({"f:a": {"f:c": {}}}), &json!({"f:a": {"f:b": {}}}));
    assert_eq!(union, json!({"f:a": {"f:b": {}, "f:c": {}}}));
    assert_eq!(managed_fields::union(&json!({}), &json!({"f:a": {}})), json!({"f:a": {}}));
}

#[test]
fn a_diff_leaves_out_fields_of_the_api_server() {
    let live = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}, "status": {"x": 1},
                      "metadata": {"name": "c", "resourceVersion": "7", "managedFields": [], "uid": "u"}});
    let mut wanted = live.clone();
    wanted["metadata"]["resourceVersion"] = json!("8");
    wanted["metadata"]["generation"] = json!(2);
    wanted["status"] = json!({});
    assert_eq!(object_diff::unified("ConfigMap c", Some(&live), Some(&wanted)), None);
    wanted["data"]["a"] = json!("2");
    let diff = object_diff::unified("ConfigMap c", Some(&live), Some(&wanted)).unwrap();
    assert!(diff.starts_with("--- ConfigMap c\n+++ ConfigMap c\n"), "{diff}");
    assert!(diff.contains("\n-  a: \"1\"\n+  a: \"2\"\n") && !diff.contains("resourceVersion"), "{diff}");
    let new = object_diff::unified("ConfigMap c", None, Some(&wanted)).unwrap();
    assert!(new.starts_with("--- /dev/null\n+++ ConfigMap c\n"), "{new}");
    let gone = object_diff::unified("ConfigMap c", Some(&live), None).unwrap();
    assert!(gone.starts_with("--- ConfigMap c\n+++ /dev/null\n"), "{gone}");
}

#[test]
fn a_diff_of_secrets_names_changed_keys_and_hides_values() {
    let secret = |key: &str, value: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "data": {"same": "c2FtZQ==", key: value},
               "stringData": {"text": value},
               "metadata": {"name": "s", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": value}}})
    };
    let diff =
        object_diff::unified("Secret s", Some(&secret("k", "aGlkZGVu")), Some(&secret("k", "b3RoZXI=")))
            .unwrap();
    assert!(diff.contains("-  k: '*** (before)'\n") && diff.contains("+  k: '*** (after)'\n"), "{diff}");
    let new = object_diff::unified("Secret s", None, Some(&secret("k", "aGlkZGVu"))).unwrap();
    for hidden in ["aGlkZGVu", "b3RoZXI=", "c2FtZQ=="] {
        assert!(!diff.contains(hidden) && !new.contains(hidden), "{diff}{new}");
    }
    assert!(new.contains("+  k: '***'\n"), "{new}");
}

#[test]
fn a_diff_of_pods_reports_a_changed_token_and_hides_it() {
    let pods = |token: &str, level: &str| {
        let env = json!([{"name": "HCLOUD_TOKEN", "value": token}, {"name": "LEVEL", "value": level}]);
        json!({"kind": "DaemonSet", "spec": {"template": {"spec": {"containers": [{"name": "a", "env": env}]}}}})
    };
    let diff = object_diff::unified(
        "DaemonSet d",
        Some(&pods("hunter2", "low")),
        Some(&pods("correcthorse", "high")),
    )
    .unwrap();
    assert!(!diff.contains("hunter2") && !diff.contains("correcthorse"), "{diff}");
    for line in ["-value: '[***]'", "+value: '[***]'", "name: LEVEL"] {
        assert!(diff.replace(' ', "").contains(&line.replace(' ', "")), "{line} is not in {diff}");
    }
}
