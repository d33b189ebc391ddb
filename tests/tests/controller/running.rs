//! Tests of a controller beside other writers (kubelets, another holder of the Lease), and of a controller in a pod.

use kops_agent_tests::ec2::Instance;

use crate::cluster::{CLUSTER, Cluster, GROUP_LABEL, eventually, id};
use crate::{LEADS, LEADS_NOT};

fn cluster_of_one_node() -> Cluster {
    let cluster = Cluster::start();
    cluster.ec2.put(&id(1), Instance::of_group(CLUSTER, "nodes"));
    cluster
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn labels_that_a_kubelet_changes_are_restored() {
    let cluster = cluster_of_one_node();
    let kubelet = |arguments: &[&str], input: &str| cluster.api.kubectl_as_kubelet(&id(1), arguments, input);
    let node = Cluster::node_saying(&id(1), &format!("aws:///us-test-1a/{}", id(1))).to_string();
    kubelet(&["create", "-f", "-"], &node).unwrap();
    let _controller = cluster.controller();
    eventually("the node is labelled", || cluster.label(&id(1), "tier").as_deref() == Some("web"));

    for drift in ["tier=db", "tier-"] {
        kubelet(&["label", "node", &id(1), "--overwrite", drift], "").unwrap();
        eventually("the label is put back", || cluster.label(&id(1), "tier").as_deref() == Some("web"));
    }
    let group = format!("{GROUP_LABEL}=control-plane");
    let refused = kubelet(&["label", "node", &id(1), "--overwrite", &group], "").unwrap_err().to_string();
    assert!(refused.contains("is not allowed to modify labels"), "{refused}");
    kubelet(&["label", "node", &id(1), "team=a"], "").unwrap();
    kubelet(&["label", "node", &id(1), "--overwrite", "tier=db"], "").unwrap();
    eventually("the label is put back", || cluster.label(&id(1), "tier").as_deref() == Some("web"));
    assert_eq!(cluster.label(&id(1), "team").as_deref(), Some("a"), "it is the kubelet's");
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn a_replica_without_the_lease_writes_nothing() {
    let cluster = cluster_of_one_node();
    let controller = cluster.controller();
    let leads = |status: &str| controller.get("/metrics").contains(status);
    eventually("it leads", || leads(LEADS));
    let stolen = r#"{"spec": {"holderIdentity": "another"}}"#;
    cluster.kubectl(&[
        "patch",
        "lease",
        "-n",
        "kube-system",
        "kops-controller-leader",
        "--type=merge",
        "-p",
        stolen,
    ]);
    eventually("it leads no more", || leads(LEADS_NOT));
    cluster.create_node(&id(1), Some(&id(1)));
    // The fake holder never renews the Lease, so the Lease expires.
    eventually("the node is labelled", || {
        let is_labelled = cluster.label(&id(1), GROUP_LABEL).is_some();
        assert!(
            !is_labelled || leads(LEADS),
            "it writes without the Lease, which {} holds",
            cluster.holder()
        );
        is_labelled
    });
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn the_controller_runs_as_a_pod() {
    let cluster = cluster_of_one_node();
    cluster.create_node(&id(1), Some(&id(1)));
    let said = cluster.once_as_pod();
    assert!(said.contains("1 Nodes were changed"), "{said}");
    assert_eq!(cluster.label(&id(1), GROUP_LABEL).as_deref(), Some("nodes"));
    let manifest = include_str!("../../../packaging/kubernetes/controller.yaml");
    cluster.api.kubectl(&["apply", "--dry-run=server", "--validate=strict", "-f", "-"], manifest).unwrap();
}
