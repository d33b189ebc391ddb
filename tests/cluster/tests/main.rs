//! Blank machines become a cluster from a kOps state store. kOps' boot script runs the agent in nodeup's place, and no program of
//! kOps runs on the machines. Then scenarios change the cluster, one after another.
//!
//! `tests/cluster/run` runs these tests as root, because they boot machines.

#![allow(clippy::unwrap_used, unreachable_pub)]

mod agents;
mod cloud_controller;
mod cluster;
mod containerd;
mod coordinated;
mod disturbed;
mod fake_nodes;
mod false_reports;
mod ipv6;
mod kept;
mod keysets;
mod kops_upgrade;
mod liars;
mod life;
mod minor;
mod ordered;
mod packages;
mod quorum;
mod reboot;
mod renewal;
mod requests;
mod rollout;
mod rotation;
mod scene;
mod store;
mod timeline;
mod upgrade;
mod witness;
mod workload;
mod world;

use std::path::{Path, PathBuf};
use std::time::Instant;

use kops_agent_machines::network::Family;
use kops_agent_machines::step;
use kops_agent_tests::program::kops_agent;

use cluster::{Cluster, Plan, Software};

/// The folder of the programs that cargo builds.
fn programs() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("debug")
}

fn agent() -> PathBuf {
    kops_agent(programs().join("kops-agent"))
}

/// A scenario: changes a cluster and checks the result.
type Scenario = fn(&Cluster);

/// All scenarios, in the order in which they run.
const SCENARIOS: [(&str, Scenario); 20] = [
    ("add-ons", life::add_ons_change),
    ("labels", life::labels_change),
    ("taints", life::taints_change),
    ("kubelet-settings", life::kubelet_settings_change),
    ("rollout", ordered::kubelet_settings_roll_out),
    ("rollout-stops", ordered::a_bad_setting_stops_a_rollout),
    ("rollout-disturbed", disturbed::a_rollout_outlives_disturbances),
    ("lying-workers", false_reports::liars_gain_nothing_and_hold_nobody),
    ("reboot-in-window", coordinated::workers_reboot_in_a_window),
    ("agent-upgraded", agents::an_agent_is_upgraded_and_downgraded),
    ("api-server-settings", life::api_server_settings_change),
    ("control-plane-reboot", life::control_plane_reboots_without_the_store),
    ("worker-reboot", life::a_worker_reboots),
    ("worker-reboot-mid-converge", reboot::a_worker_is_cut_off_while_it_converges),
    ("certificates-renewed", renewal::certificates_near_their_end_are_renewed),
    ("patch-upgrade", upgrade::a_patch_release_is_taken_up),
    ("machine-added", life::a_machine_comes_and_goes),
    ("controller-killed", life::the_controller_is_killed_while_nodes_join),
    ("paced-rollout", rollout::paced),
    // After this scenario, the boot config of the spare machine has old keys, so this scenario is the last.
    ("keys-rotated", rotation::keys_are_rotated),
];
/// The scenarios of a run that names no scenario.
const OF_EVERY_RUN: [&str; 4] = ["kubelet-settings", "rollout", "rollout-stops", "keys-rotated"];

/// The scenarios to run, from `KOPS_AGENT_CLUSTER_SCENARIOS`: names with spaces between them, or `all`.
fn wanted() -> Vec<(&'static str, Scenario)> {
    let named = std::env::var("KOPS_AGENT_CLUSTER_SCENARIOS").unwrap_or_default();
    let mut names: Vec<&str> = named.split_whitespace().collect();
    if names.is_empty() {
        names = OF_EVERY_RUN.into();
    }
    let unknown =
        names.iter().find(|name| **name != "all" && SCENARIOS.iter().all(|(known, _)| known != *name));
    let known: Vec<&str> = SCENARIOS.iter().map(|(name, _)| *name).collect();
    assert_eq!(unknown, None, "there is no such scenario; there are {known:?}");
    SCENARIOS.into_iter().filter(|(name, _)| names.contains(name) || names.contains(&"all")).collect()
}

#[test]
#[ignore = "boots machines: tests/cluster/run"]
#[allow(clippy::print_stdout)]
fn blank_machines_become_a_cluster() {
    let scenarios = wanted();
    step("power on");
    let cluster = Cluster::power_on("trixie", &cluster::MACHINES, Family::Ipv4);
    let _kept = kept::Kept(&cluster);
    let ready = scene::nodes_become_ready(&cluster, cluster.since);
    let rows = timeline::rows(&cluster, &ready);
    println!("{}", timeline::table(&rows));
    step("the control plane");
    scene::the_control_plane_is_up(&cluster);
    step("add-ons");
    scene::add_ons_are_applied(&cluster);
    step("labels and taints");
    scene::nodes_are_labelled(&cluster);
    step("reports of machines");
    scene::machines_are_reported(&cluster);
    step("identities");
    scene::workers_joined_by_their_identity(&cluster);
    step("what a cloud's controller does");
    cloud_controller::initializes_nodes(&cluster);
    step("a workload");
    workload::runs_on_all_workers(&cluster);
    workload::pods_reach_each_other(&cluster);
    workload::logs_are_read(&cluster);
    for (name, scenario) in scenarios {
        step(name);
        let since = Instant::now();
        scenario(&cluster);
        // The duration is printed immediately, so that it is not lost if a later scenario fails.
        println!("| {name} | {:.0} s |", since.elapsed().as_secs_f32());
    }
    if let Some(file) = std::env::var_os("KOPS_AGENT_CLUSTER_PICTURE") {
        step("machines that have all on their disks");
        let floor = timeline::floor(&cluster);
        println!("{}", timeline::table_of_both(&rows, &floor));
        timeline::draw(&rows, &floor, Path::new(&file));
    }
    step("the end");
}

