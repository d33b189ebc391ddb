//! The standing policy: which groups follow their current configuration without a command, and how.
//!
//! The operator writes the policy, as YAML, under the key `policy` of the ConfigMap. `fleet rollout` writes [`PolicyState`], and
//! the controller [`PolicyStatus`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use kops_agent_spec::invalid::Invalid;
use kops_agent_spec::yaml;
use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};

use super::course::{Course, Settings};
use super::decide::{Decision, Member, Seen, decide_course};
use super::order::Task;
use super::reboot::{Blockers, Boots, LastReboot, decide_reboots};
use super::status::{Phase, Status};
use super::wanted::{DrainMode, MaxUnavailable, Rollout, State};
use super::window::Window;
use kops_agent_spec::timestamp;

/// The ConfigMap's key with the operator's [`Policy`].
pub const POLICY_KEY: &str = "policy";
/// The ConfigMap's key with the [`PolicyState`].
pub const POLICY_STATE_KEY: &str = "policy-state";
/// The ConfigMap's key with the [`PolicyStatus`].
pub const POLICY_STATUS_KEY: &str = "policy-status";

/// Whether nodes act without an operator's command: take a new configuration of their group, or do a reboot that they require.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Follow {
    #[default]
    Manual,
    Automatic,
}

/// The default of `reboot_interval`, in seconds: a day.
const REBOOT_INTERVAL: u32 = 86_400;
/// The shortest `reboot_interval`, in seconds.
const SHORTEST_REBOOT_INTERVAL: u32 = 3600;

/// Reads `follow` or `reboot` from the policy's settings of the cluster or of one group.
type Automatic = fn(&GroupPolicy) -> Option<Follow>;
const FOLLOW: Automatic = |part| part.follow;
const REBOOT: Automatic = |part| part.reboot;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Policy {
    /// The settings of each group, unless `groups` has a different setting for that group.
    #[serde(default)]
    pub cluster: GroupPolicy,
    /// The settings that differ for a group, by the group's name.
    #[serde(default)]
    pub groups: BTreeMap<String, GroupPolicy>,
    /// The conditions that keep nodes from a reboot.
    #[serde(default, skip_serializing_if = "Blockers::is_none")]
    pub blocked_by: Blockers,
}

/// The settings of a policy. If a group lacks a setting, `cluster` decides. If `cluster` also lacks the setting, the default
/// of `fleet rollout start` applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GroupPolicy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follow: Option<Follow>,
    /// Whether a node that requires a reboot reboots without an operator's command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reboot: Option<Follow>,
    /// The shortest time between two automatic reboots of a node, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reboot_interval: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<MaxUnavailable>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canary: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainMode>,
    /// How long a node waits for each changed component to become healthy before it rolls back, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_timeout: Option<u32>,
    /// The time after which a node without a result has failed, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_timeout: Option<u32>,
    /// How long a changed node is Ready before its pods are checked, in seconds; 0 for never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check_pods_after: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub windows: Option<Vec<Window>>,
}

/// The result of the operator's `fleet rollout pause` and `resume` for the policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicyState {
    pub state: State,
    /// The ID of the automatic rollout that was resumed last; empty for none.
    #[serde(default)]
    pub rollout: String,
    /// The attempt of the rollout that `rollout` names. All other automatic rollouts are in their first attempt.
    #[serde(default = "first_attempt")]
    pub attempt: u32,
    /// The ID of the automatic reboots that were resumed last; empty for none. Earlier versions of kops-agent reject this field and
    /// `attemptOfReboots`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reboots: String,
    /// The attempt of the reboots that `reboots` names. All other automatic reboots are in their first attempt.
    #[serde(default = "first_attempt", skip_serializing_if = "is_first_attempt")]
    pub attempt_of_reboots: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference.
fn is_first_attempt(attempt: &u32) -> bool {
    *attempt == first_attempt()
}

const fn first_attempt() -> u32 {
    1
}

/// The controller's status for the policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyStatus {
    /// The policy in force: the last valid policy.
    pub accepted: Policy,
    /// Why the policy of the operator was refused; empty if the policy was accepted.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub refused: String,
    /// Groups that the policy names, but to which no Node belongs.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub unknown_groups: BTreeSet<String>,
    /// The status of the automatic rollout.
    pub status: Status,
    /// The status of the automatic reboots.
    #[serde(skip_serializing_if = "Status::is_none")]
    pub reboots: Status,
}

impl Default for PolicyState {
    fn default() -> PolicyState {
        PolicyState {
            state: State::Running,
            rollout: String::new(),
            attempt: first_attempt(),
            reboots: String::new(),
            attempt_of_reboots: first_attempt(),
        }
    }
}

impl PolicyState {
    /// The attempt of the automatic rollout with this ID, or of the automatic reboots with this ID.
    pub fn attempt_of(&self, rollout: &str) -> u32 {
        match rollout {
            _ if self.rollout == rollout => self.attempt,
            _ if self.reboots == rollout => self.attempt_of_reboots,
            _ => first_attempt(),
        }
    }

