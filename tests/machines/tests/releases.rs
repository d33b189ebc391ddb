//! Clusters whose store a released kOps wrote.
//!
//! kOps derives the configuration of each group, and the boot configs pin it, as after `kops update cluster --yes`.

use std::thread;

use kops_agent_machines::containers::static_pod_runs;
use kops_agent_machines::machine::Machine;
use kops_agent_machines::step;
use kops_agent_tests::example_store::{CONTROL_PLANE, NODES};

use crate::cluster::{AGENT, BOOT_CONFIG, CONTROL_PLANE_NAME, Cluster, NODE_NAME, Written};
use crate::{READY, STATIC_PODS, a_pod_runs_on_the_node, a_second_run_does_nothing, converge, node_has};

const PROTOKUBE: &str = "protokube.service";
/// The pod in place of protokube from kOps 1.36 on.
const KOPS_CHANNELS: &str = "kops-channels";

/// Boots a control plane and a worker of this Debian suite, which become a cluster.
pub fn become_a_cluster(suite: &str, written: &Written) {
    let kops = written.kops.unwrap();
    step(&format!("kOps {kops}, {suite}: boot"));
    let cluster = Cluster::boot_written(suite, written);
    let machines = [(&cluster.control_plane, CONTROL_PLANE), (&cluster.node, NODES)];
    for (machine, group) in machines {
        pin(&cluster, machine, group);
    }
    step("nodes converge");
    thread::scope(|scope| {
        for (machine, _) in machines {
            let cluster = &cluster;
            scope.spawn(move || converge(cluster, machine));
        }
    });
    for (machine, _) in machines {
        is_written_by(machine, kops);
    }
    step("nodes are Ready");
    let releases = &written.programs.releases;
    for name in [CONTROL_PLANE_NAME, NODE_NAME] {
        node_has(&cluster, name, READY, "True");
        let info = |field: &str| format!("{{.status.nodeInfo.{field}}}");
        node_has(&cluster, name, &info("kubeletVersion"), &format!("v{}", releases.kubernetes));
        let containerd = format!("containerd://{}", releases.containerd);
        let found = cluster.kubectl(&[
            "get",
            "node",
            name,
            "-o",
            &format!("jsonpath={}", info("containerRuntimeVersion")),
        ]);
        // Debian adds its own suffix to the version.
        assert!(found.as_ref().is_some_and(|found| found.starts_with(&containerd)), "{name}: {found:?}");
    }
    step("what applies add-ons runs");
    let has_protokube = kops < "1.36";
    for component in STATIC_PODS.iter().filter(|component| **component != KOPS_CHANNELS || !has_protokube) {
        static_pod_runs(&cluster.control_plane, &format!("{component}-{CONTROL_PLANE_NAME}"));
    }
    if has_protokube {
        protokube_has_done_its_work(&cluster);
    } else {
        assert_eq!(cluster.control_plane.show(PROTOKUBE, "LoadState"), "not-found");
    }
    assert_eq!(cluster.node.show(PROTOKUBE, "LoadState"), "not-found");
    step("a pod runs");
    a_pod_runs_on_the_node(&cluster);
    step("a second run");
    for (machine, _) in machines {
        a_second_run_does_nothing(&cluster, machine);
    }
}

/// Writes the group's configuration to the store, and pins the machine to it.
fn pin(cluster: &Cluster, machine: &Machine, group: &str) {
    let config = cluster.derive(machine, group);
    let hash = cluster.store.write_nodeup_config(group, &config).unwrap();
    let boot_config = machine.read(BOOT_CONFIG);
    machine.write(BOOT_CONFIG, &format!("{boot_config}NodeupConfigHash: {hash}\n"));
}

fn is_written_by(machine: &Machine, kops: &str) {
    let status = machine.try_run(&[AGENT, "status"]);
    assert_eq!(status.code, Some(0), "{}", machine.explain(&status));
    assert!(status.stdout.contains(&format!("kOps {kops}, told by ")), "{status:?}");
}

/// protokube has accepted its flags, has reached the API server and the store, and has labelled its Node.
fn protokube_has_done_its_work(cluster: &Cluster) {
    let machine = &cluster.control_plane;
    machine.until("protokube has done its work", || {
        let journal = machine.run(&["journalctl", "--no-pager", "--output=cat", "--unit", PROTOKUBE]);
        let applied = format!("applied {}/addons/bootstrap-channel.yaml", cluster.config_base());
        (journal.contains(&applied) && journal.contains("the Node is labelled")).then_some(())
    });
    let labelled =
        cluster.kubectl(&["get", "nodes", "-l", "node-role.kubernetes.io/control-plane", "-o", "name"]);
    assert_eq!(labelled.unwrap().trim(), format!("node/{CONTROL_PLANE_NAME}"));
    assert_eq!(machine.show(PROTOKUBE, "NRestarts"), "0");
    assert_eq!(machine.show(PROTOKUBE, "UnitFileState"), "enabled");
}
