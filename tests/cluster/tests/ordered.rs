//! Rollouts that one command of an operator starts. A changed kubelet setting reaches the control plane, the canaries and all other
//! workers. A setting that kubelet rejects reaches only a canary.

use std::time::{Duration, Instant};

use kops_agent_machines::machine::Ended;
use kops_agent_tests::example_store::{CONTROL_PLANE, NODES};
use serde_json::Value;

use crate::cluster::{BATCH, BOOT_CONFIG, Cluster, Member, has_condition};
use crate::fake_nodes::{self, FakeNode};
use crate::requests::Requests;
use crate::rollout::kubelet_runs_since;
use crate::witness::{States, Turn, Witness, second};
use crate::workload::DRAINED_PODS;
use crate::{store, workload};

/// The health timeout in seconds, long enough for a restart of kubelet.
const HEALTH_TIMEOUT: &str = "30";
/// The seconds between a node's change and the rollout's check of its pods. The default of one minute would make this test slower.
pub const CHECK_PODS_AFTER: [&str; 2] = ["--check-pods-after", "3"];
const KUBECONFIG: &str = "/var/lib/kubectl/kubeconfig";
/// The numbers of the Nodes without machines. Each scenario has two such Nodes, one in each group of workers, and its own numbers.
const OF_ROLLOUT: [u8; 2] = [41, 42];
const OF_STOPPED: [u8; 2] = [43, 44];
const KUBELET_CONFIG: &str = "/var/lib/kubelet/kubelet.conf";
/// The disk space that kubelets reserve after the measured rollout. No other scenario uses this value.
const MEASURED: &str = "7Mi";
/// The time that a rollout to two workers may take in addition to two restarts of kubelet.
const BESIDE_RESTARTS: Duration = Duration::from_secs(10);

/// All nodes apply the setting. The control plane is first. The two workers, which are the canaries, are next. In each group of workers, a
/// Node without a machine is last. The workers are drained: their pods end slowly, and a PodDisruptionBudget keeps one of them running. No
/// request to these pods fails. The user-data stays unchanged. A second rollout, without drains, is measured.
pub fn kubelet_settings_roll_out(cluster: &Cluster) {
    let before = boot_configs(cluster);
    let witness = Witness::begins(cluster);
    let fakes = join(cluster, OF_ROLLOUT);
    workload::guard_for_drains(cluster);
    witness.sees_guarded(DRAINED_PODS);
    let requests = Requests::begin(&cluster.workers()[0], cluster, workload::GUARDED);
    change_max_pods(cluster, "43");
    fake_nodes::at_work(
        &fakes,
        |fake| fake.obeys(cluster),
        || {
            started(
                cluster,
                &[&["start", "--canary", "1", "--drain", "always"][..], &CHECK_PODS_AFTER].concat(),
            );
            until_phase(cluster, "done");
        },
    );
    requests.were_all_answered();
    for member in &cluster.members {
        cluster.until(&format!("kubelet of {} has it", member.id), "node", member.id, |node| {
            node["status"]["capacity"]["pods"] == "43" && has_condition(node, "Ready")
        });
    }
    let states = witness.states(DRAINED_PODS);
    states.are_of_drains();
    each_had_its_turn(cluster, &states, &fakes);
    assert_eq!(boot_configs(cluster), before, "the user-data was changed");
    witness.ends();
    fake_nodes::leave(cluster, &fakes);
    workload::unguard(cluster);
    a_setting_takes_little_more_than_its_restarts(cluster);
}

