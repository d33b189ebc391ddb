#![allow(clippy::unwrap_used)]
use kops_agent_spec::failure::{Failure, Kind};
use time::Duration;

use super::super::testing::Cluster;
use super::super::{Order, Phase};

#[test]
fn a_node_that_trusts_other_authorities_takes_its_turn_although_its_configuration_is_current() {
    let mut cluster = Cluster::new(&[("a", 3), ("masters", 1)]);
    cluster.seen.authorities.insert("a".to_owned(), "old and new".to_owned());
    for (node, authorities) in [("a-00", Some("old")), ("a-01", Some("old and new")), ("a-02", None)] {
        cluster.of_name(node).authorities = authorities.map(str::to_owned);
    }
    for node in ["a-00", "a-01", "a-02", "masters-00"] {
        cluster.of_name(node).runs = Some("b=".to_owned());
    }
    assert_eq!(cluster.step(), ["a-00"]);
    cluster.act("a-00", "");
    cluster.of_name("a-00").authorities = Some("old".to_owned());
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.phase, Phase::Running, "its Node does not show the authorities yet");
    cluster.of_name("a-00").authorities = Some("old and new".to_owned());
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.phase, Phase::Done);
}

/// A group of two nodes that run the current configuration. They trust `A`, the authorities that new machines of the group also trust.
fn trusting() -> Cluster {
    let mut cluster = Cluster::new(&[("a", 2)]);
    for member in &mut cluster.members {
        (member.runs, member.authorities) = (Some("b=".into()), Some("A".into()));
    }
    cluster.seen.authorities.insert("a".into(), "A".into());
    cluster
}

fn order(cluster: &mut Cluster, node: &str) -> Order {
    Order::read(&cluster.of_name(node).order).unwrap()
}

#[test]
fn authorities_that_change_twice_in_one_rollout_are_two_orders() {
    let mut cluster = trusting();
    cluster.seen.authorities.insert("a".into(), "B".into());
    assert_eq!(cluster.step(), ["a-00"]);
    let first = order(&mut cluster, "a-00");
    assert_eq!((first.hash.as_str(), first.authorities.as_str()), ("b=", "B"));
    cluster.act("a-00", "");
    assert_eq!(cluster.step(), ["a-01"]);
    // The authorities change again, while the second node is at work.
    cluster.seen.authorities.insert("a".into(), "C".into());
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.groups["a"].updating, ["a-01"], "its order for B is still open");
    cluster.act("a-01", "");
    assert_eq!(cluster.step(), ["a-00"]);
    let second = order(&mut cluster, "a-00");
    assert_eq!((&second.rollout, second.attempt, second.authorities.as_str()), (&first.rollout, 1, "C"));
    let answer = cluster.of_name("a-00").outcome.clone().unwrap();
    assert!(answer.is_of(&first) && !answer.is_of(&second), "the node would regard C as answered");
    cluster.act("a-00", "");
    assert_eq!(cluster.step(), ["a-01"]);
    cluster.act("a-01", "");
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.phase, Phase::Done);
}

#[test]
fn a_node_that_does_not_take_the_ordered_authorities_fails() {
    let mut cluster = trusting();
    cluster.seen.authorities.insert("a".into(), "B".into());
    assert_eq!(cluster.step(), ["a-00"]);
    cluster.act("a-00", "");
    for shown in [Some("A".to_owned()), None] {
        cluster.of_name("a-00").authorities = shown;
        assert_eq!(cluster.step(), [""; 0]);
        assert_eq!(cluster.status.groups["a"].updating, ["a-00"]);
    }
    cluster.now += Duration::seconds(601);
    assert_eq!(cluster.step(), [""; 0]);
    let problem = &cluster.status.groups["a"].failures["a-00"];
    assert!(problem.contains("does not show the ordered authorities of kubernetes-ca"), "{problem}");
}

#[test]
fn a_node_that_succeeds_and_is_never_ready_fails() {
    let mut cluster = Cluster::new(&[("a", 2)]);
    assert_eq!(cluster.step(), ["a-00"]);
    cluster.act("a-00", "");
    cluster.of_name("a-00").is_ready = false;
    cluster.now += Duration::seconds(600);
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.groups["a"].updating, ["a-00"], "it has as long as its timeout");
    cluster.now += Duration::seconds(1);
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.phase, Phase::Stopped);
    let problem = &cluster.status.groups["a"].failures["a-00"];
    assert!(problem.contains("10m after the order its Node is not Ready or does not show"), "{problem}");
}

/// Two control planes. The first one carries out its order after this many seconds. Its pods are checked 60 s later.
fn settling_after(seconds: i64) -> Cluster {
    let mut cluster = Cluster::new(&[("masters", 2)]);
    cluster.rollout.check_pods_after = 60;
    assert_eq!(cluster.step(), ["masters-00"]);
    cluster.act("masters-00", "");
    cluster.now += Duration::seconds(seconds);
    assert_eq!(cluster.step(), [""; 0]);
    cluster
}

/// Decides again after `seconds`. `is_ready` is the state of the first control plane's API server. Returns the nodes that get an order.
fn later(cluster: &mut Cluster, seconds: i64, is_ready: bool) -> Vec<String> {
    let not_ready = (!is_ready).then(|| "masters-00".to_owned());
    cluster.not_ready = not_ready.into_iter().collect();
    cluster.now += Duration::seconds(seconds);
    cluster.step()
}

