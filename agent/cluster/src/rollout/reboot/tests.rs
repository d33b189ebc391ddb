#![allow(clippy::unwrap_used)]
mod blocked;
mod policy;
mod withdrawn;

use proptest::prelude::*;
use time::Duration;

use super::super::Phase;
use super::super::testing::Cluster;
use super::super::wanted::{DrainMode, MaxUnavailable};
use super::*;
use crate::fleet::RebootReport;

/// A cluster in which all nodes of these groups reboot.
fn cluster(groups: &[(&str, usize)]) -> Cluster {
    let mut cluster = Cluster::new(groups);
    let boots = cluster.members.iter().map(|member| (member.node.clone(), member.boot_id.clone()));
    cluster.rollout.reboot = Some(boots.collect());
    cluster
}

/// Reboots a node, unless it has already rebooted for its order. Returns whether the node reboots.
fn reboot(cluster: &mut Cluster, node: &str) -> bool {
    let member = cluster.of_name(node);
    let order = Order::read(&member.order).unwrap();
    let reboots = member.boot_id == order.boot_id;
    if reboots {
        member.boot_id += "'";
        member.requires_reboot = false;
    }
    reboots
}

fn answer(cluster: &mut Cluster, node: &str, problem: &str) {
    let member = cluster.of_name(node);
    member.outcome = Some(Order::read(&member.order).unwrap().outcome(problem));
}

fn pass_timeout(cluster: &mut Cluster) {
    cluster.now += Duration::seconds(i64::from(cluster.rollout.node_timeout) + 1);
}

#[test]
fn nodes_reboot_one_after_another_and_control_planes_come_first() {
    let mut cluster = cluster(&[("a", 2), ("masters", 2)]);
    for node in ["masters-00", "masters-01", "a-00", "a-01"] {
        assert_eq!(cluster.step(), [node]);
        let order = Order::read(&cluster.of_name(node).order).unwrap();
        assert_eq!((order.boot_id.as_str(), order.drain), ("boot-0", DrainMode::Auto));
        assert_eq!(cluster.step(), [""; 0], "the order stays as it was written");
        cluster.of_name(node).is_ready = false;
        assert_eq!(cluster.step(), [""; 0]);
        reboot(&mut cluster, node);
        cluster.of_name(node).is_ready = true;
        assert_eq!(cluster.step(), [""; 0], "it is still cordoned");
        answer(&mut cluster, node, "");
    }
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.phase, Phase::Done);
}

#[test]
fn an_answer_without_another_boot_proves_nothing() {
    let mut cluster = cluster(&[("a", 2)]);
    assert_eq!(cluster.step(), ["a-00"]);
    answer(&mut cluster, "a-00", "");
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.groups["a"].updating, ["a-00"]);
    pass_timeout(&mut cluster);
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.phase, Phase::Stopped);
    assert!(cluster.status.groups["a"].failures["a-00"].contains("does not show the result"));
}

#[test]
fn a_node_that_does_not_come_back_stops_its_group_until_the_operator_resumes() {
    let mut cluster = cluster(&[("a", 2)]);
    assert_eq!(cluster.step(), ["a-00"]);
    reboot(&mut cluster, "a-00");
    cluster.of_name("a-00").is_ready = false;
    pass_timeout(&mut cluster);
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.phase, Phase::Stopped);
    // The node is Ready only after its timeout, and an operator resumes the rollout. The node does not reboot again.
    cluster.of_name("a-00").is_ready = true;
    answer(&mut cluster, "a-00", "");
    cluster.rollout.attempt = 2;
    assert_eq!(cluster.step(), ["a-01"]);
}

#[test]
fn a_failed_node_that_a_person_reboots_has_failed_no_longer() {
    for problem in ["a pod stays", ""] {
        let mut cluster = cluster(&[("a", 2)]);
        assert_eq!(cluster.step(), ["a-00"]);
        match problem {
            // The node reports no outcome before its timeout.
            "" => pass_timeout(&mut cluster),
            _ => answer(&mut cluster, "a-00", problem),
        }
        assert_eq!(cluster.step(), [""; 0]);
        assert_eq!(cluster.status.phase, Phase::Stopped);
        assert_eq!(cluster.status.failed_in["a-00"], "boot-0");
        cluster.of_name("a-00").is_ready = false;
        cluster.of_name("a-00").boot_id = "boot-1".into();
        assert_eq!(cluster.step(), [""; 0]);
        assert_eq!(cluster.status.phase, Phase::Stopped, "its kubelet is not Ready yet");
        cluster.of_name("a-00").is_ready = true;
        assert_eq!(cluster.step(), ["a-01"]);
        assert_eq!((cluster.status.groups["a"].failed, cluster.status.groups["a"].done), (0, 1));
        assert!(cluster.status.failed.is_empty() && cluster.status.failed_in.is_empty());
    }
}

