#![allow(clippy::unwrap_used)]
mod api_servers;
mod canaries;
mod limits;

use std::collections::BTreeSet;

use kops_agent_spec::failure::Kind;
use proptest::prelude::*;

use time::Duration;
use time::macros::datetime;

use super::super::pods::Container;
use super::super::testing::{BEGIN, Cluster};
use super::super::wanted::MaxUnavailable;
use super::*;

#[test]
fn control_planes_come_first_then_api_servers_then_canaries_then_the_rest() {
    let mut cluster = Cluster::new(&[("a", 3), ("b", 2), ("apiservers", 1), ("masters", 2)]);
    cluster.rollout.canary = 1;
    let steps = cluster.run();
    let expected: [&[&str]; 6] = [
        &["masters-00"],
        &["masters-01"],
        &["apiservers-00"],
        &["a-00", "b-00"],
        &["a-01", "b-01"],
        &["a-02"],
    ];
    assert_eq!(steps, expected);
    assert_eq!(cluster.status.phase, Phase::Done);
    assert_eq!(cluster.status.groups["a"].done, 3);
    assert_eq!(cluster.status.ordered, BTreeMap::new());
}

#[test]
fn a_canary_that_fails_stops_everything_until_the_operator_resumes() {
    let mut cluster = Cluster::new(&[("a", 3), ("b", 2)]);
    cluster.rollout.canary = 1;
    assert_eq!(cluster.step(), ["a-00", "b-00"]);
    cluster.act("a-00", "kubelet is dead");
    cluster.act("b-00", "");
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.phase, Phase::Stopped);
    assert_eq!(cluster.status.groups["a"].failures["a-00"], "kubelet is dead");
    assert_eq!(cluster.status.groups["b"].failed, 0);
    assert!(
        cluster.status.waits_for.contains("group a is paused, because a-00 has failed"),
        "{:?}",
        cluster.status
    );
    // A failed node does not retry by itself.
    cluster.now += Duration::days(1);
    assert_eq!(cluster.step(), [""; 0]);

    // A corrected spec has a new hash. Only the nodes of this group must change again.
    cluster.seen.current.insert("a".into(), Ok("c=".into()));
    cluster.rollout.attempt = 2;
    let steps = cluster.run();
    assert_eq!(steps[0], ["a-00"]);
    assert_eq!(cluster.status.phase, Phase::Done);
}

#[test]
fn a_node_at_work_counts_after_a_resumption_and_a_changed_spec() {
    let mut cluster = Cluster::new(&[("a", 4)]);
    cluster.rollout.max_unavailable = MaxUnavailable::Nodes(2);
    assert_eq!(cluster.step(), ["a-00", "a-01"]);
    cluster.act("a-00", "kubelet is dead");
    cluster.seen.current.insert("a".into(), Ok("c=".into()));
    assert_eq!(cluster.step(), [""; 0], "a changed spec alone resumes nothing");
    cluster.rollout.attempt = 2;
    assert_eq!(cluster.step(), ["a-00"], "a-01 is still at work");
    cluster.act("a-01", "");
    assert_eq!(cluster.step(), ["a-01"], "it took the configuration before the change");
    let order = Order::read(&cluster.of_name("a-01").order).unwrap();
    assert_eq!((order.attempt, order.hash.as_str()), (2, "c="));
}

#[test]
fn a_failure_among_the_rest_pauses_its_group_only() {
    let mut cluster = Cluster::new(&[("a", 3), ("b", 3)]);
    assert_eq!(cluster.step(), ["a-00", "b-00"]);
    cluster.act("a-00", "kubelet is dead");
    cluster.act("b-00", "");
    assert_eq!(cluster.step(), ["b-01"]);
    cluster.act("b-01", "");
    assert_eq!(cluster.step(), ["b-02"]);
    cluster.act("b-02", "");
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!((cluster.status.phase, cluster.status.groups["a"].waiting), (Phase::Stopped, 2));
}

#[test]
fn no_control_plane_begins_while_another_is_not_ready() {
    let mut cluster = Cluster::new(&[("masters", 3), ("a", 1)]);
    assert_eq!(cluster.step(), ["masters-00"]);
    cluster.act("masters-00", "");
    cluster.of_name("masters-00").is_ready = false;
    assert_eq!(cluster.step(), [""; 0], "it restarts");
    cluster.of_name("masters-00").is_ready = true;
    cluster.of_name("masters-02").is_ready = false;
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.waits_for, "the control plane masters-02 is not Ready");
    cluster.of_name("masters-02").is_ready = true;
    assert_eq!(cluster.step(), ["masters-01"]);
}