    /// The state after `fleet rollout resume`: failed nodes of these automatic rollouts and reboots try again.
    pub fn resumed(&self, rollout: &str, reboots: &str) -> PolicyState {
        PolicyState {
            state: State::Running,
            rollout: rollout.to_owned(),
            attempt: self.attempt_of(rollout).saturating_add(1),
            reboots: reboots.to_owned(),
            attempt_of_reboots: match reboots {
                "" => first_attempt(),
                reboots => self.attempt_of(reboots).saturating_add(1),
            },
        }
    }
}

impl Policy {
    /// Reads the operator's text. A text without a document is the default: all groups are manual. Fails if the text has an unknown
    /// field, or a value that `fleet rollout start` would refuse.
    pub fn read(text: &str) -> Result<Policy, Invalid> {
        let wrong = |problem: fmt::Arguments<'_>| Invalid::new(format!("the policy is not valid: {problem}"));
        let policy: Option<Policy> = yaml::from_str(text).map_err(|error| wrong(format_args!("{error}")))?;
        let policy = policy.unwrap_or_default();
        let parts = policy.groups.iter().map(|(name, part)| (format!("groups.{name}"), part));
        for (path, part) in parts.chain([("cluster".to_owned(), &policy.cluster)]) {
            for (field, seconds) in
                [("healthTimeout", part.health_timeout), ("nodeTimeout", part.node_timeout)]
            {
                if seconds == Some(0) {
                    return Err(wrong(format_args!("{path}.{field} is 0; set at least 1 second")));
                }
            }
            if let Some(seconds @ 0..SHORTEST_REBOOT_INTERVAL) = part.reboot_interval {
                return Err(wrong(format_args!(
                    "{path}.rebootInterval is {seconds}; set at least {SHORTEST_REBOOT_INTERVAL} seconds"
                )));
            }
        }
        policy.blocked_by.service().map_err(|problem| wrong(format_args!("blockedBy: {problem}")))?;
        Ok(policy)
    }

    /// Whether the nodes of a group do `what` without an operator's command.
    fn does(&self, what: Automatic, group: &str) -> bool {
        let of_group = self.groups.get(group).and_then(what);
        of_group.or(what(&self.cluster)).unwrap_or_default() == Follow::Automatic
    }

    /// Whether the policy makes any group automatic, even a group that does not exist yet.
    pub fn is_automatic(&self) -> bool {
        self.may(FOLLOW) || self.reboots()
    }

    /// Whether any group may reboot without an operator's command.
    pub fn reboots(&self) -> bool {
        self.may(REBOOT)
    }

    /// Whether any group may take a configuration without an operator's command.
    pub(super) fn follows(&self) -> bool {
        self.may(FOLLOW)
    }

    /// The shortest time between two automatic reboots of the same node of this group.
    fn reboot_interval(&self, group: &str) -> Duration {
        let of_group = self.groups.get(group).and_then(|part| part.reboot_interval);
        Duration::seconds(of_group.or(self.cluster.reboot_interval).unwrap_or(REBOOT_INTERVAL).into())
    }

    fn may(&self, what: Automatic) -> bool {
        self.does(what, "") || self.groups.keys().any(|group| self.does(what, group))
    }

    /// The settings of a group that does `what` without an operator's command. `None` for any other group.
    fn settings(&self, what: Automatic, group: &str) -> Option<Settings> {
        let (none, cluster) = (GroupPolicy::default(), &self.cluster);
        let own = self.groups.get(group).unwrap_or(&none);
        self.does(what, group).then(|| Settings {
            max_unavailable: own.max_unavailable.or(cluster.max_unavailable).unwrap_or_default(),
            canary: own.canary.or(cluster.canary).unwrap_or_default(),
            drain: own.drain.or(cluster.drain).unwrap_or_default(),
            // Only an operator's command takes a node back to an earlier configuration. Otherwise an old copy of the state store
            // could do that.
            may_go_back: false,
            health_timeout: own
                .health_timeout
                .or(cluster.health_timeout)
                .unwrap_or(Rollout::health_timeout()),
            node_timeout: own.node_timeout.or(cluster.node_timeout).unwrap_or(Rollout::node_timeout()),
            check_pods_after: own
                .check_pods_after
                .or(cluster.check_pods_after)
                .unwrap_or(Rollout::check_pods_after()),
            windows: own.windows.as_ref().or(cluster.windows.as_ref()).cloned().unwrap_or_default(),
        })
    }

    fn course(&self, task: Task, id: String, state: &PolicyState, hold: Option<String>) -> Course {
        let what = if task == Task::Reboot { REBOOT } else { FOLLOW };
        Course {
            elsewhere: 0,
            attempt: state.attempt_of(&id),
            id,
            state: if hold.is_some() { State::Paused } else { State::Running },
            hold,
            taken_back: BTreeSet::new(),
            is_of_policy: true,
            task,
            others: self.settings(what, ""),
            groups: self.groups.keys().map(|group| (group.clone(), self.settings(what, group))).collect(),
        }
    }
}