#[test]
fn a_node_that_fails_after_its_reboot_recovers_only_by_another_one() {
    let mut cluster = cluster(&[("a", 2)]);
    assert_eq!(cluster.step(), ["a-00"]);
    reboot(&mut cluster, "a-00");
    answer(&mut cluster, "a-00", "it stays cordoned");
    for _ in 0..3 {
        assert_eq!(cluster.step(), [""; 0]);
        assert_eq!(cluster.status.phase, Phase::Stopped);
    }
    cluster.of_name("a-00").boot_id = "boot-2".into();
    assert_eq!(cluster.step(), ["a-01"]);
}

#[test]
fn a_node_that_has_rebooted_by_itself_gets_no_order() {
    let mut cluster = cluster(&[("a", 2)]);
    cluster.of_name("a-00").boot_id = "boot-1".into();
    cluster.rollout.reboot.as_mut().unwrap().remove("a-01");
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.phase, Phase::Done);
}

#[test]
fn blockers_are_checked_before_a_node_begins_and_keep_it_from_a_reboot() {
    let mut cluster = cluster(&[("a", 2)]);
    cluster.rollout.blocked_by = Blockers { pods: "app=batch".into(), ..Blockers::default() };
    let decide = |cluster: &Cluster| {
        let Cluster { rollout, members, seen, status, now, .. } = cluster;
        super::super::decide(rollout, members, seen, status, 0, *now)
    };
    assert_eq!(decide(&cluster).blockers_to_check.as_ref(), Some(&cluster.rollout.blocked_by));
    cluster.seen.blocked = Some(Blocked { all: Some("it burns".into()), ..Blocked::default() });
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.waits_for, "it burns");
    let nodes = [("a-00".to_owned(), "its pod runs".to_owned())];
    cluster.seen.blocked = Some(Blocked { all: None, nodes: nodes.clone().into() });
    assert_eq!(cluster.step(), ["a-01"]);
    cluster.seen.blocked = None;
    assert!(decide(&cluster).blockers_to_check.is_some(), "another node may begin");
    cluster.seen.blocked = Some(Blocked { all: Some("it burns".into()), nodes: nodes.into() });
    reboot(&mut cluster, "a-01");
    answer(&mut cluster, "a-01", "");
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!((cluster.status.groups["a"].done, cluster.status.phase), (1, Phase::Running), "it finishes");
    cluster.seen.blocked.as_mut().unwrap().all = None;
    cluster.step();
    assert_eq!(cluster.status.waits_for, "the nodes: a-00: its pod runs");
    cluster.seen.blocked = Some(Blocked::default());
    assert_eq!(cluster.step(), ["a-00"]);
}

#[test]
fn reasons_that_block_reboots_are_short_in_the_status() {
    let mut cluster = cluster(&[("a", 2)]);
    cluster.rollout.blocked_by = Blockers { pods: "app=batch".into(), ..Blockers::default() };
    let long = "it burns\n".repeat(1 << 17);
    let nodes = ["a-00", "a-01"].map(|node| (node.to_owned(), long.clone()));
    for blocked in [
        Blocked { all: Some(long.clone()), nodes: BTreeMap::new() },
        Blocked { all: None, nodes: nodes.into() },
    ] {
        cluster.seen.blocked = Some(blocked);
        cluster.step();
        let text = serde_json::to_string(&cluster.status).unwrap();
        assert!(text.contains("it burns") && text.len() < 4096, "{} bytes", text.len());
        assert!(!cluster.status.waits_for.contains('\n'));
    }
    assert_eq!(cluster.status.groups["a"].held.len(), 2);
}