#[test]
fn workers_wait_for_control_planes_that_are_no_part_of_the_rollout() {
    let mut cluster = Cluster::new(&[("masters", 1), ("a", 1)]);
    cluster.rollout.instance_groups = ["a".to_owned()].into();
    assert_eq!(cluster.step(), [""; 0]);
    assert!(cluster.status.waits_for.contains("start a rollout of all groups"), "{:?}", cluster.status);
    assert!(!cluster.status.groups.contains_key("masters"));
    cluster.of_name("masters-00").runs = Some("b=".into());
    assert_eq!(cluster.step(), ["a-00"]);
}

#[test]
fn a_node_without_a_result_fails_and_one_that_rewrites_its_order_gains_no_time() {
    let mut cluster = Cluster::new(&[("a", 2)]);
    assert_eq!(cluster.step(), ["a-00"]);
    for _ in 0..3 {
        cluster.now += Duration::seconds(200);
        cluster.of_name("a-00").order = String::new();
        assert_eq!(cluster.step(), ["a-00"], "the same order is written again");
        assert_eq!(Order::read(&cluster.of_name("a-00").order).unwrap().at, "1970-01-01T00:00:00Z");
    }
    cluster.now += Duration::seconds(1);
    assert_eq!(cluster.step(), [""; 0]);
    assert!(
        cluster.status.groups["a"].failures["a-00"].contains("no result 10m after its order"),
        "{:?}",
        cluster.status
    );
}

#[test]
fn an_outcome_of_another_order_counts_for_nothing() {
    let mut cluster = Cluster::new(&[("a", 2)]);
    cluster.step();
    let order = Order::read(&cluster.of_name("a-00").order).unwrap();
    for lie in [
        Order { attempt: 2, ..order.clone() },
        Order { hash: "z=".into(), ..order.clone() },
        Order { rollout: "r-0".into(), ..order },
    ] {
        cluster.of_name("a-00").outcome = Some(lie.outcome(""));
        cluster.of_name("a-00").runs = Some("z=".into());
        assert_eq!(cluster.step(), [""; 0], "{lie:?}");
        assert_eq!(cluster.status.groups["a"].updating, ["a-00"]);
    }
}

#[test]
fn a_paused_rollout_orders_nothing_and_an_aborted_one_takes_orders_back() {
    let mut cluster = Cluster::new(&[("a", 3)]);
    assert_eq!(cluster.step(), ["a-00"]);
    cluster.rollout.state = State::Paused;
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!((cluster.status.phase, cluster.of_name("a-00").order.is_empty()), (Phase::Paused, false));
    cluster.rollout.state = State::Aborted;
    cluster.step();
    assert_eq!((cluster.status.phase, cluster.of_name("a-00").order.is_empty()), (Phase::Aborted, true));
    assert_eq!(cluster.status.ordered, BTreeMap::new());
}

#[test]
fn a_paused_rollout_is_not_done_by_configurations_that_may_have_changed() {
    let mut cluster = Cluster::new(&[("a", 1)]);
    assert_eq!(cluster.step(), ["a-00"]);
    cluster.rollout.state = State::Paused;
    cluster.seen.is_stale = true;
    cluster.act("a-00", "");
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.phase, Phase::Paused);
    cluster.seen.is_stale = false;
    cluster.seen.current.insert("a".into(), Ok("c=".into()));
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.phase, Phase::Paused, "the node has taken the configuration before");
    cluster.seen.current.insert("a".into(), Ok("b=".into()));
    cluster.step();
    assert_eq!(cluster.status.phase, Phase::Done);
}

#[test]
fn a_group_whose_configuration_is_unknown_gets_no_order_and_has_a_problem() {
    let mut cluster = Cluster::new(&[("a", 1), ("b", 1)]);
    cluster
        .seen
        .current
        .insert("a".into(), Err(Failure::new(Kind::StoreUnreachable, "the store does not answer")));
    cluster.run();
    assert_eq!(cluster.status.groups["a"].problem, "the store does not answer");
    assert_eq!((cluster.status.groups["a"].done, cluster.status.groups["b"].done), (0, 1));
    assert_eq!(cluster.status.phase, Phase::Running);
}