/// Without a drain, a kubelet setting reaches both workers within the time of two restarts of kubelet plus 10 s. The measurement begins
/// when the leading controller has begun the rollout. Prints the measured times, and the time from power-on until these machines were
/// Ready.
#[allow(clippy::print_stdout)]
fn a_setting_takes_little_more_than_its_restarts(cluster: &Cluster) {
    let workers = [NODES, BATCH].map(|group| cluster.of_group(group));
    for worker in workers {
        reserve(cluster, worker.group, MEASURED);
    }
    let commanded = Instant::now();
    started(cluster, &["start", "--check-pods-after", "0"]);
    let begun = Instant::now();
    until_phase(cluster, "done");
    let (took, command) = (begun.elapsed(), begun - commanded);
    for worker in workers {
        let config = worker.machine.read(KUBELET_CONFIG);
        assert!(config.contains(MEASURED), "{}: {config}", worker.id);
    }
    let restarts: Duration = workers.iter().map(|worker| restarts_kubelet(cluster, worker)).sum();
    let new =
        workers.iter().filter_map(|worker| cluster.ready_since(worker.id, cluster.since)).max().unwrap();
    println!(
        "| a kubelet setting reaches 2 workers, s | `start` before that, s | 2 restarts of kubelet, s | a new worker is Ready after power-on, s |"
    );
    println!("| ---: | ---: | ---: | ---: |");
    let [of_rollout, of_command, of_restarts, of_new] =
        [took, command, restarts, new].map(|time| format!("{:.1}", time.as_secs_f64()));
    println!("| {of_rollout} | {of_command} | {of_restarts} | {of_new} |");
    assert!(took <= restarts + BESIDE_RESTARTS, "{of_rollout} s, and two restarts take {of_restarts} s");
}

/// Restarts kubelet by hand. Returns the time until kubelet has renewed its Lease and the Node is Ready.
fn restarts_kubelet(cluster: &Cluster, worker: &Member) -> Duration {
    let begun = Instant::now();
    worker.machine.run(&["systemctl", "stop", "kubelet.service"]);
    // A stopped kubelet renews nothing, so the next renewal comes from the new process.
    let before = lease_renewed(cluster, worker).unwrap();
    worker.machine.run(&["systemctl", "start", "kubelet.service"]);
    worker.machine.until("its kubelet renews its Lease", || {
        lease_renewed(cluster, worker).filter(|now| *now != before).map(drop)
    });
    cluster.until(&format!("{} is Ready", worker.id), "node", worker.id, |node| has_condition(node, "Ready"));
    begun.elapsed()
}

/// The time at which a kubelet last renewed its Lease. `None` if the API server does not answer.
pub fn lease_renewed(cluster: &Cluster, member: &Member) -> Option<String> {
    let time = "--output=jsonpath={.spec.renewTime}";
    cluster.kubectl(&["get", "lease", member.id, "--namespace=kube-node-lease", time])
}

/// Checks the sequence of the rollout. The control plane released its slot before the canaries got orders. The canaries released their
/// slots before the other nodes got orders. Each kubelet restarted while its node held the slot, after the pods had ended.
fn each_had_its_turn(cluster: &Cluster, states: &States, fakes: &[FakeNode]) {
    let turn = |member: &Member| -> Turn {
        let mut turns = states.turns.iter().filter(|turn| turn.node == member.id);
        let turn =
            turns.next().unwrap_or_else(|| panic!("{} has had no slot: {:#?}", member.id, states.turns));
        assert!(turns.next().is_none(), "{} has had more than one slot: {:#?}", member.id, states.turns);
        assert_eq!(turn.group, slots_of(member.group));
        turn.clone()
    };
    let ordered = |node: &str| second(&ordered_at(cluster, node));
    let of_control_plane = turn(cluster.of_group(CONTROL_PLANE));
    for worker in cluster.workers() {
        let (turn, restarted) = (turn(worker), kubelet_runs_since(worker));
        assert!(of_control_plane.until <= ordered(worker.id), "{:#?}", states.turns);
        assert!(turn.since <= restarted && restarted <= turn.until, "at {restarted}: {turn:?}");
        has_evicted(worker);
        for fake in fakes {
            assert!(turn.until <= ordered(&fake.id), "{} was ordered before {} was done", fake.id, worker.id);
        }
    }
    for group in [CONTROL_PLANE, NODES, BATCH].map(slots_of) {
        assert_eq!(states.most_holders(group), 1, "{:#?}", states.turns);
    }
}

/// The time at which the rollout gave a Node its last order (`at` in the order).
pub fn ordered_at(cluster: &Cluster, node: &str) -> String {
    fake_nodes::order(cluster, node).unwrap()["at"].as_str().unwrap().to_owned()
}

/// Checks that this worker has evicted a pod of the guarded workload while it carried out an order.
pub fn has_evicted(worker: &Member) {
    let said = said_by_orders(worker);
    assert!(said.contains(&format!("evicting the pod default/{}", workload::GUARDED)), "{said}");
}

