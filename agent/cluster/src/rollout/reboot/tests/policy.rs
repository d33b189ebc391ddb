//! Reboots by the policy, beside configurations.

use super::super::super::{Actions, PolicyState, PolicyStatus, Rollout, State};
use super::*;

/// One step of the controller: it decides for the policy, and writes the orders and the statuses. Returns the nodes that got an order.
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
    // The policy rolls out configurations before it reboots nodes.
    assert_eq!(step_by_policy(&mut cluster), ["a-00"]);
    assert_eq!(step_by_policy(&mut cluster), [""; 0]);
    cluster.act("a-00", "");
    for node in ["masters-00", "a-01"] {
        assert_eq!(step_by_policy(&mut cluster), [node]);
        assert_eq!(Order::read(&cluster.of_name(node).order).unwrap().boot_id, "boot-0");
        assert!(cluster.policy.is_active() && cluster.policy.reboots.is_at_work());
        reboot(&mut cluster, node);
        // The controller sees the new boot before the node reports its outcome.
        assert_eq!(step_by_policy(&mut cluster), [""; 0]);
        answer(&mut cluster, node, "");
    }
    assert_eq!(step_by_policy(&mut cluster), [""; 0], "the group b is manual");
    assert_eq!(cluster.policy.reboots.phase, Phase::Done);

    // The node a-01 requires a second reboot.
    cluster.now += Duration::days(2);
    cluster.of_name("a-01").requires_reboot = true;
    assert_eq!(step_by_policy(&mut cluster), ["a-01"]);
    assert_eq!(Order::read(&cluster.of_name("a-01").order).unwrap().boot_id, "boot-0'");
    answer(&mut cluster, "a-01", "a pod stays");
    assert_eq!(step_by_policy(&mut cluster), [""; 0]);
    assert_eq!(cluster.policy.reboots.phase, Phase::Stopped);
    let PolicyStatus { status, reboots, .. } = &cluster.policy;
    cluster.policy_state = cluster.policy_state.resumed(&status.rollout, &reboots.rollout);
    assert_eq!(step_by_policy(&mut cluster), ["a-01"]);
    // The policy becomes manual while the node reboots. The node finishes its order.
    reboot(&mut cluster, "a-01");
    cluster.policy = cluster.policy.with_policy("");
    assert!(cluster.policy.is_active());
    assert_eq!(step_by_policy(&mut cluster), [""; 0]);
    assert!(!cluster.of_name("a-01").order.is_empty());
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
    reboot(&mut cluster, "a-01");
    let rollout = cluster.rollout.clone();
    let actions = cluster.step_all(Some(&rollout));
    assert_eq!((actions.orders.len(), actions.withdrawn.len()), (0, 0));
    assert_eq!(actions.status.unwrap().waits_for, "nodes that the policy is updating: a-01");
    answer(&mut cluster, "a-01", "");
    cluster.policy = cluster.step_all(Some(&rollout)).policy;
    cluster.of_name("a-00").requires_reboot = true;
    let actions = cluster.step_all(Some(&rollout));
    let order = &actions.orders["a-00"];
    assert_eq!((order.rollout.as_str(), order.boot_id.as_str()), ("r-1", ""), "the rollout comes first");
}

/// Decides for the policy and for this rollout of an operator. Writes the orders and both statuses.
fn step_all(cluster: &mut Cluster, rollout: Option<&Rollout>) -> Actions {
    let actions = cluster.step_all(rollout);
    cluster.policy = actions.policy.clone();
    cluster.status = actions.status.clone().unwrap_or_default();
    actions
}

fn with_policy(cluster: &mut Cluster, policy: &str) {
    cluster.policy = cluster.policy.with_policy(policy);
    assert_eq!(cluster.policy.refused, "");
}

