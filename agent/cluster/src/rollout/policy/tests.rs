#![allow(clippy::unwrap_used)]
use proptest::prelude::*;
use time::Duration;

use super::super::order::Order;
use super::super::testing::Cluster;
use super::*;

fn cluster(groups: &[(&str, usize)], policy: &str) -> Cluster {
    let mut cluster = Cluster::new(groups);
    cluster.policy = cluster.policy.with_policy(policy);
    assert_eq!(cluster.policy.refused, "");
    cluster
}

/// Lets the policy decide again and again, until no node gets an order. Each node with an order succeeds. Returns the nodes of each step.
fn run(cluster: &mut Cluster) -> Vec<Vec<String>> {
    let mut steps = Vec::new();
    loop {
        let ordered = cluster.step_by_policy();
        if ordered.is_empty() {
            return steps;
        }
        for node in &ordered {
            cluster.act(node, "");
        }
        steps.push(ordered);
    }
}

const AUTOMATIC: &str = "cluster: {follow: automatic, checkPodsAfter: 0}";

#[test]
fn a_policy_is_manual_unless_it_says_otherwise() {
    for text in ["", "# nothing yet", "{}", "cluster: {canary: 1}", "groups: {a: {maxUnavailable: 2}}"] {
        let policy = Policy::read(text).unwrap();
        assert!(!policy.is_automatic() && policy.settings(FOLLOW, "a").is_none(), "{text}");
    }
}

#[test]
fn settings_of_a_group_override_settings_of_the_cluster() {
    let policy = Policy::read(
        "cluster: {follow: automatic, maxUnavailable: 10%, canary: 2, drain: always, healthTimeout: 60, nodeTimeout: 120,\n\
         \x20 windows: [Mon-Fri 22:00-05:00 Europe/Berlin]}\n\
         groups:\n  a: {maxUnavailable: 2, windows: []}\n  b: {follow: manual}\n",
    )
    .unwrap();
    let (other, a) = (policy.settings(FOLLOW, "other").unwrap(), policy.settings(FOLLOW, "a").unwrap());
    assert_eq!(policy.settings(FOLLOW, "b"), None);
    assert_eq!(
        (other.max_unavailable, a.max_unavailable),
        (MaxUnavailable::Percent(10), MaxUnavailable::Nodes(2))
    );
    assert_eq!((other.windows.len(), a.windows.len()), (1, 0));
    let same = |settings: &Settings| {
        (
            settings.canary,
            settings.drain,
            settings.health_timeout,
            settings.node_timeout,
            settings.may_go_back,
        )
    };
    assert_eq!(same(&a), (2, DrainMode::Always, 60, 120, false));
    assert_eq!(same(&other), same(&a));
    let text = serde_json::to_string(&policy).unwrap();
    assert_eq!(Policy::read(&text), Ok(policy), "it is kept as JSON");
}

#[test]
fn a_wrong_policy_is_refused_and_the_one_before_stays() {
    let before = PolicyStatus::default().with_policy(AUTOMATIC);
    for (text, names) in [
        ("cluster: {follow: always}", "cluster.follow"),
        ("follow: automatic", "unknown field `follow`"),
        ("cluster: {mayGoBack: true}", "unknown field `mayGoBack`"),
        ("groups: {a: {maxUnavailable: 0}}", "groups.a: \"0\" is neither a number of nodes"),
        ("groups: {a: {windows: [Mun 01:00-02:00 UTC]}}", "is not a day"),
        ("groups: {a: {nodeTimeout: 0}}", "groups.a.nodeTimeout"),
        ("cluster: {healthTimeout: 0}", "cluster.healthTimeout"),
        ("- a", "the policy is not valid"),
        ("cluster: [", "the policy is not valid"),
    ] {
        let after = before.with_policy(text);
        assert!(after.refused.contains(names), "{text}: {}", after.refused);
        assert_eq!(after.accepted, before.accepted);
    }
    let corrected = before.with_policy("- a").with_policy("cluster: {follow: manual}");
    assert_eq!((corrected.refused.as_str(), corrected.accepted.is_automatic()), ("", false));
}

#[test]
fn superseded_nodes_of_automatic_groups_follow_in_their_turns() {
    let policy = "{cluster: {follow: automatic, canary: 1, checkPodsAfter: 0}, groups: {b: {follow: manual}, c: {maxUnavailable: 2}, d: {}}}";
    let mut cluster = cluster(&[("masters", 1), ("a", 2), ("b", 2), ("c", 3)], policy);
    let steps = run(&mut cluster);
    let expected: [&[&str]; 3] = [&["masters-00"], &["a-00", "c-00"], &["a-01", "c-01", "c-02"]];
    assert_eq!(steps, expected);
    assert_eq!(cluster.policy.status.phase, Phase::Done);
    assert!(!cluster.policy.status.groups.contains_key("b"));
    assert_eq!(cluster.policy.unknown_groups, ["d".to_owned()].into());

    // The next configuration gets a new rollout ID.
    let first = cluster.policy.status.rollout.clone();
    cluster.now += Duration::hours(1);
    assert_eq!(cluster.step_by_policy(), [""; 0]);
    assert_eq!(cluster.policy.status.rollout, first);
    cluster.seen.current.insert("a".into(), Ok("c=".into()));
    assert_eq!(run(&mut cluster), [["a-00"], ["a-01"]]);
    assert_eq!(cluster.policy.status.rollout, "policy-1970-01-01T01:00:00Z");
}

