//! Orders to reboot have a time until which they count, and are taken back while their nodes have not begun.

use super::super::super::{OrderValidity, PolicyStatus, Rollout, State};
use super::*;

/// A cluster with two groups. One node of each group has an order to reboot, and only the node of the group `b` has
/// rebooted.
fn half_begun() -> Cluster {
    let mut cluster = cluster(&[("a", 2), ("b", 2)]);
    assert_eq!(cluster.step(), ["a-00", "b-00"]);
    reboot(&mut cluster, "b-00");
    cluster
}

fn has_order(cluster: &mut Cluster, node: &str) -> bool {
    !cluster.of_name(node).order.is_empty()
}

#[test]
fn an_order_counts_until_its_node_would_have_failed() {
    let mut cluster = cluster(&[("a", 1)]);
    cluster.step();
    let order = Order::read(&cluster.of_name("a-00").order).unwrap();
    assert_eq!((order.at.as_str(), order.until.as_str()), ("1970-01-01T00:00:00Z", "1970-01-01T00:10:00Z"));
    assert_eq!(OrderValidity::new(&order, Some(&order.text()), cluster.now), OrderValidity::InForce);
    pass_timeout(&mut cluster);
    assert!(matches!(
        OrderValidity::new(&order, Some(&order.text()), cluster.now),
        OrderValidity::Expired(_)
    ));
    // An order to take a configuration does not expire, so that a node can finish a change that it has begun.
    let mut cluster = Cluster::new(&[("a", 1)]);
    cluster.step();
    assert!(!cluster.of_name("a-00").order.contains("until"));
}

#[test]
fn a_pause_and_an_end_take_back_orders_that_no_node_has_begun() {
    for state in [State::Paused, State::Aborted] {
        let mut cluster = half_begun();
        cluster.rollout.state = state;
        assert_eq!(cluster.step(), [""; 0]);
        assert_eq!(
            (has_order(&mut cluster, "a-00"), has_order(&mut cluster, "b-00")),
            (false, true),
            "{state:?}"
        );
        cluster.step();
        assert_eq!(cluster.status.ordered.keys().collect::<Vec<_>>(), ["b-00"]);
        answer(&mut cluster, "b-00", "");
        cluster.step();
        assert!(!cluster.status.is_at_work());
        assert_eq!(cluster.status.groups["b"].done, 1);
        if state == State::Paused {
            cluster.rollout.state = State::Running;
            cluster.rollout.attempt = 2;
            assert_eq!(cluster.step(), ["a-00", "b-01"]);
            assert_eq!(Order::read(&cluster.of_name("a-00").order).unwrap().attempt, 2);
        }
    }
}

#[test]
fn a_node_at_work_for_a_configuration_keeps_its_order_in_a_pause() {
    let mut cluster = Cluster::new(&[("a", 2)]);
    cluster.step();
    cluster.rollout.state = State::Paused;
    cluster.step();
    assert!(has_order(&mut cluster, "a-00"));
}

#[test]
fn a_failed_node_that_has_not_begun_has_no_order_any_more() {
    let mut cluster = half_begun();
    pass_timeout(&mut cluster);
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.failed.len(), 2);
    assert_eq!((has_order(&mut cluster, "a-00"), has_order(&mut cluster, "b-00")), (false, true));
    answer(&mut cluster, "b-00", "");
    assert_eq!(cluster.step(), ["b-01"], "it has come back late");
    let mut cluster = super::cluster(&[("a", 2)]);
    cluster.step();
    answer(&mut cluster, "a-00", "a pod stays");
    cluster.step();
    assert!(!has_order(&mut cluster, "a-00"));
}

#[test]
fn a_policy_that_is_switched_off_takes_its_orders_back() {
    for policy in ["", "cluster: {reboot: manual}", "groups: {b: {reboot: automatic}}"] {
        let mut cluster = Cluster::new(&[("a", 2)]);
        cluster.policy = PolicyStatus::default().with_policy("cluster: {reboot: automatic}");
        cluster.of_name("a-00").requires_reboot = true;
        cluster.policy = cluster.step_all(None).policy;
        assert!(has_order(&mut cluster, "a-00"));
        cluster.policy = cluster.policy.with_policy(policy);
        assert!(cluster.policy.is_active());
        let actions = cluster.step_all(None);
        assert_eq!(actions.withdrawn, ["a-00"], "{policy}");
        cluster.policy = actions.policy;
        cluster.policy = cluster.step_all(None).policy;
        assert!(
            !cluster.policy.reboots.is_at_work() && cluster.policy.reboots.ordered.is_empty(),
            "{policy}"
        );
    }
}

#[test]
fn a_rollout_of_an_operator_takes_back_orders_of_the_policy() {
    let mut cluster = Cluster::new(&[("a", 2)]);
    cluster.policy = PolicyStatus::default().with_policy("cluster: {reboot: automatic}");
    cluster.of_name("a-00").requires_reboot = true;
    cluster.policy = cluster.step_all(None).policy;
    let rollout = cluster.rollout.clone();
    let actions = cluster.step_all(Some(&rollout));
    assert_eq!(actions.withdrawn, ["a-00"]);
    cluster.policy = actions.policy;
    cluster.policy = cluster.step_all(Some(&rollout)).policy;
    let actions = cluster.step_all(Some(&rollout));
    assert_eq!(actions.orders["a-00"].rollout, "r-1");
}

#[test]
fn an_order_is_taken_back_until_it_is_gone() {
    let mut cluster = cluster(&[("a", 1)]);
    cluster.step();
    let order = cluster.of_name("a-00").order.clone();
    cluster.rollout.state = State::Aborted;
    for _ in 0..3 {
        cluster.step();
        // The controller ended before it took the order back.
        cluster.of_name("a-00").order = order.clone();
        assert!(!cluster.status.is_over(&cluster.rollout));
    }
    cluster.step();
    cluster.step();
    assert!(cluster.status.is_over(&cluster.rollout) && cluster.status.ordered.is_empty());
}

#[test]
fn an_order_that_no_status_has_is_taken_back() {
    let mut cluster = cluster(&[("a", 2), ("b", 1)]);
    cluster.step();
    reboot(&mut cluster, "b-00");
    // A new rollout replaced the status before the controller saw that the rollout with these orders was aborted.
    cluster.status = Status::default();
    let other =
        Rollout { id: "r-2".into(), instance_groups: ["b".to_owned()].into(), ..cluster.rollout.clone() };
    let actions = cluster.step_all(Some(&other));
    assert_eq!(actions.withdrawn, ["a-00"]);
    assert!(!has_order(&mut cluster, "a-00"));
    cluster.status = actions.status.unwrap();
    assert_eq!(cluster.step_all(Some(&other)).withdrawn, [""; 0]);
}
