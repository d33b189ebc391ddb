//! Checks that blank machines become a cluster: one function for each part, in the order in which the parts come up.

use std::time::{Duration, Instant};

use kops_agent_machines::containers::static_pod_runs;
use kops_agent_machines::{instance, step};
use kops_agent_tests::example_store::{CONTROL_PLANE, NODES};
use serde_json::Value;

use crate::cluster::{AGENT, BATCH, BOOT_CONFIG, Cluster, Member};
use crate::{liars, store};

/// Waits until the Nodes of all machines are Ready. Returns the time from `since` until each Node was first seen Ready, in the
/// order of the machines.
pub fn nodes_become_ready(cluster: &Cluster, since: Instant) -> Vec<(&'static str, Duration)> {
    let mut ready: Vec<(&str, Duration)> = Vec::new();
    cluster.control_plane().until("kubectl is there", || {
        (cluster.control_plane().try_run(&["test", "-e", "/root/.kube/config"]).code == Some(0)).then_some(())
    });
    for member in &cluster.members {
        // If the Node does not become Ready in time, the error contains this machine's journal.
        let seen = member
            .machine
            .until(&format!("{} is Ready", member.id), || cluster.ready_since(member.id, since));
        step(&format!("{} is Ready {:.1} s after power-on", member.machine.name(), seen.as_secs_f32()));
        ready.push((member.id, seen));
    }
    ready
}

/// On each control plane, the static pods run from the manifests that the agent has written.
pub fn the_control_plane_is_up(cluster: &Cluster) {
    for member in cluster.control_planes() {
        for component in [
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "etcd-manager-main",
            "etcd-manager-events",
            "kube-proxy",
        ] {
            static_pod_runs(&member.machine, &format!("{component}-{}", member.id));
        }
    }
}

/// kops-agent's controller applies the add-ons of the channel. One manifest defines a new kind and contains an object of this
/// kind.
pub fn add_ons_are_applied(cluster: &Cluster) {
    cluster.until("the widget is there", "widget", "first", |widget| widget["spec"]["size"] == 1);
    for (addon, ..) in store::ADDONS {
        let annotation = format!("addons.k8s.io/{addon}");
        cluster.until(&format!("{addon} is recorded"), "namespace", "kube-system", |namespace| {
            namespace["metadata"]["annotations"][&annotation]
                .as_str()
                .is_some_and(|version| version.contains("manifestHash"))
        });
    }
}

pub fn nodes_are_labelled(cluster: &Cluster) {
    for (group, pool) in [(CONTROL_PLANE, None), (NODES, Some("general")), (BATCH, Some("batch"))] {
        let member = cluster.of_group(group);
        cluster.until(&format!("{} has the labels of {group}", member.id), "node", member.id, |node| {
            has_labels_of_its_group(node, member)
                && node["metadata"]["labels"]["example.com/pool"].as_str() == pool
        });
    }
    let node = cluster.get("node", cluster.of_group(BATCH).id).unwrap();
    assert!(taints_of(&node).contains(&"dedicated=batch:NoSchedule".to_owned()), "{:#}", node["spec"]);
}

/// Each Node has two reports from its machine: whether the machine must reboot, and the machine's type.
pub fn machines_are_reported(cluster: &Cluster) {
    let report = |node: &Value, annotation: &str| -> Value {
        let text = node["metadata"]["annotations"][annotation].as_str();
        text.map_or(Value::Null, |text| serde_json::from_str(text).unwrap())
    };
    for member in &cluster.members {
        cluster.until(&format!("{} reports its boot", member.id), "node", member.id, |node| {
            let boot_id = &node["status"]["nodeInfo"]["bootID"];
            boot_id.is_string() && report(node, "kops-agent/reboot-required")["bootID"] == *boot_id
        });
        let machine_type = &instance::metadata(member.address, member.id)["instance-type"];
        member.machine.until("it reports its type", || {
            let node = cluster.get("node", member.id)?;
            let reported = report(&node, "kops-agent/machine");
            if reported.is_null() {
                // If the metadata service does not answer within 1 s, a report has no machine type. So the test sends another
                // report.
                member.machine.try_run(&[AGENT, "fleet", "tell"]);
            }
            (reported["machineType"] == machine_type.as_str()).then_some(())
        });
    }
}

/// Each Node has the labels that kOps gives to all instance groups.
pub fn nodes_have_the_labels_of_all_groups(cluster: &Cluster) {
    for member in &cluster.members {
        cluster.until(&format!("{} is labelled", member.id), "node", member.id, |node| {
            has_labels_of_its_group(node, member)
        });
    }
}

/// Whether a Node has the two labels that kOps sets on the Nodes of every instance group: the group's name and the role.
pub fn has_labels_of_its_group(node: &Value, member: &Member) -> bool {
    let labels = &node["metadata"]["labels"];
    let role = if member.is_control_plane() { "control-plane" } else { "node" };
    labels["kops.k8s.io/instancegroup"] == member.group
        && labels[format!("node-role.kubernetes.io/{role}")] == ""
}

/// The taints of a Node, in the format of kubectl: `KEY=VALUE:EFFECT`.
pub fn taints_of(node: &Value) -> Vec<String> {
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let text = |taint: &Value, field: &str| taint[field].as_str().unwrap_or_default().to_owned();
    taints
        .iter()
        .map(|taint| format!("{}={}:{}", text(taint, "key"), text(taint, "value"), text(taint, "effect")))
        .collect()
}

/// Workers have no access to the state store. They received their configuration and certificates only because they proved their
/// identity.
pub fn workers_joined_by_their_identity(cluster: &Cluster) {
    for worker in cluster.workers() {
        for path in ["/etc/sysconfig/kops-configuration", BOOT_CONFIG] {
            let text = worker.machine.read(path);
            assert!(!text.contains("S3_") && !text.contains("ConfigBase"), "{path} of {}: {text}", worker.id);
        }
    }
    let boot_config = cluster.workers()[0].machine.read(BOOT_CONFIG);
    assert!(boot_config.contains("ConfigServer"), "{boot_config}");
    assert!(cluster.world.sts.calls() >= cluster.workers().len(), "no identity was looked at");
    liars::get_nothing(cluster);
}