impl PolicyStatus {
    /// The status after the operator's policy was read. If the text is not a valid policy, the accepted policy stays in force.
    #[must_use]
    pub fn with_policy(&self, text: &str) -> PolicyStatus {
        let (accepted, refused) = match Policy::read(text) {
            Ok(policy) => (policy, String::new()),
            Err(problem) => (self.accepted.clone(), problem.to_string()),
        };
        PolicyStatus { accepted, refused, ..self.clone() }
    }

    /// Whether the policy decides about a node: the node's group takes new configurations automatically, or the node has an order
    /// of the policy.
    pub fn has_part(&self, group: &str, node: &str) -> bool {
        self.accepted.does(FOLLOW, group) || self.status.ordered.contains_key(node)
    }

    /// Whether the policy is active: it makes a group automatic, or a node has an order of the policy that is not finished.
    pub fn is_active(&self) -> bool {
        self.accepted.is_automatic() || self.status.is_at_work() || self.reboots.is_at_work()
    }
}

/// Decides the controller's next actions for the policy. `before` contains the policy. `first` is the ID of an open rollout of the
/// operator. During such a rollout, nodes that already have an order of the policy finish, and no other node begins. `elsewhere` is the
/// number of nodes with an order of an operator's rollout.
pub fn decide_by_policy(
    before: &PolicyStatus,
    state: &PolicyState,
    first: Option<&str>,
    elsewhere: usize,
    members: &[Member],
    seen: &Seen,
    now: OffsetDateTime,
) -> (Decision, PolicyStatus) {
    let decide = |id: String| {
        let first = first.map(|rollout| format!("the rollout {rollout}"));
        let elsewhere = elsewhere + before.reboots.ordered.len();
        let course = before.accepted.course(Task::Configuration, id, state, hold(first, state));
        let course = Course { elsewhere, ..course };
        decide_course(&course, members, seen, &before.status, now)
    };
    let last = &before.status;
    let fresh = format!("policy-{}", timestamp(now));
    let mut decision = decide(if last.rollout.is_empty() { fresh.clone() } else { last.rollout.clone() });
    // A node acknowledges an order by the rollout's ID. So a rollout of the next configuration gets a new ID.
    if last.phase == Phase::Done && decision.status.phase != Phase::Done {
        decision = decide(fresh);
    }
    let groups: BTreeSet<&str> = members.iter().map(|member| member.group.as_str()).collect();
    let unknown = before.accepted.groups.keys().filter(|group| !groups.contains(group.as_str()));
    let status = PolicyStatus {
        unknown_groups: unknown.cloned().collect(),
        status: decision.status.clone(),
        ..before.clone()
    };
    (decision, status)
}

/// Some nodes require a reboot. Decides which of them the policy reboots now. The parameters are as in [`decide_by_policy`], except that
/// `first` names the rollout or the change that has priority over these reboots. The decision contains the new status of the reboots.
pub(super) fn decide_reboots_by_policy(
    before: &PolicyStatus,
    state: &PolicyState,
    first: Option<String>,
    elsewhere: usize,
    members: &[Member],
    seen: &Seen,
    now: OffsetDateTime,
) -> Decision {
    let (policy, last) = (&before.accepted, &before.reboots);
    let is_over = last.ordered.is_empty();
    let current = (!is_over).then_some(last.rollout.as_str());
    let members: Vec<Member> = members
        .iter()
        .map(|member| {
            let interval = policy.reboot_interval(&member.group);
            let holds = |reboot: &LastReboot| reboot.holds(member, current, interval, now);
            let held = member.last_reboot.as_ref().and_then(holds).unwrap_or_default();
            Member { held, ..member.clone() }
        })
        .collect();
    let require = members.iter().filter(|member| {
        member.requires_reboot && policy.does(REBOOT, &member.group) && !member.group.is_empty()
    });
    let require = require.map(|member| (member.node.clone(), member.boot_id.clone()));
    let ordered = last.ordered.iter().map(|(node, order)| (node.clone(), order.boot_id.clone()));
    // After a node has rebooted for its order, the node requires no reboot, but the order may not be finished yet. So `boots` also has all
    // nodes with an order.
    let boots: Boots = require.chain(ordered).collect();
    let decide = |id: String| {
        let elsewhere = elsewhere + before.status.ordered.len();
        let course = policy.course(Task::Reboot, id, state, hold(first.clone(), state));
        let course = Course { elsewhere, ..course };
        decide_reboots(&course, &boots, &policy.blocked_by, (&members, seen), last, now)
    };
    let fresh = format!("reboots-{}", timestamp(now));
    let decision = decide(if last.is_none() { fresh.clone() } else { last.rollout.clone() });
    // A rollout is over once no node is at work and no node has failed. The next order then begins a new rollout.
    if is_over && !decision.orders.is_empty() { decide(fresh) } else { decision }
}

/// Why the policy starts no node now; `None` if it may start nodes. `first` names the rollout or the change that has priority.
fn hold(first: Option<String>, state: &PolicyState) -> Option<String> {
    match (first, state.state) {
        (Some(first), _) => Some(format!("{first} comes first")),
        (None, State::Running) => None,
        (None, State::Paused | State::Aborted) => {
            Some("an operator has paused it; `kops-agent fleet rollout resume` continues it".to_owned())
        }
    }
}

#[cfg(test)]
mod tests;
