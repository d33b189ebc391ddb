//! Scenarios for a running cluster. Each scenario leaves the cluster healthy.

use std::fs;
use std::ops::RangeInclusive;
use std::thread;

use kops_agent_tests::example_store::{CONTROL_PLANE, NODES};
use parking_lot::Mutex;
use serde_json::Value;

use crate::cluster::{AGENT, BATCH, BOOT_CONFIG, Cluster, Member, has_condition};
use crate::disturbed::CONTROLLER;
use crate::fake_nodes::{self, FakeNode};
use crate::scene::{has_labels_of_its_group, taints_of};
use crate::{cloud_controller, workload};

pub const AT_BOOT: &str = "kops-configuration.service";
/// The numbers of the Nodes that join at the same time. These Nodes have no machines. A number is the last byte of a Node's address.
const JOINING: RangeInclusive<u8> = 101..=120;
const WIDGET: &str = "addons/widgets.example.com/v1.yaml";

/// A changed add-on is applied. An add-on that is removed from the channel stays in the cluster, and `addons status` reports that
/// it is in no channel.
pub fn add_ons_change(cluster: &Cluster) {
    let file = cluster.store.path(WIDGET);
    let manifest = fs::read_to_string(&file).unwrap();
    assert!(manifest.contains("size: 1"), "{manifest}");
    fs::write(&file, manifest.replace("size: 1", "size: 2")).unwrap();
    cluster.store.put_addons(&[("widgets.example.com", "v1", "widgets.example.com/v1.yaml")]);
    cluster.until("the widget has its new size", "widget", "first", |widget| widget["spec"]["size"] == 2);

    cluster.store.remove_addon("limit-range.addons.k8s.io");
    let status = cluster.control_plane().try_run(&[AGENT, "addons", "status"]);
    assert!(status.stdout.contains("limit-range.addons.k8s.io"), "{status:?}");
    assert!(status.stdout.contains("in no channel"), "{status:?}");
    assert!(cluster.get("limitrange", "limits").is_some(), "what no rule names was pruned");
}

/// If labels of a group change, the controller changes the labels of its Nodes, and no machine reboots. If a label is changed by
/// hand, the controller restores it.
pub fn labels_change(cluster: &Cluster) {
    let node = cluster.of_group(NODES);
    let boot = boot_id(node);
    cluster.store.merge("instancegroup/nodes", "{spec: {nodeLabels: {example.com/pool: web}}}");
    // The controller reads the labels from the configuration that `kops update cluster` writes, not from the edited instance
    // group.
    cluster.store.update(NODES);
    has_label(cluster, node, "web");
    a_label_is_put_back(cluster, node, "web");
    assert_eq!(boot_id(node), boot);
}

/// If a label of a Node is changed by hand, the controller restores the value of the group.
pub fn a_label_is_put_back(cluster: &Cluster, member: &Member, value: &str) {
    cluster.run_kubectl(&["label", "node", member.id, "example.com/pool=stolen", "--overwrite"]);
    has_label(cluster, member, value);
}

fn has_label(cluster: &Cluster, member: &Member, value: &str) {
    cluster.until(&format!("{} has the label {value}", member.id), "node", member.id, |node| {
        node["metadata"]["labels"]["example.com/pool"] == value
    });
}

/// kubelet may set the taints of its Node only when it registers the Node. If taints of a group change and a worker converges, its
/// Node keeps the old taints. If the Node is deleted and registered again, it has the new taints.
pub fn taints_change(cluster: &Cluster) {
    const NEW: &str = "example.com/spot=yes:PreferNoSchedule";
    let worker = cluster.of_group(BATCH);
    let taints = format!("{{spec: {{taints: ['dedicated=batch:NoSchedule', '{NEW}']}}}}");
    cluster.store.merge("instancegroup/batch", &taints);
    converge_with(worker, &cluster.store.update(BATCH));
    let has_it = |node: &Value| taints_of(node).iter().any(|taint| taint == NEW);
    assert!(!has_it(&cluster.get("node", worker.id).unwrap()));

    cluster.run_kubectl(&["delete", "node", worker.id]);
    worker.machine.run(&["systemctl", "restart", "kubelet.service"]);
    cluster.until("the Node has the taints and labels of its group", "node", worker.id, |node| {
        has_it(node) && has_labels_of_its_group(node, worker)
    });
    cloud_controller::initializes_nodes(cluster);
    cluster.until("the Node is Ready", "node", worker.id, |node| has_condition(node, "Ready"));
    workload::runs_on_all_workers(cluster);
    workload::pods_reach_each_other(cluster);
}

