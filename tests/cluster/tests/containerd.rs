//! The next major version of containerd reaches a cluster by one rollout.

use std::path::Path;

use kops_agent_machines::assets::{Programs, assets};
use kops_agent_tests::stand_ins::Releases;

use crate::cluster::{Cluster, Member, Software, has_condition};
use crate::ordered::{self, boot_configs};
use crate::requests::Requests;
use crate::upgrade::write;
use crate::world::World;
use crate::{kops_upgrade, workload};

/// The store of kOps 1.35, with Debian's containerd 1.7. The test needs kOps 1.35, because kOps 1.36 installs only containerd 2.
pub fn of_containerd_1() -> Software {
    let old = kops_upgrade::of_old_kops();
    let releases = Releases { containerd: programs().releases.containerd, ..old.releases };
    Software { releases, publish, ..old }
}

fn programs() -> Programs {
    Programs::newest().with_containerd_1()
}

/// Publishes the downloads of the old kOps, and containerd 1.7.
fn publish(software: &Software, folder: &Path, world: &World) {
    (kops_upgrade::of_old_kops().publish)(software, folder, world);
    for (path, content) in programs().downloads().iter().filter(|(path, _)| path.contains("/containerd-1.")) {
        write(&folder.join(&path[1..]), content);
    }
}

/// A rollout drains each worker, because the major version of containerd changes. No request to a workload with a PodDisruptionBudget
/// fails, no Node is lost, and the user-data does not change.
pub fn the_next_major_version_is_taken_up(cluster: &Cluster, before: &Software) {
    let (old, new) = (&before.releases.containerd, &assets().releases.containerd);
    all_run(cluster, old);
    let (user_data, uids) = (boot_configs(cluster), cluster.uids());
    workload::guard_for_drains(cluster);
    let requests = Requests::begin(&cluster.workers()[0], cluster, workload::GUARDED);

    cluster.store.merge("cluster-completed.spec", &format!("{{spec: {{containerd: {{version: {new}}}}}}}"));
    ordered::update(cluster);
    ordered::started(cluster, &[&["start"][..], &ordered::CHECK_PODS_AFTER].concat());
    ordered::until_phase(cluster, "done");

    requests.were_all_answered();
    all_run(cluster, new);
    for worker in cluster.workers() {
        ordered::has_evicted(worker);
    }
    assert_eq!(cluster.uids(), uids, "Nodes were lost");
    assert_eq!(boot_configs(cluster), user_data, "the user-data was changed");
    workload::unguard(cluster);
    workload::logs_are_read(cluster);
    workload::pods_reach_each_other(cluster);
}

/// Waits until each Node is Ready and its kubelet reports this version of containerd.
fn all_run(cluster: &Cluster, version: &str) {
    for Member { id, .. } in &cluster.members {
        cluster.until(&format!("{id} runs containerd {version}"), "node", id, |node| {
            let reported = node["status"]["nodeInfo"]["containerRuntimeVersion"].as_str().unwrap_or_default();
            let reported = reported.trim_start_matches("containerd://").trim_start_matches('v');
            // Debian adds its own suffix to the version.
            reported.starts_with(version) && has_condition(node, "Ready")
        });
    }
}