/// The journal of the service that carries out orders, with the output of its runs.
pub fn said_by_orders(member: &Member) -> String {
    member.machine.run(&["journalctl", "--no-pager", "--unit", "kops-agent-follow.service"])
}

/// The group name in the slots of an instance group's nodes. All control planes share one slot, whose group name is `control-plane`.
fn slots_of(group: &str) -> &str {
    if store::is_control_plane(group) { "control-plane" } else { group }
}

/// A canary rolls back a bad setting, and its group pauses. No other node gets an order. With the corrected spec, the rollout
/// continues to all nodes. No pod of a worker ends.
pub fn a_bad_setting_stops_a_rollout(cluster: &Cluster) {
    let canary = cluster.of_group(NODES);
    let fakes = join(cluster, OF_STOPPED);
    let (pods, before) = (workload::pods_of_workers(cluster), orders(cluster, &fakes));
    // The controller cannot reject this setting, because only the machine knows the size of its disk.
    reserve(cluster, NODES, "100000Gi");
    fake_nodes::at_work(
        &fakes,
        |fake| fake.obeys(cluster),
        || {
            let start = ["start", "--canary", "1", "--health-timeout", HEALTH_TIMEOUT];
            started(cluster, &[&start[..], &CHECK_PODS_AFTER].concat());
            until_phase(cluster, "stopped");
            let now = status(cluster);
            let failures = &now["status"]["groups"][NODES]["failures"];
            assert!(failures[canary.id].as_str().unwrap().contains("kubelet"), "{now:#}");
            let failed: u64 = groups(&now).map(|group| group["failed"].as_u64().unwrap()).sum();
            let waiting: u64 = groups(&now).map(|group| group["waiting"].as_u64().unwrap()).sum();
            assert_eq!((failed, waiting), (1, 2), "{now:#}");
            let moved: Vec<String> = before
                .iter()
                .zip(orders(cluster, &fakes))
                .filter(|(before, now)| *before != now)
                .map(|(_, now)| now.0)
                .collect();
            assert_eq!(moved, [canary.id], "only the canary gets an order");
            is_rolled_back(cluster, canary);

            reserve(cluster, NODES, "10Mi");
            started(cluster, &["resume"]);
            until_phase(cluster, "done");
        },
    );
    for fake in &fakes {
        assert!(fake.order(cluster).is_some(), "{} was left out", fake.id);
    }
    assert!(
        canary.machine.read(KUBELET_CONFIG).contains("10Mi"),
        "the canary has not taken the corrected spec"
    );
    assert_eq!(
        workload::pods_of_workers(cluster),
        pods,
        "pods do not outlive a change of kubelet's settings"
    );
    fake_nodes::leave(cluster, &fakes);
    workload::pods_reach_each_other(cluster);
}

/// The machine has the setting from before the rollout. Its Node is Ready and schedulable.
fn is_rolled_back(cluster: &Cluster, member: &Member) {
    let config = member.machine.read(KUBELET_CONFIG);
    assert!(!config.contains("100000Gi"), "{config}");
    cluster.until(&format!("{} is Ready", member.id), "node", member.id, |node| {
        has_condition(node, "Ready") && node["spec"]["unschedulable"].is_null()
    });
    let events =
        cluster.run_kubectl(&["get", "events", "--all-namespaces", "--field-selector=reason=RolloutFailed"]);
    assert!(events.contains(member.id), "no Event tells of the failure: {events}");
}

/// Sets the disk space that kubelets of a group reserve.
fn reserve(cluster: &Cluster, group: &str, disk_space: &str) {
    let change = format!("{{spec: {{kubelet: {{kubeReserved: {{ephemeral-storage: {disk_space}}}}}}}}}");
    cluster.store.merge(&format!("instancegroup/{group}"), &change);
    cluster.store.update(group);
}

fn orders(cluster: &Cluster, fakes: &[FakeNode]) -> Vec<(String, Option<Value>)> {
    let members = cluster.members.iter().map(|member| member.id);
    let nodes = members.chain(fakes.iter().map(|fake| fake.id.as_str()));
    nodes.map(|node| (node.to_owned(), fake_nodes::order(cluster, node))).collect()
}

