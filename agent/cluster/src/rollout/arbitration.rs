//! Decides whether an operator's rollout or the policy gives the orders now.

use std::collections::{BTreeMap, BTreeSet};

use time::OffsetDateTime;

use super::decide::{Decision, Member, Seen, decide};
use super::order::{Order, Task};
use super::policy::{PolicyState, PolicyStatus, decide_by_policy, decide_reboots_by_policy};
use super::reboot::{Blockers, has_ended};
use super::status::{Phase, Status};
use super::wanted::{Rollout, State};

/// The operator's rollout and the policy in the ConfigMap, with their last written statuses.
#[derive(Clone, Debug)]
pub struct RolloutAndPolicy {
    /// The operator's rollout; `None` if there is no rollout, or if the rollout is over.
    pub rollout: Option<Rollout>,
    /// The last written status of the operator's rollout.
    pub status: Status,
    pub policy: PolicyStatus,
    pub policy_state: PolicyState,
}

/// The controller's next actions for the operator's rollout and for the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actions {
    /// The orders to write, by node. Both statuses must be written before the orders.
    pub orders: BTreeMap<String, Order>,
    /// The nodes whose orders are taken back.
    pub withdrawn: Vec<String>,
    /// The nodes whose pods must be listed first. The caller lists these pods and decides again before it writes anything.
    pub pods_to_list: BTreeSet<String>,
    /// The control planes whose API servers must be asked first. The caller puts the answers into [`Member::api_server`] and
    /// decides again before it writes anything.
    pub api_servers_to_ask: BTreeSet<String>,
    /// Conditions that may block reboots, which the caller must check first. The caller then decides again before it writes anything.
    pub blockers_to_check: Option<Blockers>,
    /// The status of the operator's rollout. `None` if there is no rollout or it is over. In both cases, the written status does not
    /// change.
    pub status: Option<Status>,
    pub policy: PolicyStatus,
}

impl RolloutAndPolicy {
    /// Whether there is nothing to decide until an operator acts.
    pub fn is_nothing(&self) -> bool {
        self.rollout.is_none() && !self.policy.is_active()
    }

    /// Whether a decision depends on current configurations. Rollouts that reboot nodes or change the version of kops-agent do not depend
    /// on configurations.
    pub fn takes_configurations(&self) -> bool {
        self.rollout.as_ref().is_some_and(|rollout| rollout.task() == Task::Configuration)
            || self.policy.accepted.follows()
            || self.policy.status.is_at_work()
    }

    /// Whether a node may get an order that depends on the state store. After a pause or an abort, no node may.
    pub fn may_order_by_store(&self) -> bool {
        let is_running =
            |rollout: &Rollout| rollout.task() != Task::Reboot && rollout.state == State::Running;
        self.rollout.as_ref().is_some_and(is_running)
            || self.policy.accepted.follows() && self.policy_state.state == State::Running
    }

    /// Whether the controller needs the current configuration of this member's group to decide about orders.
    pub fn has_part(&self, member: &Member) -> bool {
        self.rollout.as_ref().is_some_and(|rollout| rollout.has_group(&member.group))
            || self.policy.has_part(&member.group, &member.node)
    }
}

impl Actions {
    fn new(decision: Decision, status: Option<Status>, policy: PolicyStatus) -> Actions {
        let Decision { orders, withdrawn, pods_to_list, api_servers_to_ask, blockers_to_check, status: _ } =
            decision;
        Actions { orders, withdrawn, pods_to_list, api_servers_to_ask, blockers_to_check, status, policy }
    }

    /// The status to show. If there is an operator's rollout, this is the rollout's status. Without such a rollout, this is the status of
    /// the policy's reboots, if the reboots are in progress or stopped and the policy's rollout is not stopped. In all other cases, this is
    /// the status of the policy's rollout.
    pub fn active(&self) -> &Status {
        let PolicyStatus { status, reboots, .. } = &self.policy;
        let counts = reboots.is_at_work() || reboots.phase == Phase::Stopped;
        self.status.as_ref().unwrap_or(if counts && status.phase != Phase::Stopped {
            reboots
        } else {
            status
        })
    }
}

