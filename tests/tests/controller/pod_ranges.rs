//! The pod CIDRs of Nodes, if the configuration makes the controller assign them. Also Nodes of machines without a cloud.

use std::fs;

use kops_agent_tests::ec2::Instance;
use kops_agent_tests::gce::{Gce, PROJECT, ZONE};
use serde_json::{Value, json};

use crate::cluster::{CLUSTER, Cluster, GROUP_LABEL, NODE_ROLE, eventually, id, path_of};

fn configured(cluster: &Cluster) {
    cluster.configure_with(None, &json!({"enableCloudIPAM": true}));
}

fn nodes() -> Instance {
    Instance::of_group(CLUSTER, "nodes")
}

/// A cluster whose machines belong to no cloud (metal).
fn on_metal() -> Cluster {
    let cluster = Cluster::start_on("metal", Vec::new());
    let_machines_be_enrolled(&cluster);
    configured(&cluster);
    cluster
}

/// Adds the CustomResourceDefinition of `Host` to a cluster. A `Host` object enrols a machine. Grants controllers the right to read these
/// objects.
pub fn let_machines_be_enrolled(cluster: &Cluster) {
    cluster.kubectl(&["create", "namespace", "kops-system"]);
    // This definition follows kOps' k8s/crds/kops.k8s.io_hosts.yaml.
    let field = json!({"type": "string"});
    let spec = json!({"type": "object", "properties":
        {"publicKey": field, "instanceGroup": field, "podCIDRs": {"type": "array", "items": field}}});
    let approved = "https://github.com/kubernetes/enhancements/pull/1111";
    let resource = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "hosts.kops.k8s.io", "annotations": {"api-approved.kubernetes.io": approved}},
        "spec": {"group": "kops.k8s.io", "scope": "Namespaced",
                 "names": {"kind": "Host", "listKind": "HostList", "plural": "hosts", "singular": "host"},
                 "versions": [{"name": "v1alpha2", "served": true, "storage": true, "subresources": {"status": {}},
                               "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]}
    });
    cluster.api.kubectl(&["create", "-f", "-"], &resource.to_string()).unwrap();
    cluster.kubectl(&["wait", "--for=condition=established", "--timeout=60s", "crd/hosts.kops.k8s.io"]);
    let rbac = fs::read_to_string(path_of("packaging/kubernetes/hosts-rbac.yaml")).unwrap();
    cluster.api.kubectl(&["apply", "-f", "-"], &rbac).unwrap();
}

/// Enrols a machine as `kops toolbox enroll` does.
fn enrol(cluster: &Cluster, name: &str, pod_cidrs: &[&str]) {
    cluster.api.kubectl(&["create", "-f", "-"], &host(name, "PEM", pod_cidrs).to_string()).unwrap();
}

pub fn host(name: &str, public_key: &str, pod_cidrs: &[&str]) -> Value {
    json!({
        "apiVersion": "kops.k8s.io/v1alpha2", "kind": "Host",
        "metadata": {"name": name, "namespace": "kops-system"},
        "spec": {"publicKey": public_key, "instanceGroup": "nodes", "podCIDRs": pod_cidrs}
    })
}

