//! The next minor release of Kubernetes reaches a cluster of three control planes and two groups of workers by one rollout.

use std::collections::BTreeSet;

use kops_agent_machines::assets::assets;

use crate::cluster::{self, Cluster, Member, Plan, Software};
use crate::requests::Requests;
use crate::upgrade::{kubelets, name_release, proxies_traffic, publish, releases_with};
use crate::{fake_nodes, ordered, quorum, workload};

/// The machines: three control planes, and a worker of each of two groups.
pub const MACHINES: [Plan; 5] = [
    quorum::MACHINES[0],
    quorum::MACHINES[1],
    quorum::MACHINES[2],
    cluster::MACHINES[1],
    cluster::MACHINES[2],
];
/// How many pods the guarded workload has. Its budget lets one of them end at a time.
const GUARDED: usize = 2;
/// For so many seconds a guarded pod serves after its eviction.
const SECONDS_TO_END: u64 = 5;

/// The minor release before the built one.
pub fn release_before() -> Software {
    let newest = &assets().releases.kubernetes;
    let [major, minor, patch]: [&str; 3] = newest.split('.').collect::<Vec<_>>().try_into().unwrap();
    let before = format!("{major}.{}.{patch}", minor.parse::<u32>().unwrap() - 1);
    Software {
        releases: releases_with(&before),
        kops: None,
        publish: |software, folder, world| publish(&software.releases, folder, world),
    }
}

/// The control planes take the release first, one after another. Then the workers take it, and are drained. No request to a workload
/// with a budget fails, and no Node is lost.
pub fn a_minor_release_is_taken_up(cluster: &Cluster, before: &Software) {
    let (old, new) = (&before.releases.kubernetes, &assets().releases.kubernetes);
    all_run(cluster, old);
    let uids = cluster.uids();
    workload::guard(cluster, GUARDED, GUARDED - 1, SECONDS_TO_END);
    let requests = Requests::begin(&cluster.workers()[0], cluster, workload::GUARDED);
    name_release(cluster, old, new);
    ordered::update(cluster);
    ordered::started(cluster, &[&["start", "--canary", "1"][..], &ordered::CHECK_PODS_AFTER].concat());
    ordered::until_phase(cluster, "done");
    requests.were_all_answered();

    all_run(cluster, new);
    let ordered_at =
        |member: &Member| fake_nodes::order(cluster, member.id).unwrap()["at"].as_str().unwrap().to_owned();
    let control_planes: BTreeSet<String> = cluster.control_planes().iter().map(ordered_at).collect();
    assert_eq!(control_planes.len(), cluster.control_planes().len(), "two began at once: {control_planes:?}");
    for worker in cluster.workers() {
        let of_worker = ordered_at(worker);
        assert!(Some(&of_worker) > control_planes.last(), "{}: {of_worker}, {control_planes:?}", worker.id);
        ordered::has_evicted(worker);
    }
    assert_eq!(cluster.uids(), uids, "Nodes were lost");
    workload::unguard(cluster);
    workload::logs_are_read(cluster);
}

/// Each machine runs this release: its kubelet and its kube-proxy, and the API server of a control plane.
fn all_run(cluster: &Cluster, release: &str) {
    cluster.control_plane().until(&format!("all kubelets are of {release}"), || {
        kubelets(cluster)?.iter().all(|kubelet| kubelet == release).then_some(())
    });
    for member in &cluster.members {
        proxies_traffic(cluster, member, release);
    }
    for control_plane in cluster.control_planes() {
        cluster.ask(control_plane);
        control_plane.machine.until("its API server is ready", || cluster.is_ready());
        let version = cluster.run_kubectl(&["get", "--raw=/version"]);
        assert!(version.contains(&format!("\"v{release}\"")), "{version}");
    }
}
