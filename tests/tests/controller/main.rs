//! Control-plane mode against a real API server and a stand-in for EC2.
//!
//! The tests need an etcd and a kube-apiserver, whose first build takes minutes. So only `tests/controller/run` and
//! `tests/run` run them.

#![allow(clippy::unwrap_used, unreachable_pub)]

mod addons;
mod addons_by_hand;
mod addons_replaced;
mod addons_run;
mod addons_upgraded;
mod boot_to_label;
mod bootstrap;
mod client;
mod clouds;
mod cluster;
mod controller;
mod faults;
mod fleet;
mod fleet_watch;
mod flood;
mod gce;
mod hetzner;
mod labels;
mod machines;
mod moto;
mod pacing;
mod pod;
mod pod_ranges;
mod proxy;
mod reboot;
mod renewal;
mod rollout;
mod rollout_authorities;
mod rollout_etcd;
mod rollout_scale;
mod running;
mod scale;
mod takeover;
mod upgrade;
mod upstream;

use std::time::Duration;

use cluster::{CLUSTER, Cluster, GROUP_LABEL, NODE_ROLE, eventually, id};
use kops_agent_tests::ec2::{CLUSTER_TAG, INSTANCE_GROUP_TAG, Instance, Mood};

const LEADS: &str = r#"leader_election_master_status{name="kops-controller-leader"} 1"#;
const LEADS_NOT: &str = r#"leader_election_master_status{name="kops-controller-leader"} 0"#;

