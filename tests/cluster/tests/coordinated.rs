//! Reboots that an operator starts with one command. The nodes wait for a window, are drained, reboot one after another, and take pods
//! again.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use kops_agent_tests::example_store::{CONTROL_PLANE, NODES};

use crate::cluster::{BATCH, Cluster, Member, has_condition};
use crate::disturbed::slots_are_free;
use crate::requests::Requests;
use crate::witness::Witness;
use crate::workload::DRAINED_PODS;
use crate::{fake_nodes, ordered, workload};

const OPEN: &str = "Mon-Sun 00:00-24:00 UTC";

/// While the rollout's window is closed, no node is ordered to reboot. In an open window, each worker is drained and reboots once, and the
/// control plane does not reboot. At most one worker of a group has a slot, and no worker is cordoned without a slot. No request to a
/// workload with a PodDisruptionBudget fails.
pub fn workers_reboot_in_a_window(cluster: &Cluster) {
    let workers = [NODES, BATCH].map(|group| cluster.of_group(group));
    let boots = || cluster.members.iter().map(boot_id).collect::<Vec<_>>();
    let orders = || workers.map(|worker| fake_nodes::order(cluster, worker.id));
    let (before, ordered_before) = (boots(), orders());
    reboot(cluster, &closed_window());
    cluster.control_plane().until("the rollout waits for its window", || {
        let status = ordered::try_status(cluster)?;
        status["status"]["waitsFor"].as_str()?.contains("its window opens at").then_some(())
    });
    ordered::started(cluster, &["abort"]);
    ordered::until_phase(cluster, "aborted");
    assert_eq!(orders(), ordered_before, "a node got an order outside of the window");
    assert_eq!(boots(), before, "a machine has rebooted outside of the window");

    let reported = workers.map(|worker| reported_boots(cluster, worker));
    let witness = Witness::begins(cluster);
    workload::guard_for_drains(cluster);
    witness.sees_guarded(DRAINED_PODS);
    let requests = Requests::begin(cluster.of_group(CONTROL_PLANE), cluster, workload::GUARDED);
    let [node, batch] = workers.map(|worker| &worker.machine);
    node.is_rebooted_by(|| batch.is_rebooted_by(|| reboot(cluster, OPEN)));
    ordered::until_phase(cluster, "done");
    requests.were_all_answered();
    for member in &cluster.members {
        cluster.until(&format!("{} is Ready and takes pods", member.id), "node", member.id, |node| {
            has_condition(node, "Ready") && node["spec"]["unschedulable"].is_null()
        });
    }
    slots_are_free(cluster);
    let states = witness.states(DRAINED_PODS);
    states.had_one_holder(&[NODES, BATCH]);
    states.are_of_drains();
    witness.ends();
    workload::unguard(cluster);

    assert_eq!(boot_id(cluster.of_group(CONTROL_PLANE)), before[0], "the control plane has rebooted");
    for (worker, before) in workers.into_iter().zip(reported) {
        cluster.control_plane().until(&format!("kubelet of {} reports its boot", worker.id), || {
            (reported_boots(cluster, worker) != before).then_some(())
        });
        let now = reported_boots(cluster, worker);
        let new: Vec<&String> = now.difference(&before).collect();
        assert_eq!(new.len(), 1, "{} has rebooted more than once: {now:#?}", worker.id);
        assert!(new[0].contains(boot_id(worker).trim()), "{now:#?}");
    }
}

/// Starts a rollout that reboots all workers, but only while `window` is open.
fn reboot(cluster: &Cluster, window: &str) {
    let groups = ["reboot", "--instance-group", NODES, "--instance-group", BATCH, "--window", window];
    let ended = ordered::fleet(cluster, &[&groups[..], &ordered::CHECK_PODS_AFTER].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

/// The boot ID that kubelet and kops-agent read. It changes with each start of the machine's container.
fn boot_id(member: &Member) -> String {
    member.machine.read("/proc/sys/kernel/random/boot_id")
}

/// The messages of the Events in which kubelet has reported a reboot. Each message contains a boot ID.
fn reported_boots(cluster: &Cluster, member: &Member) -> BTreeSet<String> {
    let selector = format!("--field-selector=reason=Rebooted,involvedObject.name={}", member.id);
    let messages = r#"--output=jsonpath={range .items[*]}{.message}{"\n"}{end}"#;
    let said = cluster.run_kubectl(&["get", "events", "--all-namespaces", &selector, messages]);
    said.lines().map(str::to_owned).collect()
}

/// A window that opens in three days.
fn closed_window() -> String {
    let days = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 86_400;
    // `days` counts from 1970-01-01, a Thursday. So the first 3 is the index of Thursday. The second 3 means three days from now.
    let day = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"][usize::try_from(days + 3 + 3).unwrap() % 7];
    format!("{day} 00:00-01:00 UTC")
}
