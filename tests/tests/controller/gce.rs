//! The controller on GCE.

use kops_agent_tests::gce::{CREATED_BY, Gce, INSTANCE_GROUP_METADATA, Instance, Mood, PROJECT, ZONE};
use serde_json::Value;

use crate::cluster::{CLUSTER, Cluster, GROUP_LABEL, NODE_ROLE, eventually};

fn provider_id(instance: &str) -> String {
    format!("gce://{PROJECT}/{ZONE}/{instance}")
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn nodes_on_gce_get_the_labels_of_their_group() {
    let gce = Gce::start().unwrap();
    gce.set_page(10);
    let nodes = gce.put_group(CLUSTER, "nodes");
    let control_plane = gce.put_group(CLUSTER, "control-plane");
    gce.put_group("other.example.com", "nodes");
    gce.set_mood(Mood::Throttling);
    let cluster = Cluster::start_on_gce(&gce);
    let names: Vec<String> = (0..25).map(|number| format!("nodes-{number:04}")).collect();
    for name in &names {
        gce.create_instance(&nodes, name);
        cluster.create_node_saying(name, &provider_id(name));
    }
    gce.create_instance(&control_plane, "control-plane-x1y2");
    cluster.create_node_saying("control-plane-x1y2", &provider_id("control-plane-x1y2"));

    let controller = cluster.controller();
    eventually("GCE throttles", || controller.get("/metrics").contains(r#"outcome="Throttled""#));
    gce.set_mood(Mood::Good);
    eventually("the nodes are labelled", || {
        names.iter().all(|name| cluster.label(name, GROUP_LABEL).as_deref() == Some("nodes"))
    });
    assert_eq!(cluster.label(&names[0], NODE_ROLE).as_deref(), Some(""));
    assert_eq!(cluster.label(&names[0], "tier").as_deref(), Some("web"));
    eventually("the control plane is labelled", || {
        cluster.label("control-plane-x1y2", GROUP_LABEL).as_deref() == Some("control-plane")
    });
    assert_eq!(
        cluster.label("control-plane-x1y2", "node-role.kubernetes.io/control-plane").as_deref(),
        Some("")
    );

    gce.create_instance(&nodes, "nodes-new");
    cluster.create_node_saying("nodes-new", &provider_id("nodes-new"));
    eventually("a new node is labelled", || cluster.label("nodes-new", GROUP_LABEL).is_some());

    // If the store is unreadable, the controller uses the labels of the instance template.
    cluster.break_store();
    cluster.label_node("nodes-new", GROUP_LABEL, Value::Null);
    eventually("a label is put back", || cluster.label("nodes-new", GROUP_LABEL).is_some());

    // If the store is unreadable when a controller starts, the controller removes no labels that came from
    // the store.
    drop(controller);
    let _controller = cluster.controller();
    cluster.label_node("nodes-new", GROUP_LABEL, Value::Null);
    eventually("a label is put back", || cluster.label("nodes-new", GROUP_LABEL).is_some());
    for name in ["nodes-new", "nodes-0000", "nodes-0024"] {
        assert_eq!(cluster.label(name, "tier").as_deref(), Some("web"), "{name}");
    }
    assert_eq!(gce.calls_of("instances.get"), 0, "no instance was asked for");
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn without_the_store_nodes_on_gce_get_their_templates_labels() {
    let gce = Gce::start().unwrap();
    let nodes = gce.put_group(CLUSTER, "nodes");
    gce.create_instance(&nodes, "nodes-x1y2");
    let cluster = Cluster::start_on_gce(&gce);
    cluster.break_store();
    cluster.create_node_saying("nodes-x1y2", &provider_id("nodes-x1y2"));
    let shown = cluster.once(&["--dry-run"]);
    assert_eq!(
        shown,
        "node nodes-x1y2\n  + kops.k8s.io/instancegroup: \"nodes\"\n  + node-role.kubernetes.io/node: \"\"\n"
    );
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn claims_of_nodes_on_gce_are_not_trusted() {
    let gce = Gce::start().unwrap();
    let nodes = gce.put_group(CLUSTER, "nodes");
    let control_plane = gce.put_group(CLUSTER, "control-plane");
    let other = gce.put_group("other.example.com", "nodes");
    let gone = gce.put_group(CLUSTER, "gone");
    gce.create_instance(&control_plane, "control-plane-x1y2");
    gce.create_instance(&other, "nodes-other");
    gce.create_instance(&gone, "gone-x1y2");
    let stopped = Instance { status: "TERMINATED".into(), ..gce.create_instance(&nodes, "nodes-stop") };
    gce.put_instance("nodes-stop", stopped);
    // Two instances have changed their own metadata to claim that the control plane's group created them.
    let made_by = format!("projects/123/zones/{ZONE}/instanceGroupManagers/{control_plane}");
    let says = |instance: Instance| {
        instance.saying(CREATED_BY, &made_by).saying(INSTANCE_GROUP_METADATA, "control-plane")
    };
    gce.put_instance("nodes-liar", says(gce.create_instance(&nodes, "nodes-liar")));
    let alone = says(Instance { group: None, ..gce.create_instance(&nodes, "nodes-alone") });
    gce.put_instance("nodes-alone", alone);

    let cluster = Cluster::start_on_gce(&gce);
    let refused = [
        // This worker claims to be the control plane's machine.
        ("nodes-forged", provider_id("control-plane-x1y2"), "InstanceOfOtherNode"),
        ("nodes-other", provider_id("nodes-other"), "InstanceOfOtherCluster"),
        ("nodes-stop", provider_id("nodes-stop"), "InstanceNotRunning"),
        ("nodes-none", provider_id("nodes-none"), "InstanceNotFound"),
        ("nodes-alone", provider_id("nodes-alone"), "InstanceGroupUnknown"),
        ("gone-x1y2", provider_id("gone-x1y2"), "InstanceGroupNotFound"),
        ("nodes-far", format!("gce://other-project/{ZONE}/nodes-far"), "InstanceOfOtherCluster"),
        ("nodes-path", format!("gce://{PROJECT}/{ZONE}/../nodes-liar"), "InvalidProviderID"),
        ("nodes-aws", "aws:///us-test-1a/i-0123456789abcdef0".to_owned(), "InvalidProviderID"),
    ];
    for (node, provider_id, _) in &refused {
        cluster.create_node_saying(node, provider_id);
    }
    cluster.create_node_saying("nodes-liar", &provider_id("nodes-liar"));
    let controller = cluster.controller();
    eventually("the one that lies in vain is labelled", || {
        cluster.label("nodes-liar", GROUP_LABEL).as_deref() == Some("nodes")
    });
    assert_eq!(cluster.label("nodes-liar", "node-role.kubernetes.io/control-plane"), None);
    for (node, provider_id, reason) in &refused {
        eventually(&format!("an Event says {reason} of {node}"), || cluster.reasons(node).contains(reason));
        assert_eq!(cluster.label(node, GROUP_LABEL), None, "{provider_id}");
        assert_eq!(cluster.label(node, NODE_ROLE), None, "{provider_id}");
    }
    let metrics = controller.get("/metrics");
    assert!(metrics.contains(r#"kops_agent_node_refusals_total{reason="InstanceOfOtherNode"}"#), "{metrics}");
}