/// Adds one Node without a machine to each group of workers.
fn join(cluster: &Cluster, numbers: [u8; 2]) -> Vec<FakeNode> {
    let authority = cluster.control_plane().read("/srv/kubernetes/ca.crt");
    let fakes: Vec<FakeNode> = [NODES, BATCH]
        .into_iter()
        .zip(numbers)
        .map(|(group, number)| FakeNode::join(cluster, &authority, group, number))
        .collect();
    fake_nodes::are_labelled(cluster, &fakes);
    fakes
}

pub fn boot_configs(cluster: &Cluster) -> Vec<String> {
    cluster.members.iter().map(|member| member.machine.read(BOOT_CONFIG)).collect()
}

/// Changes `maxPods` of all kubelets in the cluster spec, and writes the configurations of all groups.
pub fn change_max_pods(cluster: &Cluster, max_pods: &str) {
    let change =
        format!("{{spec: {{kubelet: {{maxPods: {max_pods}}}, masterKubelet: {{maxPods: {max_pods}}}}}}}");
    cluster.store.merge("cluster-completed.spec", &change);
    update(cluster);
}

/// Writes the configurations of all groups as `kops update cluster --yes` does.
pub fn update(cluster: &Cluster) {
    for member in &cluster.members {
        cluster.store.update(member.group);
    }
}

/// The hash of a group's current configuration.
pub fn hash_of(cluster: &Cluster, group: &str) -> String {
    let boot_config = cluster.store.update(group);
    boot_config.rsplit_once("NodeupConfigHash: ").unwrap().1.trim().to_owned()
}

pub fn fleet(cluster: &Cluster, arguments: &[&str]) -> Ended {
    let command = [&[cluster.program, "fleet"], arguments, &["--kubeconfig", KUBECONFIG]].concat();
    cluster.control_plane().try_run(&command)
}

fn rollout(cluster: &Cluster, arguments: &[&str]) -> Ended {
    fleet(cluster, &[&["rollout"], arguments].concat())
}

#[track_caller]
pub fn started(cluster: &Cluster, arguments: &[&str]) {
    let ended = rollout(cluster, arguments);
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

pub fn status(cluster: &Cluster) -> Value {
    let ended = rollout(cluster, &["status", "-o", "json"]);
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

/// The status of the rollout. `None` if the API server does not answer, for example while the control plane changes.
pub fn try_status(cluster: &Cluster) -> Option<Value> {
    serde_json::from_str(&rollout(cluster, &["status", "-o", "json"]).stdout).ok()
}

/// Waits until the rollout is in this phase. Fails if the rollout ends in a different phase.
#[track_caller]
pub fn until_phase(cluster: &Cluster, phase: &str) {
    until_phase_after(cluster, phase, &[]);
}

/// Waits until the rollout is in `phase`. Until then it may be in one of the phases `before`. Fails if it ends in a different phase.
#[track_caller]
pub fn until_phase_after(cluster: &Cluster, phase: &str, before: &[&str]) {
    until_status(cluster, &format!("is {phase}"), |status| {
        let now = status["status"]["phase"].as_str().unwrap();
        let is_expected = now == phase || before.contains(&now);
        assert!(is_expected || !["done", "stopped", "aborted"].contains(&now), "{status:#}");
        now == phase
    });
}

#[track_caller]
pub fn until_status(cluster: &Cluster, what: &str, is_so: impl Fn(&Value) -> bool) {
    let mut seen = Vec::new();
    loop {
        // A rollout to many nodes takes longer than the timeout of one wait. So each time a node begins or ends its change, a new
        // wait starts.
        let (is_over, now) =
            cluster.control_plane().until(&format!("the rollout goes on, or {what}"), || {
                let status = try_status(cluster)?;
                // Before the controller has begun the rollout, the status has no phase.
                status["status"]["phase"].as_str()?;
                let (is_over, progress) = (is_so(&status), progress(&status));
                (is_over || progress != seen).then_some((is_over, progress))
            });
        if is_over {
            return;
        }
        seen = now;
    }
}

/// For each group, three values from the status: the number of nodes that are done, the names of the nodes that are changing, and the
/// number of failed nodes.
fn progress(status: &Value) -> Vec<Value> {
    groups(status)
        .flat_map(|group| ["done", "updating", "failed"].map(|field| group[field].clone()))
        .collect()
}

fn groups(status: &Value) -> impl Iterator<Item = &Value> {
    status["status"]["groups"].as_object().unwrap().values()
}