/// The pod CIDRs of a Node. Null if the Node has none.
fn ranges(cluster: &Cluster, node: &str) -> Value {
    let node = cluster.node(node);
    assert_eq!(node["spec"]["podCIDR"], node["spec"]["podCIDRs"][0]);
    node["spec"]["podCIDRs"].clone()
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn nodes_get_the_prefix_of_their_instance_and_keep_existing_ranges() {
    let cluster = Cluster::start();
    configured(&cluster);
    let prefix = |number: usize| format!("2001:db8:0:1:{number}::/80");
    for number in 1..=3 {
        cluster.ec2.put(&id(number), nodes().with_ipv6_prefixes(&[&prefix(number)]));
        cluster.create_node(&id(number), Some(&id(number)));
    }
    // Upstream's controller has already assigned a different prefix.
    let given = r#"{"spec": {"podCIDR": "2001:db8:0:1:33::/80", "podCIDRs": ["2001:db8:0:1:33::/80"]}}"#;
    cluster.patch_node(&id(3), given);
    cluster.ec2.put(&id(4), nodes());
    cluster.create_node(&id(4), Some(&id(4)));
    // The Node of machine 5 has the provider ID of machine 1.
    cluster.create_node(&id(5), Some(&id(1)));

    let shown = cluster.once(&["--dry-run"]);
    assert!(shown.contains(&format!("  + spec.podCIDRs: {:?}\n", prefix(1))), "{shown}");
    assert_eq!(ranges(&cluster, &id(1)), Value::Null, "a dry run changes nothing");

    let _controller = cluster.controller();
    eventually("pods have addresses", || ranges(&cluster, &id(2)) == json!([prefix(2)]));
    eventually("pods have addresses", || ranges(&cluster, &id(1)) == json!([prefix(1)]));
    eventually("they are labelled, too", || {
        (1..=4).all(|number| cluster.label(&id(number), GROUP_LABEL).is_some())
    });
    assert_eq!(ranges(&cluster, &id(3)), json!(["2001:db8:0:1:33::/80"]));
    eventually("an Event says why", || cluster.reasons(&id(4)).contains("CIDRNotAvailable"));
    eventually("an Event says why", || cluster.reasons(&id(5)).contains("InstanceOfOtherNode"));
    assert_eq!(ranges(&cluster, &id(5)), Value::Null);

    cluster.ec2.put(&id(4), nodes().with_ipv6_prefixes(&[&prefix(4)]));
    eventually("it has got one since", || ranges(&cluster, &id(4)) == json!([prefix(4)]));
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn nodes_on_gce_get_the_external_range_of_their_instance() {
    let gce = Gce::start().unwrap();
    let managed = gce.put_group(CLUSTER, "nodes");
    let cluster = Cluster::start_on_gce(&gce);
    configured(&cluster);
    let names: Vec<String> = (0..20).map(|number| format!("nodes-{number:04}")).collect();
    for (number, name) in names.iter().enumerate() {
        let instance = gce.create_instance(&managed, name);
        gce.put_instance(name, instance.with_external_ipv6(&[&format!("2600:1900:4000:{number:x}::/96")]));
        cluster.create_node_saying(name, &format!("gce://{PROJECT}/{ZONE}/{name}"));
    }
    let _controller = cluster.controller();
    eventually("pods have addresses", || ranges(&cluster, "nodes-0019") == json!(["2600:1900:4000:13::/96"]));
    eventually("all of them", || names.iter().all(|name| ranges(&cluster, name).is_array()));
    assert!(gce.calls_of("instances.list") <= 2 && gce.calls_of("instances.get") == 0, "{:?}", gce.calls());
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn enrolled_machines_get_the_labels_of_their_group_and_the_ranges_of_their_host() {
    let cluster = on_metal();
    enrol(&cluster, "vm1", &["10.1.0.0/24"]);
    enrol(&cluster, "vm2", &[]);
    for name in ["vm1", "vm2", "vm3"] {
        cluster.create_node(name, None);
    }
    let controller = cluster.controller();
    eventually("it is labelled", || cluster.label("vm1", "tier").as_deref() == Some("web"));
    assert_eq!(cluster.label("vm1", NODE_ROLE).as_deref(), Some(""));
    eventually("pods have addresses", || ranges(&cluster, "vm1") == json!(["10.1.0.0/24"]));
    eventually("an Event says why", || cluster.reasons("vm2").contains("CIDRNotAvailable"));
    assert_eq!(cluster.label("vm2", GROUP_LABEL).as_deref(), Some("nodes"));
    eventually("an Event says why", || cluster.reasons("vm3").contains("HostNotFound"));
    assert_eq!(cluster.label("vm3", GROUP_LABEL), None);
    enrol(&cluster, "vm3", &[]);
    eventually("it is enrolled", || cluster.label("vm3", GROUP_LABEL).is_some());

    // If the controller may not read `Host` objects, it does not treat machines as absent, and removes nothing.
    cluster.kubectl(&["delete", "clusterrolebinding", "kops-controller:pki-verifier"]);
    drop(controller);
    let _controller = cluster.controller();
    cluster.create_node("vm4", None);
    let reasons = || cluster.reasons("kops-controller-leader");
    eventually("an Event says so", || reasons().contains("CloudUnavailable"));
    assert_eq!(cluster.label("vm1", "tier").as_deref(), Some("web"));
    assert!(!cluster.reasons("vm4").contains("HostNotFound"));
}
