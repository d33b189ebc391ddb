//! If a blocker appears after an order, the node loses the order, unless it drains for the order or is not Ready.

use kops_agent_spec::parse_timestamp;

use super::super::super::{PolicyStatus, State};
use super::*;
use crate::pacing::drain::cordon_time;

fn blockers() -> Blockers {
    Blockers { pods: "app=batch".into(), ..Blockers::default() }
}

fn burns() -> Option<Blocked> {
    Some(Blocked { all: Some("it burns".into()), ..Blocked::default() })
}

fn has_pod(node: &str) -> Option<Blocked> {
    Some(Blocked { all: None, nodes: [(node.to_owned(), "its pod runs".to_owned())].into() })
}

/// A cluster whose rollout has blockers. All nodes may begin at the same time.
fn cluster(groups: &[(&str, usize)]) -> Cluster {
    let mut cluster = super::cluster(groups);
    cluster.rollout.max_unavailable = MaxUnavailable::Nodes(9);
    cluster.rollout.blocked_by = blockers();
    cluster.seen.blocked = Some(Blocked::default());
    cluster
}

fn asks(cluster: &Cluster) -> bool {
    let Cluster { rollout, members, status, now, .. } = cluster;
    let seen = Seen { blocked: None, ..cluster.seen.clone() };
    super::super::super::decide(rollout, members, &seen, status, 0, *now).blockers_to_check.is_some()
}

fn with_order(cluster: &Cluster) -> Vec<&str> {
    let has_order = |member: &&Member| !member.order.is_empty();
    cluster.members.iter().filter(has_order).map(|member| member.node.as_str()).collect()
}

#[test]
fn an_alert_takes_back_orders_of_nodes_that_do_not_drain() {
    let mut cluster = cluster(&[("a", 4)]);
    assert_eq!(cluster.step(), ["a-00", "a-01", "a-02", "a-03"]);
    // a-00 waits for its slot, a-01 drains, a-02 has rebooted and is not uncordoned yet, a-03 has failed.
    cluster.of_name("a-01").cordoned_since = Some(cluster.now);
    cluster.of_name("a-02").cordoned_since = Some(cluster.now);
    reboot(&mut cluster, "a-02");
    answer(&mut cluster, "a-03", "a pod stays");
    cluster.step();
    let begun = cluster.status.clone();
    cluster.seen.blocked = burns();
    assert!(asks(&cluster), "an open order waits for its slot");
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(with_order(&cluster), ["a-01", "a-02"]);
    assert_eq!(cluster.status.ordered, begun.ordered, "the status keeps the order until it is gone");

    cluster.step();
    let status = cluster.status.clone();
    let group = &status.groups["a"];
    assert_eq!((&*group.updating, group.waiting), (["a-01".to_owned(), "a-02".to_owned()].as_slice(), 1));
    assert_eq!(group.finishing, [("a-01".to_owned(), "it burns".to_owned())].into());
    assert_eq!(group.failures["a-03"], "a pod stays", "a blocker forgets no failure");
    for _ in 0..3 {
        assert_eq!(cluster.step(), [""; 0]);
        assert_eq!((&cluster.status, with_order(&cluster)), (&status, vec!["a-01", "a-02"]));
    }

    for node in ["a-01", "a-02"] {
        reboot(&mut cluster, node);
        cluster.of_name(node).cordoned_since = None;
        answer(&mut cluster, node, "");
    }
    cluster.rollout.attempt = 2;
    assert!(asks(&cluster), "a failed node tries again");
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!((cluster.status.groups["a"].done, cluster.status.waits_for.as_str()), (2, "it burns"));
    cluster.seen.blocked = Some(Blocked::default());
    assert_eq!(cluster.step(), ["a-00", "a-03"]);
}

#[test]
fn a_cordon_that_an_earlier_run_left_is_no_drain_for_the_order() {
    let mut cluster = cluster(&[("a", 2)]);
    cluster.of_name("a-00").cordoned_since = Some(cluster.now);
    cluster.now += Duration::seconds(61);
    assert_eq!(cluster.step(), ["a-00", "a-01"]);
    // The clock of a-01 is behind, so its cordon seems to be older than the order.
    cluster.of_name("a-01").cordoned_since = Some(cluster.now - Duration::seconds(60));
    cluster.seen.blocked = burns();
    cluster.step();
    assert_eq!(with_order(&cluster), ["a-01"]);
    cluster.step();
    assert_eq!(cluster.status.groups["a"].finishing, [("a-01".to_owned(), "it burns".to_owned())].into());
}

#[test]
fn a_drain_counts_even_if_the_clock_of_its_node_is_far_behind() {
    let mut cluster = cluster(&[("a", 1)]);
    assert_eq!(cluster.step(), ["a-00"]);
    let order = Order::read(&cluster.of_name("a-00").order).unwrap();
    let cordoned = cordon_time(cluster.now - Duration::hours(1), order.time());
    cluster.of_name("a-00").cordoned_since = parse_timestamp(&cordoned);
    cluster.seen.blocked = burns();
    for _ in 0..2 {
        assert_eq!(cluster.step(), [""; 0]);
        assert_eq!(with_order(&cluster), ["a-00"]);
    }
}