#[test]
fn a_new_configuration_comes_before_reboots_that_have_not_begun() {
    let mut cluster = Cluster::new(&[("a", 2), ("b", 4)]);
    let policy = "cluster: {checkPodsAfter: 0, reboot: automatic, maxUnavailable: 2}\ngroups: {a: {follow: automatic}}";
    with_policy(&mut cluster, policy);
    for member in &mut cluster.members {
        member.runs = Some("b=".into());
        member.requires_reboot = member.group == "b";
    }
    assert_eq!(step_by_policy(&mut cluster), ["b-00", "b-01"]);
    // b-00 reboots now. b-01 waits for a slot.
    reboot(&mut cluster, "b-00");
    cluster.of_name("b-00").is_ready = false;
    cluster.seen.current.insert("a".into(), Ok("c=".into()));
    let actions = step_all(&mut cluster, None);
    assert_eq!((actions.orders.len(), actions.withdrawn.as_slice()), (0, ["b-01".to_owned()].as_slice()));
    assert_eq!(step_by_policy(&mut cluster), [""; 0], "b-00 finishes first");
    assert_eq!(cluster.policy.reboots.groups["b"].updating, ["b-00"]);
    cluster.of_name("b-00").is_ready = true;
    answer(&mut cluster, "b-00", "");
    assert_eq!(step_by_policy(&mut cluster), [""; 0], "no further reboot begins");
    assert_eq!(cluster.policy.reboots.waits_for, "a new configuration comes first");
    assert_eq!(step_by_policy(&mut cluster), ["a-00", "a-01"]);
    for node in ["a-00", "a-01"] {
        cluster.act(node, "");
    }
    assert_eq!(step_by_policy(&mut cluster), ["b-01", "b-02"], "b-01 gets an order again");
}

#[test]
fn a_node_with_a_false_reason_reboots_once_a_day() {
    let mut cluster = Cluster::new(&[("a", 1), ("b", 1)]);
    with_policy(
        &mut cluster,
        "cluster: {checkPodsAfter: 0, reboot: automatic}\ngroups: {b: {rebootInterval: 7200}}",
    );
    let mut times: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for _ in 0..48 {
        for node in ["a-00", "b-00"] {
            cluster.of_name(node).requires_reboot = true;
        }
        for node in step_by_policy(&mut cluster) {
            times
                .entry(node.clone())
                .or_default()
                .push((cluster.now - super::super::super::testing::BEGIN).whole_hours());
            reboot(&mut cluster, &node);
            answer(&mut cluster, &node, "");
        }
        cluster.now += Duration::hours(1);
    }
    assert_eq!(times["a-00"], [0, 24]);
    assert_eq!(times["b-00"], (0..24).map(|day| day * 2).collect::<Vec<_>>());
    cluster.of_name("a-00").requires_reboot = true;
    cluster.now -= Duration::hours(1);
    step_by_policy(&mut cluster);
    let held = &cluster.policy.reboots.groups["a"].held["a-00"];
    assert!(held.contains("1970-01-03T00:00:00Z or later (rebootInterval)"), "{held}");
}

#[test]
fn no_node_reboots_twice_in_a_rollout_of_the_policy() {
    let mut cluster = Cluster::new(&[("a", 2)]);
    with_policy(
        &mut cluster,
        "cluster: {checkPodsAfter: 0, nodeTimeout: 86400, reboot: automatic, rebootInterval: 3600, maxUnavailable: 2}",
    );
    let require = |cluster: &mut Cluster| {
        for node in ["a-00", "a-01"] {
            cluster.of_name(node).requires_reboot = true;
        }
    };
    require(&mut cluster);
    assert_eq!(step_by_policy(&mut cluster), ["a-00", "a-01"]);
    reboot(&mut cluster, "a-00");
    answer(&mut cluster, "a-00", "");
    cluster.now += Duration::hours(2);
    require(&mut cluster);
    for _ in 0..2 {
        assert_eq!(step_by_policy(&mut cluster), [""; 0], "a-01 is still at work");
    }
    let held = &cluster.policy.reboots.groups["a"].held["a-00"];
    assert!(held.contains("it waits for the end of that rollout"), "{held}");
    reboot(&mut cluster, "a-01");
    answer(&mut cluster, "a-01", "");
    step_by_policy(&mut cluster);
    let before = cluster.policy.reboots.rollout.clone();
    assert_eq!(step_by_policy(&mut cluster), ["a-00"]);
    assert_ne!(cluster.policy.reboots.rollout, before);
}