/// A worker that converges applies a changed kubelet setting. Its pods keep running.
pub fn kubelet_settings_change(cluster: &Cluster) {
    cluster.store.merge("cluster-completed.spec", "{spec: {kubelet: {maxPods: 42}}}");
    let node = cluster.of_group(NODES);
    let pods = workload::pods_of(cluster, node.id);
    let agent = |arguments: &[&str]| node.machine.run(&[&[AGENT], arguments].concat());
    cluster.store.update(NODES);
    let planned = agent(&["plan", "--follow", "--summary"]);
    assert!(planned.contains("kubelet.service"), "{planned}");
    follow(node);
    assert!(
        agent(&["status"]).contains("follows      its group"),
        "the user-data pins the first configuration"
    );
    cluster.until("kubelet has it", "node", node.id, |node| node["status"]["capacity"]["pods"] == "42");
    assert_eq!(
        workload::pods_of(cluster, node.id),
        pods,
        "pods do not outlive a change of kubelet's settings"
    );
}

/// The first worker of `nodes` applies a new kubelet setting in a disruption slot from kops-agent's controller.
pub fn a_setting_is_taken_up_in_a_slot(cluster: &Cluster) {
    let worker = cluster.of_group(NODES);
    cluster.store.merge("cluster-completed.spec", "{spec: {kubelet: {maxPods: 41}}}");
    let slots = || times_said(worker, "this node has the slot kops-agent-disruption.nodes.0");
    let before = slots();
    converge_with(worker, &cluster.store.update(NODES));
    assert_eq!(slots(), before + 1, "{} was changed without a slot", worker.id);
    cluster.until("kubelet has the setting", "node", worker.id, |node| {
        node["status"]["capacity"]["pods"] == "41" && has_condition(node, "Ready")
    });
}

/// How often `text` is in the journal of the machine's boot unit.
pub fn times_said(member: &Member, text: &str) -> usize {
    member.machine.run(&["journalctl", "--no-pager", "--unit", AT_BOOT]).matches(text).count()
}

/// A control plane that converges applies a changed flag of the API server.
pub fn api_server_settings_change(cluster: &Cluster) {
    cluster.store.merge("cluster-completed.spec", "{spec: {kubeAPIServer: {logLevel: 3}}}");
    let control_plane = cluster.of_group(CONTROL_PLANE);
    cluster.store.update(CONTROL_PLANE);
    follow(control_plane);
    control_plane.machine.until("the API server runs with it", || {
        let runs = control_plane.machine.try_run(&["pgrep", "--full", "kube-apiserver .*--v=3"]);
        (runs.code == Some(0)).then(|| cluster.is_ready())?
    });
    workload::pods_reach_each_other(cluster);
}

/// The control plane reboots while the state store responds with 503. The API server starts, and no pod of a worker ends.
pub fn control_plane_reboots_without_the_store(cluster: &Cluster) {
    let pods: Vec<Vec<String>> =
        cluster.workers().iter().map(|worker| workload::pods_of(cluster, worker.id)).collect();
    cluster.world.fail("store", "503");
    // While the store fails, the run at boot retries, so the boot does not finish.
    cluster.control_plane().reboot_at_work();
    cluster.control_plane().until("the API server is back", || cluster.is_ready());
    cluster.world.mend("store");
    for (worker, pods) in cluster.workers().iter().zip(pods) {
        cluster.until(&format!("{} is Ready", worker.id), "node", worker.id, |node| {
            has_condition(node, "Ready")
        });
        assert_eq!(workload::pods_of(cluster, worker.id), pods, "pods of {} were restarted", worker.id);
    }
    workload::pods_reach_each_other(cluster);
}

/// A worker reboots. Afterwards its Node is Ready, its workload runs, and its certificates are unchanged.
pub fn a_worker_reboots(cluster: &Cluster) {
    let worker = cluster.of_group(BATCH);
    let certificate = worker.machine.run(&["sha256sum", "/srv/kubernetes/kubelet-server.crt"]);
    reboots(cluster, worker);
    assert_eq!(worker.machine.run(&["sha256sum", "/srv/kubernetes/kubelet-server.crt"]), certificate);
    workload::pods_reach_each_other(cluster);
}

