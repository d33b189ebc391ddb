//! The next kOps writes the state store of a running cluster. One rollout takes the machines to the configurations of that kOps.

use std::path::Path;

use kops_agent_machines::assets::{self, Programs};
use kops_agent_tests::released_store;

use crate::cluster::{AGENT, Cluster, Member, Software};
use crate::ordered::{self, boot_configs};
use crate::requests::Requests;
use crate::scene;
use crate::upgrade::{kubelets, write};
use crate::workload;
use crate::world::World;

/// The versions of kOps. The machines boot from a store that `OLD` has written. `NEW` is the release after `OLD`.
const OLD: &str = "1.35.2";
const NEW: &str = "1.36.2";
const CONTAINERD_CONFIG: &str = "/etc/containerd/config.toml";

/// The software of a cluster of kOps 1.35: kubelet 1.34, and the programs of `tests/kube` for the rest.
pub fn of_old_kops() -> Software {
    let releases = Programs::newest().with_kubelet_1_34().releases;
    Software { releases, kops: Some(OLD), publish, packages: None }
}

/// Publishes kOps' own programs, and the images of `tests/kube/build` with tags of Kubernetes 1.34. The mirror already has kubelet 1.34.
fn publish(software: &Software, folder: &Path, world: &World) {
    for (path, content) in [OLD, NEW].into_iter().flat_map(released_store::downloads) {
        write(&folder.join(&path[1..]), &content);
    }
    let built = kops_agent_machines::script("kube/build", &[]);
    world.serve_images(assets::images(Path::new(built.trim()), &software.releases));
}

/// The test changes the store as `kops update cluster` of the next kOps does. A rollout applies the change to the control plane and then to
/// the workers. Kubernetes stays at its release. No Node is lost, no pod of a worker ends, no request to the workload fails, and no unit
/// fails. Afterwards, a plan contains no change.
pub fn the_next_kops_is_taken_up(cluster: &Cluster) {
    are_written_by(cluster, OLD);
    let (user_data, uids, pods) = (boot_configs(cluster), cluster.uids(), workload::pods_of_workers(cluster));
    let kubernetes = cluster.control_plane().until("all Nodes are Ready", || kubelets(cluster));
    let failed = failed_units(cluster);
    let requests = Requests::begin(&cluster.workers()[0], cluster, workload::OWN);

    cluster.store.write_as(NEW);
    ordered::update(cluster);
    ordered::started(cluster, &[&["start", "--canary", "1"][..], &ordered::CHECK_PODS_AFTER].concat());
    ordered::until_phase(cluster, "done");

    requests.were_all_answered();
    cluster.control_plane().until("the API server is ready", || cluster.is_ready());
    are_written_by(cluster, NEW);
    scene::the_control_plane_is_up(cluster);
    let now = cluster.control_plane().until("all Nodes are Ready", || kubelets(cluster));
    assert_eq!(now, kubernetes, "kubelets are of another release");
    assert_eq!(workload::pods_of_workers(cluster), pods, "pods of workers were restarted");
    assert_eq!(cluster.uids(), uids, "Nodes were lost");
    assert_eq!(boot_configs(cluster), user_data, "the user-data was changed");
    assert_eq!(failed_units(cluster), failed, "units have failed");
    for member in &cluster.members {
        let planned = member.machine.try_run(&[AGENT, "plan", "--follow", "--exit-code"]);
        assert_eq!(planned.code, Some(0), "{}", member.machine.explain(&planned));
    }
    workload::logs_are_read(cluster);
    workload::pods_reach_each_other(cluster);
}

/// Each machine has the configuration that this version of kOps writes. kOps before 1.36 writes containerd's configuration in
/// version 2 of the format. kOps 1.36 chooses the format by the version of containerd.
fn are_written_by(cluster: &Cluster, kops: &str) {
    let form = if kops < "1.36" { "version = 2\n" } else { "version = 3\n" };
    for member in &cluster.members {
        let status = member.machine.try_run(&[AGENT, "status"]);
        let is_told = status.stdout.contains(&format!("kOps {kops}, told by "));
        assert!(status.code == Some(0) && is_told, "{}", member.machine.explain(&status));
        let config = member.machine.read(CONTAINERD_CONFIG);
        assert!(config.contains(form), "{} with kOps {kops}: {config}", member.id);
    }
}

/// The failed units of each machine, and the number of times that systemd has restarted kubelet and containerd after a failure.
fn failed_units(cluster: &Cluster) -> Vec<String> {
    let of = |member: &Member| {
        let machine = &member.machine;
        let failed = machine.run(&["systemctl", "--failed", "--no-legend", "--plain", "--no-pager"]);
        let restarts = ["kubelet.service", "containerd.service"].map(|unit| machine.show(unit, "NRestarts"));
        format!("{}: {failed}, {restarts:?}", member.id)
    };
    cluster.members.iter().map(of).collect()
}