#[test]
fn workers_wait_for_control_planes_that_are_manual() {
    let mut cluster =
        cluster(&[("masters", 1), ("a", 1)], "groups: {a: {follow: automatic, checkPodsAfter: 0}}");
    assert_eq!(cluster.step_by_policy(), [""; 0]);
    assert!(
        cluster.policy.status.waits_for.starts_with("the control planes do not run"),
        "{:?}",
        cluster.policy
    );
    cluster.of_name("masters-00").runs = Some("b=".into());
    assert_eq!(cluster.step_by_policy(), ["a-00"]);
}

#[test]
fn a_failed_configuration_is_tried_again_only_once_it_changes_or_an_operator_resumes() {
    let mut cluster = cluster(&[("a", 2)], AUTOMATIC);
    assert_eq!(cluster.step_by_policy(), ["a-00"]);
    cluster.act("a-00", "kubelet is dead");
    for _ in 0..3 {
        assert_eq!(cluster.step_by_policy(), [""; 0]);
        assert_eq!(cluster.policy.status.phase, Phase::Stopped);
        cluster.now += Duration::days(1);
    }
    cluster.seen.current.insert("a".into(), Ok("c=".into()));
    assert_eq!(cluster.step_by_policy(), ["a-00"]);
    cluster.act("a-00", "kubelet is dead again");
    assert_eq!(cluster.step_by_policy(), [""; 0]);
    cluster.policy_state = cluster.policy_state.resumed(&cluster.policy.status.rollout, "");
    assert_eq!(cluster.step_by_policy(), ["a-00"]);
    assert_eq!(Order::read(&cluster.of_name("a-00").order).unwrap().attempt, 2);
    cluster.act("a-00", "");
    assert_eq!(run(&mut cluster), [["a-01"]]);

    // `resume` applies only to the configuration that failed. The next configuration begins with the first attempt.
    cluster.now += Duration::days(1);
    cluster.seen.current.insert("a".into(), Ok("d=".into()));
    cluster.step_by_policy();
    assert_eq!(Order::read(&cluster.of_name("a-00").order).unwrap().attempt, 1);
}

#[test]
fn an_operator_pauses_it_and_nodes_at_work_finish() {
    let mut cluster = cluster(&[("a", 2)], AUTOMATIC);
    assert_eq!(cluster.step_by_policy(), ["a-00"]);
    cluster.policy_state.state = State::Paused;
    assert_eq!(cluster.step_by_policy(), [""; 0]);
    assert_eq!(cluster.policy.status.groups["a"].updating, ["a-00"]);
    cluster.act("a-00", "");
    assert_eq!(cluster.step_by_policy(), [""; 0]);
    assert_eq!(cluster.policy.status.phase, Phase::Paused);
    assert!(cluster.policy.status.waits_for.starts_with("an operator has paused it"), "{:?}", cluster.policy);
    cluster.policy_state.state = State::Running;
    assert_eq!(cluster.step_by_policy(), ["a-01"]);
}

#[test]
fn a_group_that_becomes_manual_begins_nothing_and_finishes() {
    let mut cluster = cluster(&[("a", 2)], AUTOMATIC);
    assert_eq!(cluster.step_by_policy(), ["a-00"]);
    cluster.policy = cluster.policy.with_policy("cluster: {follow: manual}");
    assert_eq!(cluster.step_by_policy(), [""; 0]);
    assert!(cluster.policy.is_active());
    assert_eq!(cluster.policy.status.groups["a"].updating, ["a-00"]);
    cluster.act("a-00", "");
    assert_eq!(cluster.step_by_policy(), [""; 0]);
    assert!(!cluster.policy.is_active());
}

#[test]
fn a_rollout_of_an_operator_comes_first_and_no_failure_is_forgotten_meanwhile() {
    let mut cluster = cluster(&[("a", 2), ("b", 1)], AUTOMATIC);
    assert_eq!(cluster.step_by_policy(), ["a-00", "b-00"]);
    cluster.act("a-00", "kubelet is dead");
    assert_eq!(cluster.step_after(Some("r-1")), [""; 0]);
    assert!(cluster.policy.status.is_at_work(), "b-00 finishes first");
    cluster.act("b-00", "");
    assert_eq!(cluster.step_after(Some("r-1")), [""; 0]);
    assert_eq!((cluster.policy.status.is_at_work(), cluster.policy.status.phase), (false, Phase::Paused));
    assert_eq!(cluster.policy.status.waits_for, "the rollout r-1 comes first");
    // The node a-00 fails in the operator's rollout, too. This outcome replaces the outcome of the policy's order. Then the operator's
    // rollout is aborted.
    cluster.step();
    cluster.act("a-00", "kubelet is still dead");
    assert_eq!(cluster.step_by_policy(), [""; 0]);
    assert_eq!(cluster.policy.status.phase, Phase::Stopped);
}

