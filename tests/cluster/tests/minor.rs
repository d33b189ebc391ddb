//! The next minor release of Kubernetes reaches a cluster of three control planes and two groups of workers by one rollout.

use std::collections::BTreeSet;

use kops_agent_machines::assets::assets;
use kops_agent_tests::example_store::NODES;

use crate::cluster::{self, BATCH, Cluster, Member, Plan, Software};
use crate::requests::Requests;
use crate::upgrade::{all_run, api_servers_run, name_release, publish, releases_with};
use crate::witness::Witness;
use crate::workload::DRAINED_PODS;
use crate::{ordered, quorum, workload};

/// Three control planes, and one worker of each of two groups.
pub const MACHINES: [Plan; 5] = [
    quorum::MACHINES[0],
    quorum::MACHINES[1],
    quorum::MACHINES[2],
    cluster::MACHINES[1],
    cluster::MACHINES[2],
];

/// Software whose Kubernetes is one minor release older than the Kubernetes of `tests/kube`.
pub fn release_before() -> Software {
    let newest = &assets().releases.kubernetes;
    let [major, minor, patch]: [&str; 3] = newest.split('.').collect::<Vec<_>>().try_into().unwrap();
    let before = format!("{major}.{}.{patch}", minor.parse::<u32>().unwrap() - 1);
    Software {
        releases: releases_with(&before),
        kops: None,
        publish: |software, folder, world| publish(&software.releases, folder, world),
        packages: None,
    }
}

/// The control planes change to the new release first, one after another. Before the rollout gives the first worker its order, every
/// API server runs the new release. The workers are drained. At any time, at most one node of each group of workers and at most one
/// control plane has a slot. No request to a workload with a PodDisruptionBudget fails, and no Node is lost.
pub fn a_minor_release_is_taken_up(cluster: &Cluster, before: &Software) {
    let (old, new) = (&before.releases.kubernetes, &assets().releases.kubernetes);
    all_run(cluster, old);
    let uids = cluster.uids();
    let witness = Witness::begins(cluster);
    workload::guard_for_drains(cluster);
    witness.sees_guarded(DRAINED_PODS);
    let requests = Requests::begin(&cluster.workers()[0], cluster, workload::GUARDED);
    name_release(cluster, old, new);
    ordered::update(cluster);
    ordered::started(cluster, &[&["start", "--canary", "1"][..], &ordered::CHECK_PODS_AFTER].concat());
    ordered::until_status(cluster, "a worker has an order", |status| {
        let status = &status["status"];
        let is_ordered = |worker: &Member| {
            let updating = status["groups"][worker.group]["updating"].as_array();
            updating.is_some_and(|nodes| !nodes.is_empty())
        };
        status["phase"] != "running" || cluster.workers().iter().any(is_ordered)
    });
    // The API servers have the new release before the workers change, so no worker's kubelet is newer than an API server.
    api_servers_run(cluster, new);
    ordered::until_phase(cluster, "done");
    requests.were_all_answered();
    let states = witness.states(DRAINED_PODS);
    states.had_one_holder(&["control-plane", NODES, BATCH]);
    states.are_of_drains();
    witness.ends();

    all_run(cluster, new);
    let ordered_at = |member: &Member| ordered::ordered_at(cluster, member.id);
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