/// Decides for an operator's rollout that is not over, then for the policy's configurations, and then for the policy's reboots. A node has
/// an order of only one of these three.
pub fn decide_all(asked: &RolloutAndPolicy, members: &[Member], seen: &Seen, now: OffsetDateTime) -> Actions {
    let (policy, state) = (&asked.policy, &asked.policy_state);
    let mut first = asked.rollout.as_ref().map(|rollout| format!("the rollout {}", rollout.id));
    let are_at_work = policy.reboots.is_at_work();
    let mut actions = match &asked.rollout {
        Some(rollout) if are_at_work => {
            Actions::new(Decision::default(), Some(waiting(rollout, &policy.reboots)), policy.clone())
        }
        _ => decide_configurations(asked, members, seen, now),
    };
    if are_at_work && asked.rollout.is_none() {
        // The reboots in progress finish first. If a new configuration waits, no new reboot begins.
        if !actions.orders.is_empty() {
            first = Some("a new configuration".to_owned());
        }
        actions = Actions::new(Decision::default(), None, policy.clone());
    }
    let is_free = asked.rollout.is_none() && !actions.policy.status.is_at_work();
    if are_at_work || is_free && policy.accepted.reboots() {
        let elsewhere = asked.status.ordered.len();
        let decision = decide_reboots_by_policy(policy, state, first, elsewhere, members, seen, now);
        actions.orders.extend(decision.orders);
        actions.withdrawn.extend(decision.withdrawn);
        actions.pods_to_list.extend(decision.pods_to_list);
        actions.api_servers_to_ask.extend(decision.api_servers_to_ask);
        actions.blockers_to_check = decision.blockers_to_check;
        actions.policy.reboots = decision.status;
    } else if !policy.accepted.reboots() {
        actions.policy.reboots = Status::default();
    }
    let orphaned = orphaned(asked, &actions, members);
    actions.withdrawn.extend(orphaned);
    actions
}

/// The nodes with an order that no status contains. Such an order remains if an operator starts a new rollout before the controller has
/// taken this order back. Only orders that expire count ([`Task::expires`]).
fn orphaned(asked: &RolloutAndPolicy, actions: &Actions, members: &[Member]) -> Vec<String> {
    let of_rollout = actions.status.as_ref().or(asked.rollout.is_none().then_some(&asked.status));
    let statuses = [of_rollout, Some(&actions.policy.status), Some(&actions.policy.reboots)];
    let is_orphaned = |member: &&Member| {
        let Some(order) = Order::read(&member.order).filter(|order| order.task().expires()) else {
            return false;
        };
        let is_known = statuses
            .into_iter()
            .flatten()
            .any(|status| status.ordered.get(&member.node).is_some_and(|ordered| ordered.is_same(&order)));
        let is_written =
            actions.orders.contains_key(&member.node) || actions.withdrawn.contains(&member.node);
        let has_rebooted = order.task() == Task::Reboot && has_ended(member, &order.boot_id);
        !is_known && !member.has_answered(&order) && !is_written && !has_rebooted
    };
    members.iter().filter(is_orphaned).map(|member| member.node.clone()).collect()
}