#[test]
fn no_node_begins_outside_the_windows_and_nodes_at_work_finish() {
    let mut cluster = Cluster::new(&[("masters", 1), ("a", 3)]);
    cluster.rollout.windows = vec!["Mon-Fri 22:00-05:00 Europe/Berlin".parse().unwrap()];
    // It is a Friday evening, before the window opens.
    cluster.now = datetime!(2026-11-27 21:50 +1);
    assert_eq!(cluster.step(), [""; 0]);
    let opens = "its window opens at 2026-11-27T21:00:00Z (Mon-Fri 22:00-05:00 Europe/Berlin)";
    assert_eq!(cluster.status.waits_for, format!("the group masters: {opens}"));
    assert_eq!(cluster.status.phase, Phase::Running);
    cluster.now = datetime!(2026-11-28 04:55 +1);
    assert_eq!(cluster.step(), ["masters-00"]);
    cluster.act("masters-00", "");
    assert_eq!(cluster.step(), ["a-00"]);
    cluster.now = datetime!(2026-11-28 05:00 +1);
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.groups["a"].updating, ["a-00"], "it finishes");
    cluster.act("a-00", "");
    assert_eq!(cluster.step(), [""; 0]);
    let opens = "its window opens at 2026-11-30T21:00:00Z (Mon-Fri 22:00-05:00 Europe/Berlin)";
    assert_eq!(cluster.status.waits_for, format!("the nodes: the group a: {opens}"));
    cluster.rollout.windows.push("Sat 00:00-24:00 UTC".parse().unwrap());
    assert_eq!(cluster.step(), ["a-01"]);
}

fn web(restarts: u32, is_looping: bool) -> Result<Containers, Failure> {
    let container = Container { restarts, is_looping, created: Some(BEGIN), ..Container::default() };
    Ok([("default/web-0/web".to_owned(), container)].into())
}

/// A cluster with one group of two nodes. `before` is the result of listing the first node's containers before its order. The node took the
/// configuration ten seconds ago.
fn settling(before: Result<Containers, Failure>) -> Cluster {
    let mut cluster = Cluster::new(&[("a", 2)]);
    cluster.rollout.check_pods_after = 60;
    cluster.containers.insert("a-00".into(), before);
    assert_eq!(cluster.step(), ["a-00"]);
    cluster.act("a-00", "");
    cluster.now += Duration::seconds(10);
    cluster
}

#[test]
fn pods_that_crash_more_than_before_are_a_failure_until_the_operator_resumes() {
    let mut cluster = settling(web(1, false));
    for _ in 0..6 {
        assert_eq!(cluster.step(), [""; 0]);
        assert_eq!((cluster.status.phase, cluster.listings["a-00"]), (Phase::Running, 1));
        cluster.now += Duration::seconds(10);
    }
    cluster.containers.insert("a-00".into(), web(4, true));
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!((cluster.status.phase, cluster.listings["a-00"]), (Phase::Running, 2), "it may recover");
    cluster.now += Duration::seconds(60);
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!((cluster.status.phase, cluster.listings["a-00"]), (Phase::Stopped, 3));
    let problem = &cluster.status.groups["a"].failures["a-00"];
    assert!(problem.contains("default/web-0/web is in CrashLoopBackOff"), "{problem}");
    // A new controller reads the status, and the pods have recovered.
    cluster.containers.insert("a-00".into(), web(4, false));
    let text = serde_json::to_string(&cluster.status).unwrap();
    cluster.status = serde_json::from_str(&text).unwrap();
    cluster.now += Duration::days(1);
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!((cluster.status.phase, cluster.listings["a-00"]), (Phase::Stopped, 3));
    cluster.rollout.attempt = 2;
    assert_eq!(cluster.step(), ["a-01"], "a-00 runs the configuration");
    assert_eq!(cluster.status.groups["a"].done, 1);
}

#[test]
fn a_node_whose_pods_crash_as_before_is_done_after_two_checks() {
    let mut cluster = settling(web(1, false));
    cluster.containers.insert("a-00".into(), web(2, false));
    cluster.step();
    cluster.now += Duration::seconds(60);
    assert_eq!(cluster.step(), ["a-01"]);
    assert_eq!((cluster.listings["a-00"], cluster.listings["a-01"]), (2, 1));
    assert!(!cluster.status.pods.contains_key("a-00"));
}