#[test]
fn unready_answers_for_less_than_5_seconds_do_not_fail_a_control_plane_whose_pods_settle() {
    let mut cluster = settling_after(595);
    for is_ready in [true, false, true, false, true] {
        assert_eq!(later(&mut cluster, 10, is_ready), [""; 0]);
        assert_eq!(cluster.status.phase, Phase::Running, "the timeout of 600 s has passed");
        assert_eq!(cluster.status.groups["masters"].updating, ["masters-00"]);
    }
    for seconds in [4, 1, 3] {
        assert_eq!(later(&mut cluster, seconds, false), [""; 0]);
        assert_eq!(cluster.status.phase, Phase::Running, "decisions may follow each other quickly");
    }
    assert_eq!(later(&mut cluster, 2, true), ["masters-01"], "the wait has not begun again");
}

#[test]
fn unready_answers_for_5_seconds_fail_a_control_plane_after_its_timeout() {
    let mut cluster = settling_after(590);
    assert_eq!(later(&mut cluster, 15, false), [""; 0]);
    assert_eq!(cluster.status.phase, Phase::Running);
    for _ in 0..2 {
        assert_eq!(later(&mut cluster, 5, false), [""; 0]);
        assert_eq!(cluster.status.phase, Phase::Stopped);
        let problem = &cluster.status.groups["masters"].failures["masters-00"];
        assert!(problem.ends_with("not ready 10m after the order: failed checks: etcd"), "{problem}");
    }
    assert_eq!(later(&mut cluster, 5, true), [""; 0]);
    assert_eq!(cluster.status.phase, Phase::Running, "the wait begins again");
}

#[test]
fn unready_answers_for_5_seconds_begin_the_wait_for_pods_again() {
    let mut cluster = settling_after(0);
    assert_eq!(later(&mut cluster, 30, false), [""; 0]);
    assert_eq!(later(&mut cluster, 5, false), [""; 0]);
    assert_eq!(later(&mut cluster, 5, true), [""; 0]);
    assert_eq!(later(&mut cluster, 59, true), [""; 0]);
    assert_eq!(cluster.status.phase, Phase::Running);
    assert_eq!(later(&mut cluster, 1, true), ["masters-01"]);
}

#[test]
fn a_node_that_reports_no_authorities_takes_configurations_as_before() {
    let mut cluster = trusting();
    cluster.members.iter_mut().for_each(|member| member.authorities = None);
    cluster.of_name("a-00").runs = Some("a=".into());
    assert_eq!(cluster.step(), ["a-00"]);
    // An earlier version of kops-agent would not name authorities in its outcome, so the order names none.
    assert_eq!(order(&mut cluster, "a-00").authorities, "");
    cluster.act("a-00", "");
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.phase, Phase::Done);

    // After its run, the node reports its authorities. If the node trusts the wanted authorities, it is done. Otherwise the
    // node gets a second order.
    for (reported, ordered) in [("A", &[][..]), ("B", &["a-00"][..])] {
        let mut cluster = trusting();
        (cluster.of_name("a-00").authorities, cluster.of_name("a-00").runs) = (None, Some("a=".into()));
        assert_eq!(cluster.step(), ["a-00"]);
        cluster.act("a-00", "");
        cluster.of_name("a-00").authorities = Some(reported.into());
        assert_eq!(cluster.step(), ordered);
    }
}

#[test]
fn the_policy_tries_again_once_the_authorities_change() {
    let mut cluster = trusting();
    cluster.policy = cluster.policy.with_policy("cluster: {follow: automatic, checkPodsAfter: 0}");
    cluster.seen.authorities.insert("a".into(), "B".into());
    assert_eq!(cluster.step_by_policy(), ["a-00"]);
    cluster.act("a-00", "it trusts none of them");
    assert_eq!(cluster.step_by_policy(), [""; 0]);
    assert_eq!(cluster.policy.status.phase, Phase::Stopped);
    cluster.seen.authorities.insert("a".into(), "C".into());
    assert_eq!(cluster.step_by_policy(), ["a-00"]);
}

#[test]
fn while_the_authorities_are_unknown_a_node_at_work_is_not_done() {
    let mut cluster = trusting();
    cluster.seen.authorities.insert("a".into(), "B".into());
    assert_eq!(cluster.step(), ["a-00"]);
    let known = cluster.seen.clone();
    cluster.seen.authorities.clear();
    cluster
        .seen
        .current
        .insert("a".into(), Err(Failure::new(Kind::StoreUnreachable, "the store does not answer")));
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.groups["a"].updating, ["a-00"], "its order stays");
    assert_eq!(cluster.status.phase, Phase::Running);
    cluster.seen = known;
    cluster.act("a-00", "");
    assert_eq!(cluster.step(), ["a-01"]);
}

#[test]
fn the_status_names_nodes_that_trust_other_authorities_or_report_none() {
    let mut cluster = trusting();
    cluster.of_name("a-00").authorities = Some("old".into());
    cluster.of_name("a-01").authorities = None;
    assert_eq!(cluster.step(), ["a-00"]);
    assert_eq!(cluster.status.groups["a"].other_authorities, 1);
    assert_eq!(cluster.status.without_authorities.first, ["a-01"]);
    cluster.act("a-00", "");
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.phase, Phase::Done);
    assert_eq!(cluster.status.groups["a"].other_authorities, 0);
    assert_eq!(cluster.status.without_authorities.nodes, 1, "the rollout is done without a word about a-01");

    // No authorities are compared for a group that `seen.authorities` lacks.
    cluster.seen.authorities.clear();
    cluster.step();
    assert!(cluster.status.without_authorities.is_none());
}
