//! The cgroups on which kubelet enforces reservations. The test runs the node's command for them on a folder that
//! stands in for `/sys/fs/cgroup`.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::example::Machine;
use kops_agent_tests::example_store::NODES;

const DROP_IN: &str = "etc/systemd/system/kubelet.service.d/10-kops-agent-reserved-cgroups.conf";
const KUBELET: &str = "  kubelet:
    enforceNodeAllocatable: pods,kube-reserved,system-reserved
    kubeReserved: {cpu: 100m, memory: 100Mi}
    kubeReservedCgroup: /kube-reserved.slice
    systemReserved: {cpu: 100m, memory: 100Mi}
    systemReservedCgroup: /system.slice
  role: Node
";
const SLICE: &str = "kube.slice/kube-reserved.slice";

/// Runs the command of the drop-in as systemd does: systemd replaces `$$` by `$`.
fn run(drop_in: &str, cgroups: &Path) {
    let line = drop_in.lines().find_map(|line| line.strip_prefix("ExecStartPre=-/bin/sh -c \"")).unwrap();
    let script = line.strip_suffix('"').unwrap().replace("$$", "$");
    let script = script.replace("/sys/fs/cgroup", cgroups.to_str().unwrap());
    assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success(), "{script}");
}

#[test]
fn a_cgroup_that_kubelet_enforces_reservations_on_has_the_controllers_that_kubelet_wants() {
    let machine = Machine::new(NODES);
    machine.cluster.edit("instancegroup/nodes", "  role: Node\n", KUBELET).unwrap();
    machine.run("converge", &[]).with(0, &[]);
    let drop_in = fs::read_to_string(machine.root().join(DROP_IN)).unwrap();
    assert!(drop_in.contains("After=kube-reserved.slice\n") && drop_in.contains("After=system.slice\n"));

    let of_v2 = machine.folder().join("v2");
    // In this test, each write replaces the content of the file. The kernel would add the controllers to the enabled
    // ones.
    let enabled = |path: &str| fs::read_to_string(of_v2.join(path).join("cgroup.subtree_control")).ok();
    fs::create_dir(&of_v2).unwrap();
    for (has, last) in
        [("cpuset cpu io memory hugetlb pids rdma", "+pids\n"), ("memory hugetlb misc", "+hugetlb\n")]
    {
        fs::write(of_v2.join("cgroup.controllers"), has).unwrap();
        run(&drop_in, &of_v2);
        assert_eq!(
            (enabled(".").as_deref(), enabled("kube.slice").as_deref()),
            (Some(last), Some(last)),
            "{has}"
        );
    }
    assert!(of_v2.join(SLICE).is_dir() && of_v2.join("system.slice").is_dir());
    assert_eq!((enabled(SLICE), enabled("system.slice")), (None, None), "nothing is below");

    let of_v1 = machine.folder().join("v1");
    fs::create_dir_all(of_v1.join("hugetlb")).unwrap();
    run(&drop_in, &of_v1);
    assert!(of_v1.join("hugetlb").join(SLICE).is_dir() && of_v1.join("hugetlb/system.slice").is_dir());
    assert!(!of_v1.join("cpu").exists() && !of_v1.join("system.slice").exists());
}