#[test]
fn the_time_begins_again_if_the_node_is_not_ready() {
    let mut cluster = settling(web(1, false));
    cluster.step();
    cluster.now += Duration::seconds(50);
    cluster.of_name("a-00").is_ready = false;
    assert_eq!(cluster.step(), [""; 0]);
    cluster.of_name("a-00").is_ready = true;
    cluster.step();
    cluster.now += Duration::seconds(50);
    assert_eq!(cluster.step(), [""; 0]);
    cluster.now += Duration::seconds(10);
    assert_eq!(cluster.step(), ["a-01"]);
}

#[test]
fn pods_that_cannot_be_listed_are_not_compared() {
    let mut cluster = settling(Err(Failure::new(Kind::ApiServerRefused, "forbidden")));
    assert_eq!(cluster.status.pods["a-00"].not_compared, "forbidden");
    assert_eq!(cluster.step(), ["a-01"]);
    // After the order, the controller retries a failed list of the node's pods until the node times out.
    let mut cluster = settling(web(1, false));
    cluster.step();
    cluster.containers.insert("a-00".into(), Err(Failure::new(Kind::ApiServerUnanswered, "no answer")));
    cluster.now += Duration::seconds(60);
    assert_eq!((cluster.step(), cluster.step()), (Vec::new(), Vec::new()));
    assert_eq!(cluster.listings["a-00"], 3);
    cluster.now += Duration::seconds(600);
    assert_eq!(cluster.step(), ["a-01"]);
}

#[test]
fn an_order_counts_while_the_configuration_is_unknown() {
    let mut cluster = Cluster::new(&[("a", 2)]);
    assert_eq!(cluster.step(), ["a-00"]);
    let known = cluster
        .seen
        .current
        .insert("a".into(), Err(Failure::new(Kind::StoreUnreachable, "the store does not answer")))
        .unwrap();
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.groups["a"].updating, ["a-00"]);
    cluster.act("a-00", "kubelet is dead");
    cluster.step();
    cluster.seen.current.insert("a".into(), known);
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!((cluster.status.phase, cluster.status.groups["a"].failed), (Phase::Stopped, 1));
}

#[test]
fn a_status_answers_one_attempt_only() {
    let mut cluster = Cluster::new(&[("a", 1)]);
    cluster.step();
    cluster.act("a-00", "kubelet is dead");
    cluster.step();
    assert!(cluster.status.is_in(Phase::Stopped, &cluster.rollout));
    cluster.rollout.attempt = 2;
    assert!(!cluster.status.answers(&cluster.rollout), "it is of the first attempt");
    assert!(!cluster.status.is_in(Phase::Stopped, &cluster.rollout));
    cluster.step();
    assert!(cluster.status.is_in(Phase::Running, &cluster.rollout));
}

#[test]
fn nodes_without_a_group_are_named_and_get_no_order() {
    let mut cluster = Cluster::new(&[("a", 1), ("stray", 12)]);
    for member in cluster.members.iter_mut().filter(|member| member.group == "stray") {
        member.group.clear();
    }
    assert_eq!(cluster.run(), [["a-00"]]);
    assert_eq!(cluster.status.phase, Phase::Done);
    let unlabelled = &cluster.status.unlabelled;
    assert_eq!((unlabelled.nodes, unlabelled.first.len()), (12, 10));
    assert_eq!(unlabelled.first[0], "stray-00");
}

#[test]
fn a_control_plane_without_a_group_counts_for_the_quorum_and_holds_the_workers() {
    let mut cluster = Cluster::new(&[("masters", 3), ("a", 1)]);
    let stray = cluster.of_name("masters-02");
    stray.group.clear();
    stray.is_ready = false;
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.waits_for, "the control plane masters-02 is not Ready");
    cluster.of_name("masters-02").is_ready = true;
    assert_eq!(cluster.run(), [["masters-00"], ["masters-01"]]);
    assert!(
        cluster.status.waits_for.starts_with("masters-02 has an API server and no label"),
        "{:?}",
        cluster.status
    );
    assert_eq!(cluster.status.phase, Phase::Running);
    cluster.of_name("masters-02").group = "masters".into();
    assert_eq!(cluster.run(), [["masters-02"], ["a-00"]]);
}