fn decide_configurations(
    asked: &RolloutAndPolicy,
    members: &[Member],
    seen: &Seen,
    now: OffsetDateTime,
) -> Actions {
    let by_policy = |first| {
        let elsewhere = asked.status.ordered.len();
        decide_by_policy(&asked.policy, &asked.policy_state, first, elsewhere, members, seen, now)
    };
    let of_policy = asked.policy.status.ordered.len() + asked.policy.reboots.ordered.len();
    let is_at_work = asked.policy.status.is_at_work();
    let continues = is_at_work || asked.policy.accepted.follows();
    let (decision, status, policy) = match &asked.rollout {
        Some(rollout) => {
            let takes_configurations = rollout.task() == Task::Configuration;
            let of_rollout = (!is_at_work || !takes_configurations)
                .then(|| decide(rollout, members, seen, &asked.status, of_policy, now));
            match of_rollout {
                // An operator's reboots, or an operator's upgrade of kops-agent, may wait for weeks. Meanwhile, the policy rolls out
                // configurations.
                Some(waits) if !takes_configurations && waits.only_waits() && continues => {
                    let (decision, policy) = by_policy(None);
                    (decision, Some(waits.status), policy)
                }
                Some(decision) if !is_at_work || decision.blockers_to_check.is_some() => {
                    let status = decision.status.clone();
                    (decision, Some(status), asked.policy.clone())
                }
                of_rollout => {
                    let (decision, policy) = by_policy(Some(rollout.id.as_str()));
                    let before = || (asked.status.rollout == rollout.id).then(|| asked.status.clone());
                    let Status { canaries, order_seconds, .. } =
                        of_rollout.map(|decision| decision.status).or_else(before).unwrap_or_default();
                    let status = Status { canaries, order_seconds, ..waiting(rollout, &policy.status) };
                    (decision, Some(status), policy)
                }
            }
        }
        None if asked.policy.is_active() => {
            let (decision, policy) = by_policy(None);
            (decision, None, policy)
        }
        None => {
            let (unknown_groups, status) = (BTreeSet::new(), Status::default());
            let policy = PolicyStatus { unknown_groups, status, ..asked.policy.clone() };
            (Decision::default(), None, policy)
        }
    };
    Actions::new(decision, status, policy)
}

/// The status of an operator's rollout that waits until all nodes with an order of the policy have finished.
fn waiting(rollout: &Rollout, policy: &Status) -> Status {
    let at_work: Vec<&str> =
        policy.groups.values().flat_map(|group| &group.updating).map(String::as_str).collect();
    Status {
        rollout: rollout.id.clone(),
        attempt: rollout.attempt,
        phase: match rollout.state {
            State::Running => Phase::Running,
            State::Paused => Phase::Paused,
            State::Aborted => Phase::Aborted,
        },
        waits_for: format!("nodes that the policy is updating: {}", at_work.join(", ")),
        ..Status::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Cluster;
    use super::*;

    fn asked(cluster: &Cluster, rollout: Option<&Rollout>) -> RolloutAndPolicy {
        RolloutAndPolicy {
            rollout: rollout.cloned(),
            status: cluster.status.clone(),
            policy: cluster.policy.clone(),
            policy_state: cluster.policy_state.clone(),
        }
    }

    #[test]
    fn an_operators_rollout_waits_for_the_nodes_that_the_policy_has_at_work() {
        let mut cluster = Cluster::new(&[("a", 2)]);
        cluster.policy = cluster.policy.with_policy("cluster: {follow: automatic}");
        assert_eq!(cluster.step_by_policy(), ["a-00"]);
        let rollout = cluster.rollout.clone();
        let decide = |cluster: &Cluster, rollout| {
            decide_all(&asked(cluster, rollout), &cluster.members, &cluster.seen, cluster.now)
        };
        let actions = decide(&cluster, Some(&rollout));
        assert_eq!((actions.orders.len(), actions.withdrawn.len()), (0, 0));
        let status = actions.status.clone().unwrap_or_default();
        assert!(status.is_in(Phase::Running, &rollout));
        assert_eq!(status.waits_for, "nodes that the policy is updating: a-00");
        let aborted = Rollout { state: State::Aborted, ..rollout.clone() };
        let status = decide(&cluster, Some(&aborted)).status.unwrap_or_default();
        assert!(status.is_over(&aborted));

        cluster.act("a-00", "");
        cluster.policy = decide(&cluster, Some(&rollout)).policy;
        let actions = decide(&cluster, Some(&rollout));
        assert_eq!(actions.orders.keys().collect::<Vec<_>>(), ["a-01"]);
        assert_eq!(actions.orders["a-01"].rollout, rollout.id);
    }

    #[test]
    fn a_policy_without_automatic_groups_decides_nothing() {
        let cluster = Cluster::new(&[("a", 1)]);
        let asked = asked(&cluster, None);
        assert!(asked.is_nothing());
        let actions = decide_all(&asked, &cluster.members, &cluster.seen, cluster.now);
        assert_eq!(
            (actions.orders.len(), actions.status, actions.policy),
            (0, None, PolicyStatus::default())
        );
    }
}