#[derive(Clone, Debug)]
enum Happens {
    Succeeds(usize),
    Fails(usize),
    /// `kops update cluster --yes` writes a new configuration of a group.
    Changes(bool),
    Pauses,
    Resumes,
    Turns(usize),
    ControllerEnds,
    Passes,
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        8 => any::<usize>().prop_map(Happens::Succeeds),
        1 => any::<usize>().prop_map(Happens::Fails),
        1 => any::<bool>().prop_map(Happens::Changes),
        1 => Just(Happens::Pauses),
        1 => Just(Happens::Resumes),
        1 => any::<usize>().prop_map(Happens::Turns),
        1 => Just(Happens::ControllerEnds),
        2 => Just(Happens::Passes),
    ]
}

proptest! {
    #[test]
    fn a_policy_orders_no_more_than_it_allows_and_no_failed_configuration_again(
        events in prop::collection::vec(happens(), 0..80),
        limit in 1u32..4,
    ) {
        let policy = format!("{{cluster: {{follow: automatic, maxUnavailable: {limit}, checkPodsAfter: 0}}, groups: {{b: {{follow: manual}}}}}}");
        let mut cluster = cluster(&[("masters", 2), ("a", 6), ("b", 2)], &policy);
        let mut failed: BTreeSet<(String, String)> = BTreeSet::new();
        let mut changes = 0;
        for event in events {
            let before = cluster.policy.status.ordered.clone();
            match event {
                Happens::ControllerEnds => {
                    cluster.policy = decide_by_policy(
                        &cluster.policy, &cluster.policy_state, None, 0, &cluster.members, &cluster.seen, cluster.now,
                    ).1;
                }
                _ => drop(cluster.step_by_policy()),
            }
            let status = &cluster.policy.status;
            prop_assert!(!status.groups.contains_key("b"));
            for (group, of_group) in &status.groups {
                let most = if group == "masters" { 1 } else { limit as usize };
                prop_assert!(of_group.updating.len() <= most, "{of_group:?}");
            }
            for (node, order) in &status.ordered {
                let is_new = before.get(node) != Some(order);
                prop_assert!(!is_new || cluster.policy_state.state == State::Running, "{node} begins in a pause");
                prop_assert!(!is_new || !failed.contains(&(node.clone(), order.hash.clone())), "{node} tries again");
                prop_assert!(!order.may_go_back && !node.starts_with('b'));
            }
            let at_work: Vec<String> = cluster
                .members
                .iter()
                .filter(|member| {
                    Order::read(&member.order)
                        .is_some_and(|order| member.outcome.as_ref().is_none_or(|outcome| !outcome.is_of(&order)))
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
                        let order = Order::read(&cluster.of_name(&node).order).unwrap();
                        cluster.act(&node, "it broke");
                        // If the order is of an attempt before the last `resume`, the node may try again.
                        if order.attempt == cluster.policy_state.attempt_of(&order.rollout) {
                            failed.insert((node, order.hash));
                        }
                    }
                }
                Happens::Changes(is_a) => {
                    changes += 1;
                    let group = if is_a { "a" } else { "masters" };
                    cluster.seen.current.insert(group.to_owned(), Ok(format!("{changes}=")));
                }
                Happens::Pauses => cluster.policy_state.state = State::Paused,
                Happens::Resumes => {
                    cluster.policy_state = cluster.policy_state.resumed(&cluster.policy.status.rollout, "");
                    failed.clear();
                }
                Happens::Turns(number) => {
                    let count = cluster.members.len();
                    let member = &mut cluster.members[number % count];
                    member.is_ready = !member.is_ready;
                }
                Happens::ControllerEnds => {}
                Happens::Passes => cluster.now += Duration::seconds(60),
            }
        }
        // Once the operator resumes, and all machines are back and succeed, all automatic groups are current.
        cluster.policy_state = cluster.policy_state.resumed(&cluster.policy.status.rollout, "");
        cluster.now += Duration::seconds(i64::from(Rollout::node_timeout()) + 1);
        for member in &mut cluster.members {
            member.is_ready = true;
        }
        for _ in 0..100 {
            cluster.step_by_policy();
            for node in cluster.policy.status.ordered.keys().cloned().collect::<Vec<_>>() {
                cluster.act(&node, "");
            }
        }
        prop_assert_eq!(cluster.policy.status.phase, Phase::Done, "{:?}", cluster.policy.status);
    }
}
