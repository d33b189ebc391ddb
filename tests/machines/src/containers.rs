//! The containers of a machine, as containerd has them.

use std::collections::BTreeSet;

use crate::machine::Machine;

/// The running containers, each with its process.
pub fn containers(machine: &Machine) -> BTreeSet<String> {
    let tasks = machine.run(&["ctr", "--namespace", "k8s.io", "tasks", "list"]);
    tasks.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// Waits until a static pod runs. Asked of containerd: that kubelet tells the API server of a static pod may take it a minute.
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
