//! A cluster of three control planes. It works without one of them, and no API server works without two of them. When both are back,
//! the cluster works as before. A rollout changes no control plane while the etcd of one does not serve.

use std::thread;
use std::time::Duration;

use kops_agent_machines::containers::containers;
use kops_agent_tests::example_store::NODES;

use crate::cluster::{self, AGENT, BOOT_CONFIG, Cluster, Member, Plan, has_condition};
use crate::disturbed::CONTROLLER;
use crate::fake_nodes::FakeNode;
use crate::life::{self, AT_BOOT};
use crate::{fake_nodes, ordered, workload};

/// Each control plane has its own instance group, as with kOps.
pub const MACHINES: [Plan; 4] = [
    cluster::MACHINES[0],
    Plan {
        name: "control-plane-2",
        id: "i-0d3a0c0ffee000005",
        group: "control-plane-eu-west-1a-2",
        number: 24,
    },
    Plan {
        name: "control-plane-3",
        id: "i-0d3a0c0ffee000006",
        group: "control-plane-eu-west-1a-3",
        number: 25,
    },
    cluster::MACHINES[1],
];
const LEASE: &str = "kops-controller-leader";
/// How long the test waits before it continues the stopped etcd. The controller decides at least every 5 s which nodes may change. So it
/// decides at least once in this time.
const STOPPED: Duration = Duration::from_secs(10);

/// The control plane with the leading controller is lost without a shutdown. A controller of the remaining control planes becomes the
/// leader, and nodes work as before.
pub fn one_is_lost(cluster: &Cluster) -> &Member {
    let worker = cluster.of_group(NODES);
    let pods = workload::pods_of(cluster, worker.id);
    let lost = leader(cluster).unwrap();
    let left = cluster.control_planes().iter().find(|member| member.id != lost.id).unwrap();
    lose(cluster, lost);
    cluster.ask(left);
    left.machine.until("the API server goes on", || cluster.is_ready());
    left.machine.until("another leads", || leader(cluster).filter(|leader| leader.id != lost.id));
    assert_eq!(workload::pods_of(cluster, worker.id), pods, "pods were restarted for a control plane");
    life::a_label_is_put_back(cluster, worker, "general");

    let authority = left.machine.read("/srv/kubernetes/ca.crt");
    let newcomer = FakeNode::join(cluster, &authority, NODES, 1);
    cluster.until("the newcomer is labelled", "node", &newcomer.id, |node| {
        node["metadata"]["labels"]["kops.k8s.io/instancegroup"] == NODES
    });
    cluster.world.ec2.remove(&newcomer.id);
    cluster.run_kubectl(&["delete", "node", &newcomer.id]);

    life::reboots(cluster, worker);
    assert_eq!(worker.machine.show(AT_BOOT, "Result"), "success");
    life::a_setting_is_taken_up_in_a_slot(cluster);
    workload::pods_reach_each_other(cluster);
    lost
}

/// A second control plane is lost, so etcd has no quorum and no API server works. kubelets and containers keep running, even while
/// the agent verifies and repairs nodes.
pub fn two_are_lost<'a>(cluster: &'a Cluster, first: &Member) -> &'a Member {
    let worker = cluster.of_group(NODES);
    let second = leader(cluster).unwrap();
    let left =
        cluster.control_planes().iter().find(|member| ![first.id, second.id].contains(&member.id)).unwrap();
    let members = [worker, left];
    let kubelets = members.map(kubelet);
    let (pods, complained) = (containers(&worker.machine), complaints(left));
    lose(cluster, second);
    cluster.ask(left);
    left.machine.until("no API server answers", || cluster.is_ready().is_none().then_some(()));
    left.machine
        .until("our controller knows that it has none", || (complaints(left) > complained).then_some(()));
    for member in members {
        // The hourly timer runs the command below if an operator sets `ARGUMENTS=--repair`.
        let run = ["systemd-run", "--quiet", "--wait", "--pipe", "--collect"];
        let environment = ["/etc/environment", "/etc/sysconfig/kops-configuration"]
            .map(|file| format!("--property=EnvironmentFile=-{file}"));
        let environment = environment.each_ref().map(String::as_str);
        let verify = [AGENT, "verify", "--renew", "--repair", "--conf", BOOT_CONFIG];
        let verified = member.machine.try_run(&[&run[..], &environment, &verify].concat());
        let explained = || member.machine.explain(&verified);
        assert!(verified.stdout.contains("this node is as it should be"), "{}", explained());
        // A worker gets its configuration from the controller, which cannot read Nodes now. A control plane reads the state store.
        let is_told = verified.stderr.contains("no kops-controller gives this machine its configuration");
        assert_eq!(is_told, !member.is_control_plane(), "{}", explained());
    }
    assert_eq!(members.map(kubelet), kubelets, "a kubelet was restarted");
    assert_eq!(containers(&worker.machine), pods, "containers of the worker have ended");
    assert_eq!(left.machine.show(CONTROLLER, "ActiveState"), "active");
    second
}

