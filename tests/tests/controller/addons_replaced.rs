//! Add-ons whose new version replaces objects of the old version, on a real API server. A workload stays until its replacement
//! serves. An add-on that can never be applied delays no other add-on. No controllers run here, so tests write the status of workloads.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::addons::{Addons, config_map};
use crate::addons_run::{addon_metric, reasons};
use crate::cluster::{Cluster, eventually};

const NAME: &str = "ccm.example.com";

fn deployment(name: &str, image: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "kube-system", "labels": {"addon.kops.k8s.io/name": NAME}},
        "spec": {"selector": {"matchLabels": {"app": "ccm"}},
                 "template": {"metadata": {"labels": {"app": "ccm"}}, "spec": {"containers": [{"name": "c", "image": image}]}}}})
}

fn account(name: &str) -> String {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata":
        {"name": name, "namespace": "kube-system", "labels": {"addon.kops.k8s.io/name": NAME}}})
    .to_string()
}

/// Prune rules in kOps' format, and a rule for a kind that no API server serves.
fn rules() -> Value {
    let selector = format!("addon.kops.k8s.io/name={NAME}");
    let rule = |group: &str, kind: &str| json!({"group": group, "kind": kind, "namespaces": ["kube-system"], "labelSelector": selector});
    json!({"kinds": [rule("", "ServiceAccount"), rule("apps", "Deployment"), rule("apps", "DaemonSet"), rule("gone.example.com", "Thing")]})
}