#[test]
fn control_planes_that_wait_do_not_hold_workers() {
    let mut cluster = cluster(&[("masters", 2), ("apiservers", 1), ("a", 2), ("b", 1)]);
    cluster.rollout.canary = 1;
    cluster.rollout.blocked_by = Blockers { pods: "app=batch".into(), ..Blockers::default() };
    let held = ["masters-00", "masters-01", "apiservers-00", "a-00", "a-01"];
    let nodes = held.map(|node| (node.to_owned(), "its pod runs".to_owned()));
    cluster.seen.blocked = Some(Blocked { all: None, nodes: nodes.clone().into() });
    cluster.of_name("masters-01").is_ready = false;
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.waits_for, "the control plane masters-01 is not Ready");
    cluster.of_name("masters-01").is_ready = true;
    assert_eq!(cluster.step(), ["b-00"]);
    reboot(&mut cluster, "b-00");
    answer(&mut cluster, "b-00", "");
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.waits_for, "masters-00: its pod runs");
    // Now no pod blocks the control plane masters-00, so it reboots next.
    let nodes: BTreeMap<String, String> = nodes.into_iter().skip(1).collect();
    cluster.seen.blocked = Some(Blocked { all: None, nodes: nodes.clone() });
    assert_eq!(cluster.step(), ["masters-00"]);
    cluster.seen.blocked = Some(Blocked { all: None, nodes: nodes.into_iter().take(2).collect() });
    assert_eq!(cluster.step(), [""; 0], "a control plane is at work");
    answer(&mut cluster, "masters-00", "a pod stays");
    assert_eq!(cluster.step(), [""; 0], "a control plane has failed");
}

#[test]
fn a_query_needs_a_service() {
    let blockers = |alerts: &str, prometheus: &str| Blockers {
        pods: String::new(),
        alerts: alerts.into(),
        prometheus: prometheus.into(),
    };
    assert_eq!(blockers("", "").service(), Ok(None));
    assert_eq!(blockers("ALERTS", "monitoring/web:9090").service(), Ok(Some(("monitoring", "web:9090"))));
    assert!(blockers("ALERTS", "m/https:web:9090").service().is_ok());
    for wrong in ["", "web:9090", "/web:9090", "m/web", "m/../x:1", "m/web:1/x", "m/web:1?x"] {
        assert!(blockers("ALERTS", wrong).service().is_err(), "{wrong}");
    }
}

