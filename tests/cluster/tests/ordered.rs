//! A rollout, which one command of an operator starts: a changed kubelet setting reaches the control plane and two groups of workers.
//! A setting that kubelet rejects reaches only one machine.

use kops_agent_machines::machine::Ended;
use serde_json::Value;

use crate::cluster::{AGENT, BOOT_CONFIG, Cluster, has_condition};
use crate::workload;

/// The health timeout in seconds, long enough for a restart of the control plane.
const HEALTH_TIMEOUT: &str = "60";
/// After so many seconds the pods of a changed node are compared. The default of a minute would only make this test slower.
const CHECK_PODS_AFTER: &str = "5";
const KUBECONFIG: &str = "/var/lib/kubectl/kubeconfig";

/// All machines take the setting. Their user-data stays, and pods of workers keep running.
pub fn kubelet_settings_roll_out(cluster: &Cluster) {
    let boot_configs =
        || cluster.members.iter().map(|member| member.machine.read(BOOT_CONFIG)).collect::<Vec<_>>();
    let (pods, before) = (workload::pods_of_workers(cluster), boot_configs());
    change(cluster, "{spec: {kubelet: {maxPods: 43}, masterKubelet: {maxPods: 43}}}");
    started(cluster, &["start", "--canary", "1", "--check-pods-after", CHECK_PODS_AFTER]);
    until_phase(cluster, "done");
    for member in &cluster.members {
        cluster.until(&format!("kubelet of {} has it", member.id), "node", member.id, |node| {
            node["status"]["capacity"]["pods"] == "43" && has_condition(node, "Ready")
        });
    }
    assert_eq!(
        workload::pods_of_workers(cluster),
        pods,
        "pods do not outlive a change of kubelet's settings"
    );
    assert_eq!(boot_configs(), before, "the user-data was changed");
    workload::pods_reach_each_other(cluster);
}

/// The control plane, which is first, rolls a bad setting back, and no other machine moves. With the corrected spec, the rollout goes on.
pub fn a_bad_setting_stops_a_rollout(cluster: &Cluster) {
    // No earlier check rejects this setting, because only the machine knows that it has less disk space.
    change(
        cluster,
        "{spec: {kubelet: {maxPods: 44}, masterKubelet: {kubeReserved: {ephemeral-storage: 100000Gi}}}}",
    );
    started(cluster, &["start", "--health-timeout", HEALTH_TIMEOUT, "--check-pods-after", CHECK_PODS_AFTER]);
    until_phase(cluster, "stopped");
    let status = status(cluster);
    let failed: u64 = groups(&status).map(|group| group["failed"].as_u64().unwrap()).sum();
    let done: u64 = groups(&status).map(|group| group["done"].as_u64().unwrap()).sum();
    assert_eq!((failed, done), (1, 0), "{status:#}");
    for member in &cluster.members {
        cluster.until(&format!("{} is Ready", member.id), "node", member.id, |node| {
            has_condition(node, "Ready")
        });
    }
    change(
        cluster,
        "{spec: {kubelet: {maxPods: 45}, masterKubelet: {kubeReserved: {ephemeral-storage: 10Mi}, maxPods: 45}}}",
    );
    started(cluster, &["resume"]);
    until_phase(cluster, "done");
    for member in &cluster.members {
        cluster.until(&format!("kubelet of {} has it", member.id), "node", member.id, |node| {
            node["status"]["capacity"]["pods"] == "45"
        });
    }
    workload::pods_reach_each_other(cluster);
}

/// Changes the cluster spec, and writes the configurations of all groups as `kops update cluster --yes` does.
fn change(cluster: &Cluster, change: &str) {
    cluster.store.merge("cluster-completed.spec", change);
    for member in &cluster.members {
        cluster.store.update(member.group);
    }
}

fn rollout(cluster: &Cluster, arguments: &[&str]) -> Ended {
    let command = [&[AGENT, "fleet", "rollout"], arguments, &["--kubeconfig", KUBECONFIG]].concat();
    cluster.control_plane().try_run(&command)
}

fn started(cluster: &Cluster, arguments: &[&str]) {
    let ended = rollout(cluster, arguments);
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

fn status(cluster: &Cluster) -> Value {
    let ended = rollout(cluster, &["status", "-o", "json"]);
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

fn until_phase(cluster: &Cluster, phase: &str) {
    cluster.control_plane().until(&format!("the rollout is {phase}"), || {
        // The API server does not answer while its machine changes.
        let ended = rollout(cluster, &["status", "-o", "json"]);
        let status: Value = serde_json::from_str(&ended.stdout).ok()?;
        let now = status["status"]["phase"].as_str()?;
        let others = ["done", "stopped", "aborted"];
        assert!(now == phase || !others.contains(&now), "{status:#}");
        (now == phase).then_some(())
    });
}

fn groups(status: &Value) -> impl Iterator<Item = &Value> {
    status["status"]["groups"].as_object().unwrap().values()
}