/// A policy that rejects Deployments whose image begins with `y:`.
const POLICY: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: registries}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}]}
  validations: [{expression: "!object.spec.template.spec.containers.exists(c, c.image.startsWith('y:'))"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: registries}
spec: {policyName: registries, validationActions: [Deny]}
"#;

fn refuse_images(cluster: &Cluster) {
    cluster.api.kubectl(&["create", "-f", "-"], POLICY).unwrap();
    let refused = deployment("probe", "y:1").to_string();
    eventually("the policy holds", || {
        cluster.api.kubectl(&["create", "--dry-run=server", "-f", "-"], &refused).is_err()
    });
}

/// Writes the status of a Deployment, as the Deployment controller does when the Deployment's only pod is available.
fn let_serve(cluster: &Cluster, name: &str) {
    let status = json!({"status": {"observedGeneration": 9, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
        "conditions": [{"type": "Available", "status": "True"}]}});
    let patch = status.to_string();
    cluster.kubectl(&[
        "patch",
        "deployment",
        name,
        "-n",
        "kube-system",
        "--subresource=status",
        "--type=merge",
        "-p",
        &patch,
    ]);
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn workloads_stay_until_their_replacement_serves() {
    let cluster = Cluster::start();
    let mut addons = Addons::new(&cluster);
    let entry = json!({"prune": rules()});
    let v1 = format!("{}\n---\n{}", account("ccm"), deployment("cloud-controller", "x:1"));
    addons.put(NAME, entry.clone(), &v1);
    let service = cluster.addons_run(&[]);
    eventually("the first version is applied", || addons.recorded(NAME).is_some());
    let v1_recorded = addons.recorded(NAME);

    refuse_images(&cluster);
    let v2 = format!("{}\n---\n{}", account("hcloud-ccm"), deployment("hcloud-cloud-controller", "y:2"));
    addons.put(NAME, entry, &v2);
    let failures = || addon_metric(&service, "kops_agent_addon_failures_total", NAME).unwrap_or_default();
    eventually("its replacement is refused twice", || failures() >= 2);
    let is_there = |kind: &str, name: &str| addons.is_there(kind, name, "kube-system");
    assert!(is_there("deployment", "cloud-controller"), "what runs stays");
    assert!(is_there("serviceaccount", "ccm"), "and what its pods use");
    assert!(!reasons(&cluster).contains("AddonObjectDeleted"));
    let waits = "Deployment.apps kube-system/cloud-controller, because its replacement is not available: Deployment.apps kube-system/hcloud-cloud-controller: ";
    assert!(service.get("/readyz").contains(waits), "{}", service.get("/readyz"));

    cluster.kubectl(&["delete", "validatingadmissionpolicybinding", "registries"]);
    eventually("its replacement is there", || is_there("deployment", "hcloud-cloud-controller"));
    let at_least = failures() + 1;
    eventually("it waits for its replacement", || failures() >= at_least);
    assert!(is_there("deployment", "cloud-controller") && addons.recorded(NAME) == v1_recorded);

    let_serve(&cluster, "hcloud-cloud-controller");
    eventually("the new version is recorded", || addons.recorded(NAME) != v1_recorded);
    assert!(!is_there("deployment", "cloud-controller") && !is_there("serviceaccount", "ccm"));
    for deleted in ["Deployment.apps kube-system/cloud-controller", "ServiceAccount kube-system/ccm"] {
        let told = format!(
            "AddonObjectDeleted the add-on {NAME}: deleted {deleted}, which its manifest does not have"
        );
        assert!(reasons(&cluster).contains(&told), "{}", reasons(&cluster));
    }
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn a_workload_stays_while_its_replacement_is_rejected() {
    let cluster = Cluster::start();
    let mut addons = Addons::new(&cluster);
    let entry = json!({"prune": rules()});
    addons.put(NAME, entry.clone(), &deployment("ccm", "x:1").to_string());
    addons.ends(0, &["apply"]);
    let mut daemon_set = deployment("ccm", "y:2");
    daemon_set["kind"] = json!("DaemonSet");
    daemon_set["metadata"]["namespace"] = json!("kube-system");
    // The API server rejects this selector, because it does not select the label of the template.
    daemon_set["spec"]["template"]["metadata"]["labels"]["app"] = json!("other");
    addons.put(NAME, entry, &daemon_set.to_string());
    let said = addons.ends(1, &["apply", "--retries", "0"]);
    assert!(said.contains("not deleted yet: Deployment.apps kube-system/ccm, because"), "{said}");
    assert!(addons.is_there("deployment", "ccm", "kube-system"));
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn a_workload_with_the_host_port_of_its_replacement_is_deleted() {
    let cluster = Cluster::start();
    let mut addons = Addons::new(&cluster);
    let entry = json!({"prune": rules()});
    let on_host = |name: &str| {
        let mut deployment = deployment(name, "x:1");
        let spec = &mut deployment["spec"]["template"]["spec"];
        spec["hostNetwork"] = json!(true);
        spec["containers"][0]["ports"] = json!([{"containerPort": 8233}]);
        deployment.to_string()
    };
    addons.put(NAME, entry.clone(), &on_host("old"));
    addons.ends(0, &["apply"]);
    addons.put(NAME, entry, &on_host("new"));
    addons.ends(1, &["apply", "--retries", "0"]);
    assert!(addons.is_there("deployment", "old", "kube-system"), "no pod of the new one is admitted");
    let pending =
        json!({"status": {"observedGeneration": 9, "replicas": 1, "updatedReplicas": 1}}).to_string();
    let patch = [
        "patch",
        "deployment",
        "new",
        "-n",
        "kube-system",
        "--subresource=status",
        "--type=merge",
        "-p",
        &pending,
    ];
    cluster.kubectl(&patch);
    let said = addons.ends(0, &["apply"]);
    assert!(said.contains("pruned Deployment.apps kube-system/old"), "{said}");
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn taken_over_fields_are_reported_even_if_the_add_on_fails() {
    let cluster = Cluster::start();
    let mut addons = Addons::new(&cluster);
    let mut one = deployment("cloud-controller", "x:1");
    one["spec"]["replicas"] = json!(1);
    let manifest = format!("{one}\n---\n{}", config_map("c", "nowhere", "1"));
    addons.put(NAME, json!({}), &manifest);
    let service = cluster.addons_run(&[]);
    let failures = || addon_metric(&service, "kops_agent_addon_failures_total", NAME).unwrap_or_default();
    eventually("it fails", || failures() >= 1);
    // kubectl sets 2 replicas and not 0. The API server omits a field with the value 0, so kubectl would not own the field.
    cluster.kubectl(&["scale", "deployment", "cloud-controller", "-n", "kube-system", "--replicas=2"]);
    eventually("its replicas are put back", || {
        let path = "jsonpath={.spec.replicas}";
        cluster.kubectl(&["get", "deployment", "cloud-controller", "-n", "kube-system", "-o", path]) == "1"
    });
    eventually("an Event says so", || {
        let told = format!(
            "AddonFieldsTakenOver the add-on {NAME} took over fields of Deployment.apps kube-system/cloud-controller: .spec.replicas"
        );
        reasons(&cluster).contains(&told)
    });
    assert_eq!(addons.recorded(NAME), None);
}

/// A definition with the singular name `widget`. Only one definition with this singular name can be established, so a second definition
/// has a name conflict.
fn definition(plural: &str, kind: &str) -> Value {
    let names = json!({"plural": plural, "singular": "widget", "kind": kind});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}})
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn a_definition_with_a_name_conflict_delays_no_other_add_on() {
    let cluster = Cluster::start();
    let mut addons = Addons::new(&cluster);
    cluster.api.kubectl(&["create", "-f", "-"], &definition("widgetolds", "WidgetOld").to_string()).unwrap();
    cluster.kubectl(&["wait", "--for=condition=established", "--timeout=60s", "crd/widgetolds.example.com"]);
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "default"}});
    addons.put("refused", json!({}), &format!("{}\n---\n{widget}", definition("widgets", "Widget")));
    addons.put("behind", json!({}), &config_map("behind", "kube-system", "1"));

    let begun = Instant::now();
    let said = addons.ends(1, &["apply", "--retries", "0"]);
    let took = begun.elapsed();
    assert!(
        said.contains("widgets.example.com is not healthy: NamesAccepted is False (SingularConflict"),
        "{said}"
    );
    assert!(said.contains("behind applied: 1 objects"), "{said}");
    assert!(took < Duration::from_secs(20), "it took {took:?}: {said}");

    // An object of a version that the definition in the manifest does not serve.
    let mut of_version = definition("gadgets", "Gadget");
    of_version["spec"]["names"]["singular"] = json!("gadget");
    let gadget = json!({"apiVersion": "example.com/v2", "kind": "Gadget", "metadata": {"name": "g", "namespace": "default"}});
    addons.put("unserved", json!({}), &format!("{of_version}\n---\n{gadget}"));
    let begun = Instant::now();
    let said = addons.ends(1, &["apply", "unserved", "--retries", "0"]);
    assert!(said.contains("serves no Gadget of example.com/v2"), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}: {said}", begun.elapsed());
}
