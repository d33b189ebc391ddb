//! The source of a running node's labels: the configuration that kOps has applied, or, beside upstream's controller, the instance's tags.

use std::thread;
use std::time::Duration;

use kops_agent_tests::ec2::Instance;
use serde_json::{Value, json};

use crate::cluster::{CLUSTER, Cluster, GROUP_LABEL, NODE_ROLE, eventually, id};

const LABEL_TAG: &str = "k8s.io/cluster-autoscaler/node-template/label/";

/// An instance as kOps launches it: the tags contain the labels that the group had at the launch.
fn launched(labels: &[(&str, &str)]) -> Instance {
    let role = Instance::of_group(CLUSTER, "nodes").tagged(&format!("{LABEL_TAG}{NODE_ROLE}"), "");
    let tag = |instance: Instance, (key, value): &(&str, &str)| {
        instance.tagged(&format!("{LABEL_TAG}{key}"), value)
    };
    labels.iter().fold(role.tagged(&format!("{LABEL_TAG}{GROUP_LABEL}"), "nodes"), tag)
}

fn has(cluster: &Cluster, label: &str, value: Option<&str>) -> bool {
    cluster.label(&id(1), label).as_deref() == value
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn a_running_node_gets_applied_labels_and_not_edited_ones() {
    let cluster = Cluster::start();
    cluster.ec2.put(&id(1), launched(&[("tier", "web"), ("dropped", "later")]));
    cluster.create_node(&id(1), Some(&id(1)));
    cluster.apply_group("nodes", "tier: web, dropped: later, mine: alone");
    let _controller = cluster.controller();
    eventually("it is labelled", || has(&cluster, "mine", Some("alone")));

    cluster.edit_group("nodes", "tier: edited");
    // The controller reads the store every second, so it reads the edited group during this wait.
    thread::sleep(Duration::from_secs(3));
    assert!(has(&cluster, "tier", Some("web")), "it is not applied yet");

    cluster.apply_group("nodes", "tier: db, added: '1'");
    eventually("it follows", || has(&cluster, "tier", Some("db")) && has(&cluster, "added", Some("1")));
    assert!(has(&cluster, "mine", None), "kops-agent alone wrote it");
    // Our controller keeps the labels that are in the instance's tags, because upstream's controller restores them whenever it leads.
    assert!(has(&cluster, "dropped", Some("later")));
    assert!(has(&cluster, NODE_ROLE, Some("")));
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn beside_upstream_the_tags_decide_the_labels() {
    let cluster = Cluster::start();
    cluster.ec2.put(&id(1), launched(&[("tier", "web")]));
    cluster.create_node(&id(1), Some(&id(1)));
    cluster.apply_group("nodes", "tier: db, added: '1'");
    let tags = &["--labels-from", "tags", "--dry-run"];
    let shown = cluster.once(tags);
    assert!(shown.contains("+ tier: \"web\"") && !shown.contains("added"), "{shown}");
    assert!(cluster.once(&["--dry-run"]).contains("+ tier: \"db\""));

    // Labels that upstream has written stay unchanged.
    let labels = [&format!("{GROUP_LABEL}=nodes"), &format!("{NODE_ROLE}="), "tier=web", "added=1"];
    let manager = "--field-manager=kops-controller";
    cluster
        .kubectl(&[&["label", "node", &id(1), manager], labels.map(|label: &str| label).as_slice()].concat());
    assert_eq!(cluster.once(tags), "");

    let variable = cluster.with_environment("KOPS_AGENT_LABELS_FROM", "tags");
    assert_eq!(variable.once(&["--dry-run"]), "");
    assert!(variable.once(&["--labels-from", "store", "--dry-run"]).contains("+ tier: \"db\""));
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn a_label_that_another_manager_also_owns_stays() {
    let cluster = Cluster::start();
    cluster.ec2.put(&id(1), Instance::of_group(CLUSTER, "nodes"));
    cluster.create_node(&id(1), Some(&id(1)));
    cluster.apply_group("nodes", "ours: '1', shared: '1'");
    let _controller = cluster.controller();
    eventually("it is labelled", || has(&cluster, "shared", Some("1")) && has(&cluster, "ours", Some("1")));
    let node =
        format!("{{apiVersion: v1, kind: Node, metadata: {{name: {}, labels: {{shared: '1'}}}}}}", id(1));
    let apply = ["apply", "--server-side", "--field-manager=another", "-f", "-"];
    cluster.api.kubectl(&apply, &node).unwrap();
    cluster.apply_group("nodes", "tier: web");
    eventually("what is ours alone goes", || has(&cluster, "ours", None));
    assert!(has(&cluster, "shared", Some("1")));
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn an_invalid_label_does_not_block_the_other_labels() {
    let cluster = Cluster::start();
    cluster.ec2.put(&id(1), launched(&[("tier", "web"), ("team", "data platform")]));
    cluster.create_node(&id(1), Some(&id(1)));
    let controller = cluster.controller();
    eventually("an Event says so", || cluster.reasons(&id(1)).contains("LabelsLeftOut"));
    assert!(has(&cluster, NODE_ROLE, Some("")) && has(&cluster, "tier", Some("web")));
    assert!(has(&cluster, GROUP_LABEL, Some("nodes")) && has(&cluster, "team", None));
    eventually("it is counted", || controller.metric("kops_agent_node_labels_left_out_total") >= Some(1));
    drop(controller);
    // The corrected tag becomes a label in the next run.
    cluster.ec2.put(&id(1), launched(&[("tier", "web"), ("team", "data-platform")]));
    assert!(cluster.once(&[]).is_empty());
    assert!(has(&cluster, "team", Some("data-platform")));
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn an_impostor_that_upstream_labelled_loses_its_roles() {
    const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
    let cluster = Cluster::start();
    cluster.ec2.put(&id(1), Instance::of_group(CLUSTER, "control-plane"));
    cluster.create_node(&id(1), Some(&id(1)));
    // This worker claims to be the control plane's machine. Upstream believed the claim and set these labels.
    cluster.create_node(&id(2), Some(&id(1)));
    let given = [&format!("{CONTROL_PLANE}="), "kops.k8s.io/kops-controller-pki=", "team=a"];
    let manager = "--field-manager=kops-controller";
    cluster
        .kubectl(&[&["label", "node", &id(2), manager], given.map(|label: &str| label).as_slice()].concat());
    let shown = cluster.once(&["--dry-run"]);
    assert!(shown.contains(&format!("- {CONTROL_PLANE}: \"\"")), "{shown}");
    let _controller = cluster.controller();
    eventually("an Event says so", || cluster.reasons(&id(2)).contains("RoleLabelsRemoved"));
    assert_eq!(cluster.label(&id(2), CONTROL_PLANE), None);
    assert_eq!(cluster.label(&id(2), "kops.k8s.io/kops-controller-pki"), None);
    assert_eq!(cluster.label(&id(2), "team").as_deref(), Some("a"));
    assert_eq!(cluster.label(&id(1), CONTROL_PLANE).as_deref(), Some(""));
}

/// Karpenter launches instances with the tags of kOps' EC2NodeClass. All instances of the group have these tags. Karpenter itself adds
/// further labels to Nodes, and removes its taint from a Node that it recognizes.
#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn a_node_of_karpenter_gets_upstreams_labels_and_keeps_karpenters() {
    let cluster = Cluster::start();
    let instance = launched(&[("tier", "web")]).tagged("karpenter.sh/nodepool", "nodes");
    cluster.ec2.put(&id(1), Instance { lifecycle: "spot".into(), ..instance });
    let karpenters = [("karpenter.sh/nodepool", "nodes"), ("karpenter.sh/capacity-type", "spot")];
    let mut node = Cluster::node_saying(&id(1), &format!("aws:///us-test-1a/{}", id(1)));
    for (label, value) in karpenters {
        node["metadata"]["labels"][label] = value.into();
    }
    let taint = json!({"key": "karpenter.sh/unregistered", "effect": "NoExecute"});
    node["spec"]["taints"] = json!([taint]);
    cluster.api.kubectl(&["create", "-f", "-"], &node.to_string()).unwrap();
    let decided = [
        (GROUP_LABEL, "nodes"),
        ("kubernetes.io/hostname", &id(1)),
        (NODE_ROLE, ""),
        ("node-role.kubernetes.io/spot-worker", "true"),
        ("tier", "web"),
    ];
    let shown = cluster.once(&["--labels-from", "tags", "--dry-run"]);
    assert_eq!(shown.lines().filter(|line| line.starts_with("  + ")).count(), decided.len() - 1, "{shown}");
    assert!(!shown.contains("  - ") && !shown.contains("karpenter"), "{shown}");

    let _controller = cluster.controller();
    eventually("it is labelled", || has(&cluster, NODE_ROLE, Some("")));
    let node = cluster.node(&id(1));
    let expected: Value =
        decided.iter().chain(&karpenters).map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    assert_eq!(node["metadata"]["labels"], expected);
    assert!(node["spec"]["taints"].as_array().unwrap().contains(&taint), "{node}");
}