#[test]
fn an_order_that_was_taken_back_holds_no_node() {
    let mut cluster = Cluster::new(&[("a", 1)]);
    with_policy(&mut cluster, "cluster: {checkPodsAfter: 0, reboot: automatic}");
    cluster.of_name("a-00").requires_reboot = true;
    assert_eq!(step_by_policy(&mut cluster), ["a-00"]);
    cluster.policy_state.state = State::Paused;
    assert_eq!(step_by_policy(&mut cluster), [""; 0]);
    assert!(cluster.of_name("a-00").order.is_empty() && cluster.of_name("a-00").last_reboot.is_some());
    cluster.policy_state = PolicyState::default();
    step_by_policy(&mut cluster);
    assert_eq!(Order::read(&cluster.of_name("a-00").order).unwrap().boot_id, "boot-0");
}

#[test]
fn a_reboot_interval_has_a_least_value() {
    for (policy, is_refused) in [("3599", true), ("0", true), ("3600", false)] {
        let after = PolicyStatus::default().with_policy(&format!("cluster: {{rebootInterval: {policy}}}"));
        assert_eq!(
            after.refused.contains("cluster.rebootInterval"),
            is_refused,
            "{policy}: {}",
            after.refused
        );
    }
}

/// An operator's rollout reboots all nodes, and waits, because its window opens days later, or because an alert blocks it.
#[test]
fn reboots_that_wait_do_not_hold_configurations_of_the_policy() {
    for (window, alerts) in [("Sat 00:00-01:00 UTC", ""), ("Mon-Sun 00:00-24:00 UTC", "ALERTS")] {
        let mut cluster = super::cluster(&[("masters", 1), ("a", 4)]);
        cluster.rollout.windows = vec![window.parse().unwrap()];
        cluster.rollout.blocked_by =
            Blockers { alerts: alerts.into(), prometheus: "m/web:9090".into(), ..Blockers::default() };
        cluster.seen.blocked = Some(Blocked { all: Some("it burns".into()), ..Blocked::default() });
        if alerts.is_empty() {
            cluster.seen.blocked = Some(Blocked::default());
        }
        with_policy(&mut cluster, "cluster: {follow: automatic, checkPodsAfter: 0, maxUnavailable: 2}");
        let rollout = cluster.rollout.clone();
        let mut ordered = Vec::new();
        for _ in 0..6 {
            let actions = step_all(&mut cluster, Some(&rollout));
            let status = actions.status.unwrap();
            assert!(status.is_in(Phase::Running, &rollout) && !status.is_at_work());
            assert!(
                status.waits_for.contains(if alerts.is_empty() { "window" } else { "burns" }),
                "{status:?}"
            );
            // One of the nodes is slow. The other nodes do not wait for this node.
            for node in actions.orders.keys().filter(|node| *node != "a-00") {
                cluster.act(node, "");
            }
            ordered.extend(actions.orders.into_keys());
        }
        assert_eq!(ordered, ["masters-00", "a-00", "a-01", "a-02", "a-03"], "{window}");
        // The reboots begin once no node takes a configuration.
        cluster.seen.blocked = Some(Blocked::default());
        let rollout = Rollout { windows: Vec::new(), ..rollout };
        let actions = step_all(&mut cluster, Some(&rollout));
        assert_eq!(actions.orders.len(), 0);
        assert_eq!(actions.status.unwrap().waits_for, "nodes that the policy is updating: a-00");
        cluster.act("a-00", "");
        step_all(&mut cluster, Some(&rollout));
        let actions = step_all(&mut cluster, Some(&rollout));
        assert_eq!(actions.orders.keys().collect::<Vec<_>>(), ["masters-00"]);
        assert_eq!(actions.orders["masters-00"].boot_id, "boot-0");
    }
}