#[test]
fn a_pod_takes_back_the_order_of_its_node_only() {
    let mut cluster = cluster(&[("a", 3)]);
    cluster.step();
    cluster.of_name("a-02").cordoned_since = Some(cluster.now);
    cluster.seen.blocked = has_pod("a-00");
    for _ in 0..3 {
        assert_eq!(cluster.step(), [""; 0]);
        assert_eq!(with_order(&cluster), ["a-01", "a-02"]);
    }
    assert_eq!(cluster.status.groups["a"].held["a-00"], "its pod runs");
    cluster.seen.blocked = has_pod("a-02");
    cluster.now += Duration::seconds(60);
    assert_eq!(cluster.step(), ["a-00"]);
    let order = Order::read(&cluster.of_name("a-00").order).unwrap();
    assert_eq!(order.until, "1970-01-01T00:11:00Z", "the order is another one");
    assert_eq!(with_order(&cluster), ["a-00", "a-01", "a-02"]);
    assert_eq!(cluster.status.groups["a"].finishing["a-02"], "its pod runs");
}

#[test]
fn a_node_that_drains_without_its_order_does_not_get_it_again() {
    let mut cluster = cluster(&[("a", 1)]);
    cluster.step();
    let order = cluster.of_name("a-00").order.clone();
    cluster.seen.blocked = burns();
    cluster.step();
    // The node began to drain just before its order was taken back. It drops the order before it reboots.
    cluster.of_name("a-00").cordoned_since = Some(cluster.now);
    for _ in 0..3 {
        assert_eq!(cluster.step(), [""; 0]);
        assert!(with_order(&cluster).is_empty());
    }
    assert!(cluster.status.ordered.is_empty());
    cluster.of_name("a-00").cordoned_since = None;
    cluster.seen.blocked = Some(Blocked::default());
    cluster.now += Duration::seconds(1);
    assert_eq!(cluster.step(), ["a-00"]);
    assert_ne!(cluster.of_name("a-00").order, order);
}

#[test]
fn a_node_that_gave_no_result_stays_failed_while_its_reboot_is_blocked() {
    let mut cluster = cluster(&[("a", 2)]);
    cluster.rollout.reboot.as_mut().unwrap().remove("a-01");
    cluster.step();
    pass_timeout(&mut cluster);
    cluster.step();
    assert_eq!(cluster.status.phase, Phase::Stopped);
    assert!(!asks(&cluster), "nothing begins before `resume`");
    for blocked in [burns(), has_pod("a-00"), Some(Blocked::default())] {
        cluster.seen.blocked = blocked;
        assert_eq!(cluster.step(), [""; 0]);
        assert_eq!((cluster.status.phase, cluster.status.groups["a"].failed), (Phase::Stopped, 1));
    }
}

#[test]
fn orders_of_the_policy_are_taken_back_and_its_configurations_go_on() {
    let mut cluster = Cluster::new(&[("a", 1), ("b", 1)]);
    let policy = "cluster: {reboot: automatic, checkPodsAfter: 0}\nblockedBy: {pods: app=batch}\ngroups: {b: {follow: automatic}}";
    cluster.policy = PolicyStatus::default().with_policy(policy);
    assert_eq!(cluster.policy.refused, "");
    cluster.seen.blocked = Some(Blocked::default());
    cluster.of_name("b-00").runs = Some("b=".into());
    cluster.of_name("a-00").requires_reboot = true;
    let step = |cluster: &mut Cluster| {
        let actions = cluster.step_all(None);
        cluster.policy = actions.policy;
        (actions.orders.into_keys().collect::<Vec<_>>(), actions.withdrawn)
    };
    let nodes = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(step(&mut cluster), (nodes(&["a-00"]), Vec::new()));
    cluster.seen.blocked = burns();
    assert_eq!(step(&mut cluster), (Vec::new(), nodes(&["a-00"])));
    step(&mut cluster);
    assert!(!cluster.policy.reboots.is_at_work() && cluster.policy.reboots.ordered.is_empty());
    // A blocker of reboots does not affect orders to take a configuration.
    cluster.seen.current.insert("b".into(), Ok("c=".into()));
    assert_eq!(step(&mut cluster), (nodes(&["b-00"]), Vec::new()));
    assert_eq!(step(&mut cluster), (Vec::new(), Vec::new()));
    cluster.act("b-00", "");
    step(&mut cluster);
    cluster.seen.blocked = Some(Blocked::default());
    cluster.now += Duration::seconds(1);
    assert_eq!(step(&mut cluster), (nodes(&["a-00"]), Vec::new()));
}

#[test]
fn a_pause_takes_back_the_order_of_a_node_that_drains() {
    let mut cluster = cluster(&[("a", 1)]);
    cluster.step();
    cluster.of_name("a-00").cordoned_since = Some(cluster.now);
    cluster.seen.blocked = burns();
    cluster.rollout.state = State::Paused;
    assert!(!asks(&cluster), "no node begins in a pause");
    cluster.step();
    assert!(with_order(&cluster).is_empty());
}