#[derive(Clone, Debug)]
enum Happens {
    /// One of the nodes with an order succeeds.
    Succeeds(usize),
    Fails(usize),
    /// A machine is lost, or comes back.
    Turns(usize),
    /// The controller ends after it has written the status and before it writes the orders.
    ControllerEnds,
    /// A kubelet changes the order in its own Node.
    Lies(usize),
    Passes,
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        8 => any::<usize>().prop_map(Happens::Succeeds),
        1 => any::<usize>().prop_map(Happens::Fails),
        1 => any::<usize>().prop_map(Happens::Turns),
        1 => Just(Happens::ControllerEnds),
        1 => any::<usize>().prop_map(Happens::Lies),
        2 => Just(Happens::Passes),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_no_more_nodes_than_allowed_are_at_work(
        sizes in (1usize..4, 0usize..3, 1usize..12, 0usize..5),
        (limit, canary) in (1u32..4, 0u32..3),
        events in prop::collection::vec(happens(), 0..80),
    ) {
        let (masters, api_servers, a, b) = sizes;
        let mut cluster = Cluster::new(&[("masters", masters), ("apiservers", api_servers), ("a", a), ("b", b)]);
        cluster.rollout.max_unavailable = MaxUnavailable::Nodes(limit);
        cluster.rollout.canary = canary;
        let mut failed: BTreeSet<String> = BTreeSet::new();
        for event in events {
            let before = cluster.status.ordered.clone();
            match &event {
                Happens::ControllerEnds => {
                    cluster.status =
                        decide(&cluster.rollout, &cluster.members, &cluster.seen, &cluster.status, 0, cluster.now)
                            .status;
                }
                _ => drop(cluster.step()),
            }
            let begun: Vec<&String> =
                cluster.status.ordered.keys().filter(|node| !before.contains_key(*node)).collect();
            for (group, of_group) in &cluster.status.groups {
                let most = if group == "masters" { 1 } else { limit as usize };
                prop_assert!(of_group.updating.len() <= most, "{of_group:?}");
                if begun.iter().any(|node| node.starts_with(group.as_str())) {
                    prop_assert_eq!(of_group.failed, 0, "a group with a failure gets no order");
                }
            }
            for node in &begun {
                prop_assert!(cluster.members.iter().any(|member| &&member.node == node && member.is_ready));
                let is_behind = |group: &str| {
                    cluster.members.iter().any(|member| member.group == group && member.runs.as_deref() == Some("a="))
                };
                prop_assert!(node.starts_with("masters") || !is_behind("masters"), "{node} before a control plane");
                prop_assert!(
                    node.starts_with("masters") || node.starts_with("apiservers") || !is_behind("apiservers")
                );
                prop_assert!(!failed.contains(*node), "{node} tries again");
            }
            let at_work: Vec<String> = cluster
                .members
                .iter()
                .filter(|member| {
                    Order::read(&member.order).is_some_and(|order| {
                        order.rollout == "r-1" && member.outcome.as_ref().is_none_or(|outcome| !outcome.is_of(&order))
                    })
                })
                .map(|member| member.node.clone())
                .collect();
            let pick = |number: usize| at_work.get(number % at_work.len().max(1)).cloned();
            match event {
                Happens::Succeeds(number) => {
                    if let Some(node) = pick(number) {
                        cluster.act(&node, "");
                    }
                }
                Happens::Fails(number) => {
                    if let Some(node) = pick(number) {
                        cluster.act(&node, "it broke");
                        failed.insert(node);
                    }
                }
                Happens::Turns(number) => {
                    let count = cluster.members.len();
                    let member = &mut cluster.members[number % count];
                    member.is_ready = !member.is_ready;
                }
                Happens::Lies(number) => {
                    let count = cluster.members.len();
                    cluster.members[number % count].order = r#"{"rollout": "r-9"}"#.into();
                }
                Happens::ControllerEnds => {}
                Happens::Passes => cluster.now += Duration::seconds(60),
            }
        }
        // If no node has failed, the rollout ends once all nodes are Ready again.
        if failed.is_empty() && cluster.now - BEGIN < Duration::seconds(600) {
            for member in &mut cluster.members {
                member.is_ready = true;
            }
            for _ in 0..100 {
                cluster.step();
                for node in cluster.status.ordered.keys().cloned().collect::<Vec<_>>() {
                    cluster.act(&node, "");
                }
            }
            prop_assert_eq!(cluster.status.phase, Phase::Done, "{:?}", cluster.status);
        }
    }
}