/// Reboots a worker, and waits until its Node is Ready and its workload runs again.
pub fn reboots(cluster: &Cluster, worker: &Member) {
    let (boot, pods) = (boot_id(worker), workload::pods_of(cluster, worker.id));
    worker.machine.reboot();
    workload::is_started_again(cluster, worker, &pods);
    cluster.until("it is Ready", "node", worker.id, |node| has_condition(node, "Ready"));
    assert_ne!(boot_id(worker), boot);
    workload::runs_on_all_workers(cluster);
}

/// A group with one machine is added while the state store fails. The machine waits, and joins when the store works again. Later
/// the machine is reset and its Node is deleted. After a reboot, the machine does not join again.
pub fn a_machine_comes_and_goes(cluster: &Cluster) {
    cluster.add_group_of_spare();
    cluster.world.fail("store", "503");
    let spare = cluster.power_spare_on();
    spare.machine.until("it waits for its configuration", || {
        let said = spare.machine.try_run(&["journalctl", "--no-pager", "--unit", AT_BOOT]).stdout;
        said.contains("it answers with 500").then_some(())
    });
    assert!(cluster.get("node", spare.id).is_none());
    cluster.world.mend("store");
    spare.machine.until("it is Ready, with the labels of its group", || {
        let node = cluster.get("node", spare.id)?;
        let pool = &node["metadata"]["labels"]["example.com/pool"];
        (has_condition(&node, "Ready") && pool == "late").then_some(())
    });

    cluster.world.ec2.remove(spare.id);
    let reset = spare.machine.try_run(&[AGENT, "reset", "--yes"]);
    assert_eq!(reset.code, Some(0), "{}", spare.machine.explain(&reset));
    cluster.run_kubectl(&["delete", "node", spare.id]);
    assert_eq!(spare.machine.show("kubelet.service", "ActiveState"), "inactive");
    spare.machine.reboot();
    assert_eq!(spare.machine.show("kubelet.service", "ActiveState"), "inactive");
    assert!(cluster.get("node", spare.id).is_none(), "it has come back");
    workload::pods_reach_each_other(cluster);
}

/// The controller is killed while twenty Nodes without machines join. Finally each Node has its certificate and its labels.
pub fn the_controller_is_killed_while_nodes_join(cluster: &Cluster) {
    let control_plane = cluster.control_plane();
    let authority = control_plane.read("/srv/kubernetes/ca.crt");
    let before = control_plane.show(CONTROLLER, "NRestarts");
    let joined = Mutex::new(Vec::new());
    let half = JOINING.count() / 2;
    thread::scope(|scope| {
        let join = |number| {
            let (authority, joined) = (&authority, &joined);
            scope.spawn(move || {
                let node = FakeNode::join(cluster, authority, NODES, number);
                joined.lock().push(node);
            });
        };
        JOINING.take(half).for_each(join);
        control_plane.until("some have joined", || (joined.lock().len() > 2).then_some(()));
        control_plane.run(&["systemctl", "kill", "--signal=KILL", CONTROLLER]);
        // The first half of the Nodes is still joining. The second half starts while the controller is down.
        JOINING.skip(half).for_each(join);
    });
    control_plane.until("it has been started again", || {
        (control_plane.show(CONTROLLER, "NRestarts") != before).then_some(())
    });
    let joined = joined.into_inner();
    assert_eq!(joined.len(), JOINING.count());
    fake_nodes::are_labelled(cluster, &joined);
    fake_nodes::leave(cluster, &joined);
}

/// Replaces a machine's boot config, and converges the machine.
#[track_caller]
pub fn converge_with(member: &Member, boot_config: &str) {
    member.machine.write(BOOT_CONFIG, boot_config);
    converge(member);
}

/// Converges a machine to the current configuration of its group (`--follow`). The machine's user-data does not change.
#[track_caller]
pub fn follow(member: &Member) {
    let ended = member.machine.try_run(&[AGENT, "converge", "--follow"]);
    assert_eq!(ended.code, Some(0), "{}", member.machine.explain(&ended));
}

#[track_caller]
pub fn converge(member: &Member) {
    let ended = member.machine.try_run(&["systemctl", "restart", AT_BOOT]);
    assert_eq!(ended.code, Some(0), "{}", member.machine.explain(&ended));
}

/// The start time of the machine's systemd. The kernel's boot id is of no use, because test machines share the host's kernel.
pub fn boot_id(member: &Member) -> String {
    member.machine.run(&["systemctl", "show", "--value", "--property=UserspaceTimestampMonotonic"])
}