/// Both lost control planes run again. The Nodes are the same objects as before, and the controller restores labels.
pub fn all_are_back(cluster: &Cluster, lost: [&Member; 2], uids: &[String]) {
    let worker = cluster.of_group(NODES);
    let pods = containers(&worker.machine);
    for member in lost {
        cluster.network.plug(member.machine.name());
        member.machine.power_on_again();
    }
    for member in cluster.control_planes() {
        cluster.ask(member);
        member.machine.until("its API server is ready", || cluster.is_ready());
    }
    for member in &cluster.members {
        cluster.until(&format!("{} is Ready", member.id), "node", member.id, |node| {
            has_condition(node, "Ready")
        });
    }
    assert_eq!(cluster.uids(), uids, "Nodes have been removed");
    cluster.control_plane().until("one leads", || leader(cluster));
    life::a_label_is_put_back(cluster, worker, "general");
    assert_eq!(containers(&worker.machine), pods, "containers of the worker have ended");
    workload::runs_on_all_workers(cluster);
    workload::pods_reach_each_other(cluster);
}

/// While the etcd of a control plane is stopped, the other two members have a quorum, and the controller starts a rollout. No control
/// plane gets an order until the stopped etcd continues. Afterwards the rollout reaches all machines.
pub fn no_control_plane_changes_while_an_etcd_is_away(cluster: &Cluster) {
    let leads = leader(cluster).unwrap();
    cluster.ask(leads);
    let stopped = cluster.control_planes().iter().find(|member| member.id != leads.id).unwrap();
    let orders = || -> Vec<_> {
        let control_planes = cluster.control_planes().iter();
        control_planes.map(|member| fake_nodes::order(cluster, member.id).unwrap()).collect()
    };
    let before = orders();
    ordered::change_max_pods(cluster, "49");
    signal_etcd(stopped, "STOP");
    ordered::started(cluster, &[&["start"][..], &ordered::CHECK_PODS_AFTER].concat());
    let waits_for = format!("the API server of {} is not ready: failed checks: etcd", stopped.id);
    cluster.control_plane().until("the rollout waits for the etcd", || {
        (ordered::try_status(cluster)?["status"]["waitsFor"] == waits_for.as_str()).then_some(())
    });
    thread::sleep(STOPPED);
    assert_eq!(orders(), before, "a control plane has an order while an etcd is stopped");
    signal_etcd(stopped, "CONT");
    ordered::until_phase(cluster, "done");
    for member in &cluster.members {
        cluster.until(&format!("{} has the setting", member.id), "node", member.id, |node| {
            node["status"]["capacity"]["pods"] == "49" && has_condition(node, "Ready")
        });
    }
}

/// Sends a signal to the control plane's member of the etcd cluster `main`.
fn signal_etcd(control_plane: &Member, signal: &str) {
    let kill = format!("kill -{signal} $(pgrep --full '[c]lient-urls=https://127.0.0.1:4001')");
    control_plane.machine.run(&["sh", "-c", &kill]);
}

pub fn leader(cluster: &Cluster) -> Option<&Member> {
    let holder =
        ["--namespace=kube-system", "get", "lease", LEASE, "--output=jsonpath={.spec.holderIdentity}"];
    let holder = cluster.kubectl(&holder)?;
    let of = |member: &Member| kops_agent_machines::instance::hostname(member.address, member.id);
    cluster.control_planes().iter().find(|member| holder.starts_with(&format!("{}_", of(member))))
}

/// How often the controller of a control plane has logged that it cannot renew the Lease.
fn complaints(member: &Member) -> usize {
    let said = member.machine.run(&["journalctl", "--no-pager", "--unit", CONTROLLER]);
    said.matches(&format!("the Lease kube-system/{LEASE} cannot be renewed")).count()
}

/// Takes a machine's network link down, so that the other machines see a power cut instead of a shutdown. Then powers off the
/// machine.
fn lose(cluster: &Cluster, member: &Member) {
    cluster.network.unplug(member.machine.name());
    member.machine.power_off();
}

fn kubelet(member: &Member) -> String {
    member.machine.show("kubelet.service", "MainPID")
}