#[test]
fn only_chosen_nodes_reboot() {
    let node = |name: &str, group: &str, boot_id: &str, reasons: &[&str]| SeenNode {
        name: name.into(),
        group: group.into(),
        boot_id: boot_id.into(),
        reboot: RebootReport::new("b1", &reasons.iter().map(|why| (*why).to_owned()).collect::<Vec<_>>())
            .value()
            .unwrap(),
        ..SeenNode::default()
    };
    let nodes = [
        node("a-required", "a", "b1", &["libc6"]),
        node("a-not", "a", "b1", &[]),
        node("a-since", "a", "b2", &["libc6"]),
        node("a-unknown", "a", "", &["libc6"]),
        node("b-required", "b", "b1", &["libc6"]),
        node("of-no-group", "", "b1", &["libc6"]),
    ];
    let chosen = |groups: &[&str], only_required| {
        let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        boots_to_end(&nodes, &groups, only_required).0.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(chosen(&[], true), ["a-required", "b-required"]);
    assert_eq!(chosen(&["a"], true), ["a-required"]);
    assert_eq!(chosen(&["a"], false), ["a-not", "a-required", "a-since"]);
}

#[derive(Clone, Debug)]
enum Happens {
    Reboots(usize),
    /// A node that has rebooted reports success.
    Answers(usize),
    Fails(usize),
    Turns(usize),
    /// A kubelet removes the order from its own Node.
    Forgets(usize),
    Resumes,
    Passes,
    /// An alert begins or ends.
    Burns,
    /// A run begins to drain a node, or ends its drain.
    Drains(usize),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        6 => any::<usize>().prop_map(Happens::Reboots),
        6 => any::<usize>().prop_map(Happens::Answers),
        1 => any::<usize>().prop_map(Happens::Fails),
        1 => any::<usize>().prop_map(Happens::Turns),
        1 => any::<usize>().prop_map(Happens::Forgets),
        1 => Just(Happens::Resumes),
        2 => Just(Happens::Passes),
        2 => Just(Happens::Burns),
        2 => any::<usize>().prop_map(Happens::Drains),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_each_node_reboots_at_most_once_and_few_at_a_time(
        (masters, a, b) in (1usize..4, 1usize..8, 0usize..4),
        limit in 1u32..4,
        events in prop::collection::vec(happens(), 0..80),
    ) {
        let mut cluster = cluster(&[("masters", masters), ("a", a), ("b", b)]);
        let mut rebooted = BTreeMap::new();
        cluster.rollout.max_unavailable = MaxUnavailable::Nodes(limit);
        cluster.seen.blocked = Some(Blocked::default());
        for event in events {
            cluster.step();
            for (group, of_group) in &cluster.status.groups {
                let most = if group == "masters" { 1 } else { limit as usize };
                prop_assert!(of_group.updating.len() <= most, "{of_group:?}");
            }
            for order in cluster.status.ordered.values() {
                prop_assert_eq!(order.boot_id.as_str(), "boot-0");
            }
            let is_at_work = |member: &&Member| {
                Order::read(&member.order)
                    .is_some_and(|order| member.outcome.as_ref().is_none_or(|outcome| !outcome.is_of(&order)))
            };
            let is_blocked = cluster.seen.blocked.as_ref().is_some_and(|blocked| blocked.all.is_some());
            for member in cluster.members.iter().filter(is_at_work) {
                let drains = Order::read(&member.order).is_some_and(|order| drains_for(member, &order));
                let is_begun = drains || !member.is_ready || member.boot_id != "boot-0";
                prop_assert!(is_begun || !is_blocked, "{member:?}");
            }
            let at_work: Vec<String> =
                cluster.members.iter().filter(is_at_work).map(|member| member.node.clone()).collect();
            let pick = |number: usize| at_work.get(number % at_work.len().max(1)).cloned();
            let count = cluster.members.len();
            match event {
                Happens::Reboots(number) => {
                    if let Some(node) = pick(number) && reboot(&mut cluster, &node) {
                        *rebooted.entry(node).or_insert(0) += 1;
                    }
                }
                Happens::Answers(number) => {
                    if let Some(node) = pick(number).filter(|node| rebooted.contains_key(node)) {
                        answer(&mut cluster, &node, "");
                    }
                }
                Happens::Fails(number) => {
                    if let Some(node) = pick(number) {
                        answer(&mut cluster, &node, "a pod stays");
                    }
                }
                Happens::Turns(number) => {
                    let member = &mut cluster.members[number % count];
                    member.is_ready = !member.is_ready;
                }
                Happens::Forgets(number) => cluster.members[number % count].order.clear(),
                Happens::Resumes => cluster.rollout.attempt += 1,
                Happens::Passes => cluster.now += Duration::seconds(60),
                Happens::Burns => {
                    let all = (!is_blocked).then(|| "it burns".to_owned());
                    cluster.seen.blocked = Some(Blocked { all, ..Blocked::default() });
                }
                Happens::Drains(number) => {
                    let now = cluster.now;
                    let member = &mut cluster.members[number % count];
                    member.cordoned_since = member.cordoned_since.is_none().then_some(now);
                }
            }
            prop_assert!(rebooted.values().all(|times| *times <= 1), "{rebooted:?}");
        }
        // Once all machines are back and an operator resumes, every node reboots, and the rollout is done.
        cluster.rollout.attempt += 1;
        cluster.seen.blocked = Some(Blocked::default());
        for _ in 0..100 {
            for member in &mut cluster.members {
                member.is_ready = true;
            }
            cluster.step();
            for node in cluster.status.ordered.keys().cloned().collect::<Vec<_>>() {
                if !cluster.of_name(&node).order.is_empty() {
                    if reboot(&mut cluster, &node) {
                        *rebooted.entry(node.clone()).or_insert(0) += 1;
                    }
                    answer(&mut cluster, &node, "");
                }
            }
        }
        prop_assert_eq!(cluster.status.phase, Phase::Done, "{:?}", cluster.status);
        prop_assert!(rebooted.len() == cluster.members.len() && rebooted.values().all(|times| *times == 1), "{rebooted:?}");
    }
}