fn nodes() -> Instance {
    Instance::of_group(CLUSTER, "nodes")
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn nodes_get_the_labels_of_their_group_and_of_no_other() {
    let cluster = Cluster::start();
    let spot = Instance { lifecycle: "spot".into(), ..nodes() };
    cluster.ec2.put(&id(1), nodes());
    cluster.ec2.put(&id(2), spot);
    cluster.ec2.put(&id(3), Instance::of_group(CLUSTER, "control-plane"));
    for number in 1..=3 {
        cluster.create_node(&id(number), Some(&id(number)));
    }
    cluster.kubectl(&["label", "node", &id(1), "team=a", "node-role.kubernetes.io/control-plane="]);

    let shown = cluster.once(&["--dry-run"]);
    assert!(shown.contains(&format!("node {}\n  + kops.k8s.io/instancegroup: \"nodes\"", id(1))), "{shown}");
    assert!(shown.contains("  - node-role.kubernetes.io/control-plane: \"\"\n"), "{shown}");
    assert_eq!(cluster.label(&id(2), GROUP_LABEL), None, "a dry run changes nothing");

    let controller = cluster.controller();
    eventually("the nodes are labelled", || {
        (1..=3).all(|number| cluster.label(&id(number), GROUP_LABEL).is_some())
    });
    assert_eq!(cluster.label(&id(1), NODE_ROLE).as_deref(), Some(""));
    assert_eq!(cluster.label(&id(1), "team").as_deref(), Some("a"));
    assert_eq!(cluster.label(&id(1), "node-role.kubernetes.io/control-plane"), None);
    assert_eq!(cluster.label(&id(2), "node-role.kubernetes.io/spot-worker").as_deref(), Some("true"));
    for label in ["node-role.kubernetes.io/control-plane", "kops.k8s.io/kops-controller-pki"] {
        assert_eq!(cluster.label(&id(3), label).as_deref(), Some(""), "{label}");
    }

    // A new Node is labelled immediately after it gets its provider ID, even if another Node joined less than a
    // minute ago.
    cluster.ec2.put(&id(4), nodes());
    cluster.create_node(&id(4), None);
    cluster.patch_node(&id(4), &format!(r#"{{"spec": {{"providerID": "aws:///us-test-1a/{}"}}}}"#, id(4)));
    eventually("a new node is labelled", || cluster.label(&id(4), GROUP_LABEL).is_some());

    // The controller restores a changed label, and removes a label that the group does not have any more.
    cluster.label_node(&id(1), GROUP_LABEL, "control-plane");
    eventually("a label is put back", || cluster.label(&id(1), GROUP_LABEL).as_deref() == Some("nodes"));
    cluster.apply_group("nodes", "new: label");
    eventually("a changed group reaches its nodes", || {
        [1, 2, 4].iter().all(|number| {
            cluster.label(&id(*number), "new").as_deref() == Some("label")
                && cluster.label(&id(*number), "tier").is_none()
        })
    });
    assert_eq!(cluster.label(&id(1), "team").as_deref(), Some("a"));

    let calls = cluster.ec2.calls().len();
    assert!(calls <= 4, "{calls} calls of EC2 for four nodes, one of them in a dry run too");
    let metrics = controller.get("/metrics");
    assert!(metrics.contains(LEADS), "{metrics}");
    assert_eq!(controller.get("/readyz"), "ok");
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn claims_of_nodes_are_not_trusted() {
    let cluster = Cluster::start();
    let of_other_cluster = nodes().tagged(CLUSTER_TAG, "other.example.com");
    let stopped = Instance { state: "stopped".into(), ..nodes() };
    let mut without_group = nodes();
    without_group.tags.remove(INSTANCE_GROUP_TAG);
    for (number, instance) in [
        (1, Instance::of_group(CLUSTER, "control-plane")),
        (3, of_other_cluster),
        (4, stopped),
        (6, without_group),
        (7, Instance::of_group(CLUSTER, "gone")),
        (8, nodes()),
    ] {
        cluster.ec2.put(&id(number), instance);
    }
    let refused = [
        // This worker claims to be the control plane's machine.
        (id(2), format!("aws:///us-test-1a/{}", id(1)), "InstanceOfOtherNode"),
        (id(3), format!("aws:///us-test-1a/{}", id(3)), "InstanceOfOtherCluster"),
        (id(4), format!("aws:///us-test-1a/{}", id(4)), "InstanceNotRunning"),
        (id(5), format!("aws:///us-test-1a/{}", id(5)), "InstanceNotFound"),
        (id(6), format!("aws:///us-test-1a/{}", id(6)), "InstanceGroupUnknown"),
        (id(7), format!("aws:///us-test-1a/{}", id(7)), "InstanceGroupNotFound"),
        (id(9), "aws:///us-test-1a/../../i-1".to_owned(), "InvalidProviderID"),
        (id(10), "gce://project/zone/name".to_owned(), "InvalidProviderID"),
    ];
    for (node, provider_id, _) in &refused {
        cluster.create_node_saying(node, provider_id);
    }
    cluster.create_node(&id(8), Some(&id(8)));
    let controller = cluster.controller();
    eventually("the honest node is labelled", || cluster.label(&id(8), GROUP_LABEL).is_some());
    for (node, provider_id, reason) in &refused {
        eventually(&format!("an Event says {reason}"), || cluster.reasons(node).contains(reason));
        assert_eq!(cluster.label(node, GROUP_LABEL), None, "{provider_id}");
        assert_eq!(cluster.label(node, NODE_ROLE), None, "{provider_id}");
    }
    let metrics = controller.get("/metrics");
    assert!(metrics.contains(r#"kops_agent_node_refusals_total{reason="InstanceOfOtherNode"}"#), "{metrics}");
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn the_controller_recovers_from_faults() {
    let mut cluster = Cluster::start();
    cluster.ec2.set_mood(Mood::Down);
    cluster.ec2.put(&id(1), nodes());
    cluster.create_node(&id(1), Some(&id(1)));
    let controller = cluster.controller();
    eventually("EC2 is asked", || !cluster.ec2.calls().is_empty());
    assert_eq!(cluster.label(&id(1), GROUP_LABEL), None);
    cluster.ec2.set_mood(Mood::Throttling);
    eventually("EC2 throttles", || controller.get("/metrics").contains(r#"outcome="Throttled""#));
    cluster.ec2.set_mood(Mood::Good);
    eventually("EC2 is asked again", || cluster.label(&id(1), GROUP_LABEL).is_some());

    // If the store is unreadable, the controller uses the last known labels. If the API server is down, the
    // controller waits.
    cluster.break_store();
    eventually("the store is missed", || {
        controller.get("/metrics").contains("kops_agent_state_store_readable 0")
    });
    cluster.api.kill_api_server();
    cluster.api.start_api_server().unwrap();
    cluster.ec2.put(&id(2), nodes());
    cluster.create_node(&id(2), Some(&id(2)));
    eventually("a node is labelled after the API server is back", || {
        cluster.label(&id(2), GROUP_LABEL).is_some()
    });
    assert_eq!(cluster.label(&id(2), "tier").as_deref(), Some("web"), "as the group was last known");
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn a_leader_stops_leading_while_etcd_hangs() {
    let cluster = Cluster::start();
    let controller = cluster.controller();
    let leads = |status: &str| controller.get("/metrics").contains(status);
    eventually("it leads", || leads(LEADS));
    cluster.api.pause_etcd(true).unwrap();
    eventually("it leads no more", || leads(LEADS_NOT));
    assert_eq!(controller.get("/healthz"), "ok", "a restart would not help");
    cluster.api.pause_etcd(false).unwrap();
    eventually("it leads again", || leads(LEADS));
    cluster.ec2.put(&id(1), nodes());
    cluster.ensure_node(&id(1));
    eventually("and labels", || cluster.label(&id(1), GROUP_LABEL).is_some());
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn one_of_two_controllers_writes_and_the_other_takes_over() {
    let cluster = Cluster::start();
    let first = cluster.controller();
    eventually("the first leads", || first.get("/metrics").contains(LEADS));
    let second = cluster.controller();
    let holder = cluster.holder();
    assert!(second.get("/metrics").contains(LEADS_NOT));
    first.terminate();
    eventually("the second leads", || second.get("/metrics").contains(LEADS));
    assert_ne!(cluster.holder(), holder);

    // A killed controller does not release its Lease, so the next controller waits until the Lease expires.
    let third = cluster.controller();
    drop(second);
    cluster.ec2.put(&id(1), nodes());
    cluster.create_node(&id(1), Some(&id(1)));
    eventually("the third leads", || third.get("/metrics").contains(LEADS));
    eventually("and labels", || cluster.label(&id(1), GROUP_LABEL).is_some());
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn without_changes_nothing_is_written_and_no_cloud_is_asked() {
    let cluster = Cluster::start();
    for number in 1..=20 {
        cluster.ec2.put(&id(number), nodes());
        cluster.create_node(&id(number), Some(&id(number)));
    }
    let controller = cluster.controller();
    eventually("the nodes are labelled", || {
        (1..=20).all(|number| cluster.label(&id(number), GROUP_LABEL).is_some())
    });
    // The controller collects the instances and sends one request for all of them, unless the test host is too busy.
    assert_eq!(cluster.ec2.calls().iter().sum::<usize>(), 20);
    let asked = cluster.ec2.calls().len();
    let patches = || {
        let metrics = controller.get("/metrics");
        let line = metrics.lines().find(|line| line.starts_with("kops_agent_node_patches_total ")).unwrap();
        line.rsplit(' ').next().unwrap().parse::<u32>().unwrap()
    };
    // The controller counts a write only after the API server's response.
    eventually("the writes are counted", || patches() == 20);
    // Kubelets report their status, but no labels change.
    for number in 1..=20 {
        cluster.report(&id(number));
    }
    eventually("the reports have come by", || {
        cluster.ec2.put(&id(21), nodes());
        cluster.ensure_node(&id(21));
        cluster.label(&id(21), GROUP_LABEL).is_some()
    });
    eventually("the write is counted", || patches() == 21);
    assert_eq!(cluster.ec2.calls()[asked..], [1]);
    assert!(controller.get("/healthz") == "ok" && Duration::ZERO < controller.uptime());
}
