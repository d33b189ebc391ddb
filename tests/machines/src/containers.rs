//! Reads a machine's containers from containerd.

use std::collections::BTreeSet;

use crate::machine::Machine;

/// The containers with a task in containerd. Each line has the container's id, its process id and its status.
pub fn containers(machine: &Machine) -> BTreeSet<String> {
    let tasks = machine.run(&["ctr", "--namespace", "k8s.io", "tasks", "list"]);
    tasks.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// Waits until a static pod runs. Asks containerd, because kubelet may report a static pod to the API server a minute
/// late.
pub fn static_pod_runs(machine: &Machine, name: &str) {
    let is_its =
        format!("labels.\"io.kubernetes.pod.name\"=={name},labels.\"io.cri-containerd.kind\"==container");
    machine.until(&format!("the pod {name} runs"), || {
        let its = machine
            .try_run(&["ctr", "--namespace", "k8s.io", "containers", "list", "--quiet", &is_its])
            .stdout;
        let running: BTreeSet<String> =
            containers(machine).into_iter().filter(|task| task.ends_with(" RUNNING")).collect();
        its.lines().any(|id| running.iter().any(|task| task.starts_with(id))).then_some(())
    });
}
