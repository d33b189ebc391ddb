//! A power cut of a worker while a run changes it.

use kops_agent_tests::example_store::NODES;

use crate::cluster::{BOOT_CONFIG, Cluster, has_condition};
use crate::life::{AT_BOOT, boot_id};
use crate::workload;

const CONFIG: &str = "/var/lib/kubelet/kubelet.conf";
/// The folder of a run's backups. It exists from the run's first change until all components are healthy.
const AT_WORK: &str = "var/lib/kops-agent/rollback";
const SLOT: &str = "kops-agent-disruption.nodes.0";
const SLOTS: &str = "kops-agent";

/// A worker loses power after its run has written kubelet's new configuration and before the run has ended. At boot, the
/// worker converges by itself. The interrupted run's cordon, slot and backups are gone.
pub fn a_worker_is_cut_off_while_it_converges(cluster: &Cluster) {
    let worker = cluster.of_group(NODES);
    let machine = &worker.machine;
    let boot = boot_id(worker);
    let pods = workload::pods_of(cluster, worker.id);
    cluster.store.merge("cluster-completed.spec", "{spec: {kubelet: {maxPods: 43}}}");
    machine.write(BOOT_CONFIG, &cluster.store.update(NODES));
    machine.run(&["systemctl", "restart", "--no-block", AT_BOOT]);
    machine.until("kubelet's new configuration is written", || {
        (machine.try_run(&["grep", "maxPods: 43", CONFIG]).code == Some(0)).then_some(())
    });
    machine.cut_power();
    assert!(machine.files().join(AT_WORK).exists(), "its converge was over before its power was cut");
    assert_eq!(slot_holder(cluster).as_deref(), Some(worker.id), "it was changed without a slot");

    machine.power_on_again();
    machine.until("what converges at boot is done", || {
        let properties = "--property=ExecMainExitTimestampMonotonic,Result,ActiveState";
        let shown = machine.try_run(&["systemctl", "show", properties, AT_BOOT]).stdout;
        let is_over = !shown.contains("ExecMainExitTimestampMonotonic=0\n");
        let is_healthy = shown.contains("Result=success") && shown.contains("ActiveState=inactive");
        (is_over && is_healthy).then_some(())
    });
    assert_ne!(boot_id(worker), boot);
    assert!(!machine.files().join(AT_WORK).exists(), "what was cut off is to be rolled back still");
    machine.until("kubelet has what is wanted, and pods are welcome", || {
        let node = cluster.get("node", worker.id)?;
        let is_wanted = node["status"]["capacity"]["pods"] == "43";
        (is_wanted && has_condition(&node, "Ready") && node["spec"]["unschedulable"].is_null()).then_some(())
    });
    workload::is_started_again(cluster, worker, &pods);
    machine.until("its slot is free", || (slot_holder(cluster)?.is_empty()).then_some(()));
    workload::runs_on_all_workers(cluster);
    workload::pods_reach_each_other(cluster);
}

/// The name of the Node that holds the group's slot. Empty if the slot is free. `None` if the Lease cannot be read.
fn slot_holder(cluster: &Cluster) -> Option<String> {
    let holder = "--output=jsonpath={.spec.holderIdentity}";
    cluster.kubectl(&["get", "lease", SLOT, "--namespace", SLOTS, holder])
}
