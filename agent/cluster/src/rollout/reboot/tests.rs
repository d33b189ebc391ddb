#![allow(clippy::unwrap_used)]
use proptest::prelude::*;
use time::Duration;

use super::super::testing::Cluster;
use super::super::wanted::{DrainMode, MaxUnavailable};
use super::super::{Phase, PolicyStatus};
use super::*;
use crate::fleet::RebootReport;

/// A cluster in which all nodes of these groups reboot.
fn cluster(groups: &[(&str, usize)]) -> Cluster {
    let mut cluster = Cluster::new(groups);
    let boots = cluster.members.iter().map(|member| (member.node.clone(), member.boot_id.clone()));
    cluster.rollout.reboot = Some(boots.collect());
    cluster
}

/// The node carries its order out until its kubelet runs again, unless it has done so. Returns whether it reboots.
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
    // It comes back late, and an operator resumes. It does not reboot again.
    cluster.of_name("a-00").is_ready = true;
    answer(&mut cluster, "a-00", "");
    cluster.rollout.attempt = 2;
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
        super::super::decide(&cluster.rollout, &cluster.members, &cluster.seen, &cluster.status, cluster.now)
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
        boots_to_end(&nodes, &groups, only_required).into_keys().collect::<Vec<_>>()
    };
    assert_eq!(chosen(&[], true), ["a-required", "b-required"]);
    assert_eq!(chosen(&["a"], true), ["a-required"]);
    assert_eq!(chosen(&["a"], false), ["a-not", "a-required", "a-since"]);
}

/// Decides by the policy and writes. Returns the nodes that got an order.
fn step_by_policy(cluster: &mut Cluster) -> Vec<String> {
    let actions = cluster.step_all(None);
    cluster.policy = actions.policy;
    actions.orders.into_keys().collect()
}

#[test]
fn the_policy_reboots_nodes_that_require_it_once_their_configurations_are_taken() {
    let mut cluster = Cluster::new(&[("a", 2), ("b", 1), ("masters", 1)]);
    let policy = "cluster: {checkPodsAfter: 0, reboot: automatic}\ngroups: {a: {follow: automatic}, b: {reboot: manual}}";
    cluster.policy = PolicyStatus::default().with_policy(policy);
    assert_eq!(cluster.policy.refused, "");
    cluster.of_name("masters-00").runs = Some("b=".into());
    cluster.of_name("a-01").runs = Some("b=".into());
    for node in ["a-01", "b-00", "masters-00"] {
        cluster.of_name(node).requires_reboot = true;
    }
    // A configuration comes first.
    assert_eq!(step_by_policy(&mut cluster), ["a-00"]);
    assert_eq!(step_by_policy(&mut cluster), [""; 0]);
    cluster.act("a-00", "");
    for node in ["masters-00", "a-01"] {
        assert_eq!(step_by_policy(&mut cluster), [node]);
        assert_eq!(Order::read(&cluster.of_name(node).order).unwrap().boot_id, "boot-0");
        assert!(cluster.policy.is_active() && cluster.policy.reboots.is_at_work());
        reboot(&mut cluster, node);
        // The report of the new boot comes before the answer.
        assert_eq!(step_by_policy(&mut cluster), [""; 0]);
        answer(&mut cluster, node, "");
    }
    assert_eq!(step_by_policy(&mut cluster), [""; 0], "the group b is manual");
    assert_eq!(cluster.policy.reboots.phase, Phase::Done);

    // It requires a reboot again.
    cluster.now += Duration::seconds(1);
    cluster.of_name("a-01").requires_reboot = true;
    assert_eq!(step_by_policy(&mut cluster), ["a-01"]);
    assert_eq!(Order::read(&cluster.of_name("a-01").order).unwrap().boot_id, "boot-0'");
    answer(&mut cluster, "a-01", "a pod stays");
    assert_eq!(step_by_policy(&mut cluster), [""; 0]);
    assert_eq!(cluster.policy.reboots.phase, Phase::Stopped);
    let PolicyStatus { status, reboots, .. } = &cluster.policy;
    cluster.policy_state = cluster.policy_state.resumed(&status.rollout, &reboots.rollout);
    assert_eq!(step_by_policy(&mut cluster), ["a-01"]);
    // Nobody reboots by the policy any more. The node finishes.
    cluster.policy = cluster.policy.with_policy("");
    assert!(cluster.policy.is_active());
    reboot(&mut cluster, "a-01");
    answer(&mut cluster, "a-01", "");
    assert_eq!(step_by_policy(&mut cluster), [""; 0]);
    assert!(!cluster.policy.is_active());
    step_by_policy(&mut cluster);
    assert_eq!(cluster.policy.reboots, Status::default());
}

#[test]
fn an_operators_rollout_waits_for_nodes_that_reboot_by_the_policy() {
    let mut cluster = Cluster::new(&[("a", 2)]);
    cluster.policy = PolicyStatus::default().with_policy("cluster: {checkPodsAfter: 0, reboot: automatic}");
    cluster.of_name("a-01").requires_reboot = true;
    assert_eq!(step_by_policy(&mut cluster), ["a-01"]);
    let rollout = cluster.rollout.clone();
    let actions = cluster.step_all(Some(&rollout));
    assert_eq!(actions.orders.len(), 0);
    assert_eq!(actions.status.unwrap().waits_for, "nodes that are at work by the policy: a-01");
    reboot(&mut cluster, "a-01");
    answer(&mut cluster, "a-01", "");
    cluster.policy = cluster.step_all(Some(&rollout)).policy;
    cluster.of_name("a-00").requires_reboot = true;
    let actions = cluster.step_all(Some(&rollout));
    let order = &actions.orders["a-00"];
    assert_eq!((order.rollout.as_str(), order.boot_id.as_str()), ("r-1", ""), "the rollout comes first");
}

#[derive(Clone, Debug)]
enum Happens {
    Reboots(usize),
    /// A node whose boot has ended answers.
    Answers(usize),
    Fails(usize),
    Turns(usize),
    /// A kubelet removes the order from its own Node.
    Forgets(usize),
    Resumes,
    Passes,
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
            }
            prop_assert!(rebooted.values().all(|times| *times <= 1), "{rebooted:?}");
        }
        // Once all machines are back and an operator resumes, every node reboots, and the rollout is done.
        cluster.rollout.attempt += 1;
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