#[test]
#[ignore = "boots machines: tests/cluster/run three-control-planes"]
fn three_control_planes_outlive_the_loss_of_one() {
    step("power on");
    let cluster = Cluster::power_on("trixie", &quorum::MACHINES, Family::Ipv4);
    let _kept = kept::Kept(&cluster);
    comes_up(&cluster);
    step("one is lost");
    let uids = cluster.uids();
    let first = quorum::one_is_lost(&cluster);
    step("two are lost");
    let second = quorum::two_are_lost(&cluster, first);
    step("all are back");
    quorum::all_are_back(&cluster, [first, second], &uids);
    step("another controller leads in the middle of a rollout");
    disturbed::another_controller_ends_a_rollout(&cluster);
    step("an etcd is away");
    quorum::no_control_plane_changes_while_an_etcd_is_away(&cluster);
    step("the end");
}

#[test]
#[ignore = "boots machines: tests/cluster/run minor-upgrade"]
fn a_minor_release_reaches_three_control_planes_and_their_workers() {
    is_upgraded(&minor::MACHINES, minor::release_before, minor::a_minor_release_is_taken_up);
}

#[test]
#[ignore = "boots machines: tests/cluster/run containerd-upgrade"]
fn containerd_2_reaches_a_cluster_of_containerd_1() {
    is_upgraded(
        &cluster::MACHINES,
        containerd::of_containerd_1,
        containerd::the_next_major_version_is_taken_up,
    );
}

#[test]
#[ignore = "boots machines: tests/cluster/run kops-upgrade"]
fn a_cluster_of_kops_1_35_becomes_one_of_kops_1_36() {
    is_upgraded(&cluster::MACHINES, kops_upgrade::of_old_kops, |cluster, _| {
        kops_upgrade::the_next_kops_is_taken_up(cluster);
    });
}

/// Powers on machines with older software, and waits until they are a cluster. Then `scenario` upgrades them.
fn is_upgraded(
    machines: &'static [Plan],
    before: fn() -> Software,
    scenario: fn(&Cluster, before: &Software),
) {
    step("power on");
    let before = before();
    let cluster = Cluster::power_on_with("trixie", machines, Family::Ipv4, &before);
    let _kept = kept::Kept(&cluster);
    comes_up(&cluster);
    step("the upgrade");
    scenario(&cluster, &before);
    step("the end");
}

#[test]
#[ignore = "boots machines: tests/cluster/run package-upgrade"]
fn a_rollout_replaces_packages() {
    step("packages");
    let software = packages::software();
    step("power on");
    let cluster = Cluster::power_on_with("bookworm", &packages::MACHINES, Family::Ipv4, &software);
    let _kept = kept::Kept(&cluster);
    comes_up(&cluster);
    let packages = software.packages.as_ref().unwrap();
    step("another version, and the earlier one");
    packages::packages_are_upgraded_and_downgraded(&cluster, packages);
    step("an interrupted installation");
    packages::an_installation_outlives_its_process(&cluster, packages);
    step("the end");
}

/// The machines become a cluster, and its workload runs.
fn comes_up(cluster: &Cluster) {
    scene::nodes_become_ready(cluster, cluster.since);
    step("the control planes");
    scene::the_control_plane_is_up(cluster);
    scene::add_ons_are_applied(cluster);
    scene::nodes_have_the_labels_of_all_groups(cluster);
    cloud_controller::initializes_nodes(cluster);
    workload::runs_on_all_workers(cluster);
    workload::pods_reach_each_other(cluster);
}

#[test]
#[ignore = "boots machines: tests/cluster/run ipv6-only"]
fn machines_with_ipv6_addresses_only_become_a_cluster() {
    step("power on");
    let cluster = Cluster::power_on("trixie", &ipv6::MACHINES, Family::Ipv6);
    let _kept = kept::Kept(&cluster);
    step("addresses for pods");
    ipv6::nodes_have_the_prefixes_that_they_asked_for(&cluster);
    ipv6::has_pod_network(&cluster);
    scene::nodes_become_ready(&cluster, cluster.since);
    step("the control plane");
    scene::the_control_plane_is_up(&cluster);
    scene::add_ons_are_applied(&cluster);
    scene::nodes_have_the_labels_of_all_groups(&cluster);
    step("identities");
    scene::workers_joined_by_their_identity(&cluster);
    cloud_controller::initializes_nodes(&cluster);
    step("a workload");
    workload::runs_on_all_workers(&cluster);
    workload::pods_reach_each_other(&cluster);
    workload::logs_are_read(&cluster);
    step("addresses");
    ipv6::servers_are_known_by_their_addresses(&cluster);
    ipv6::there_is_no_ipv4(&cluster);
    step("a reboot");
    ipv6::a_worker_keeps_its_prefix(&cluster);
    step("a setting");
    life::a_setting_is_taken_up_in_a_slot(&cluster);
    workload::pods_reach_each_other(&cluster);
    step("the end");
}
