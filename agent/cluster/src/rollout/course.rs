//! The settings of a decision: an operator's rollout, or the standing policy.

use std::collections::{BTreeMap, BTreeSet};

use time::{Duration, OffsetDateTime};

use super::decide::Member;
use super::order::{Order, Task};
use super::program::MOST_CANARIES;
use super::reboot::has_ended;
use super::wanted::{DrainMode, MaxUnavailable, Rollout, State};
use super::window::Window;
use kops_agent_spec::timestamp;

/// The rollout settings of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) max_unavailable: MaxUnavailable,
    pub(super) canary: u32,
    pub(super) drain: DrainMode,
    pub(super) may_go_back: bool,
    pub(super) health_timeout: u32,
    pub(super) node_timeout: u32,
    pub(super) check_pods_after: u32,
    /// When nodes may begin; empty for always.
    pub(super) windows: Vec<Window>,
}

/// A rollout with the settings of each group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Course {
    pub(super) id: String,
    pub(super) state: State,
    pub(super) attempt: u32,
    /// Why no node may begin; `None` if nodes may begin.
    pub(super) hold: Option<String>,
    /// The nodes whose open orders are taken back, because their reboot is blocked.
    pub(super) taken_back: BTreeSet<String>,
    /// The number of nodes with an order of a different rollout.
    pub(super) elsewhere: usize,
    /// Whether this is a rollout of the policy, not of an operator. No operator watches the policy, so a node's failure is forgotten once
    /// the wanted configuration has changed.
    pub(super) is_of_policy: bool,
    pub(super) task: Task,
    /// The settings of all groups that `groups` does not name; `None` if those groups are not part of the rollout.
    pub(super) others: Option<Settings>,
    pub(super) groups: BTreeMap<String, Option<Settings>>,
}

impl Course {
    /// The settings of a group; `None` if the group is not part of the rollout.
    pub(super) fn settings(&self, group: &str) -> Option<&Settings> {
        self.groups.get(group).unwrap_or(&self.others).as_ref()
    }

    pub(super) fn has_rebooted(&self, member: &Member, order: &Order) -> bool {
        self.task == Task::Reboot && has_ended(member, &order.boot_id)
    }

    /// Whether to take back an order that its node has not finished. If the node has rebooted for its order, the order stays, so that the
    /// node can finish.
    pub(super) fn takes_back(&self, member: &Member, order: &Order) -> bool {
        if self.has_rebooted(member, order) {
            return false;
        }
        match self.state {
            State::Aborted => true,
            State::Paused => self.task.expires(),
            State::Running => {
                let is_part = self.settings(&member.group).is_some();
                self.task.expires() && (!is_part || self.taken_back.contains(&member.node))
            }
        }
    }
}

impl Settings {
    /// The time after which a node without a result has failed.
    pub(super) fn timeout(&self) -> Duration {
        Duration::seconds(self.node_timeout.into())
    }

    /// Why no node may begin now: all windows are closed. `None` if a window is open, or if the group has no windows.
    pub(super) fn closed(&self, now: OffsetDateTime) -> Option<String> {
        if self.windows.is_empty() || self.windows.iter().any(|window| window.is_open(now)) {
            return None;
        }
        let next = self.windows.iter().filter_map(|window| Some((window.opens(now)?, window)));
        Some(match next.min_by_key(|(opens, _)| *opens) {
            Some((opens, window)) => format!("its window opens at {} ({window})", timestamp(opens)),
            None => "its windows do not open within two weeks".to_owned(),
        })
    }
}

impl From<&Rollout> for Course {
    fn from(rollout: &Rollout) -> Course {
        let settings = Settings {
            max_unavailable: rollout.max_unavailable,
            canary: if rollout.program.is_some() {
                rollout.canary.min(MOST_CANARIES)
            } else {
                rollout.canary
            },
            drain: rollout.drain,
            may_go_back: rollout.may_go_back,
            health_timeout: rollout.health_timeout,
            node_timeout: rollout.node_timeout,
            check_pods_after: rollout.check_pods_after,
            windows: rollout.windows.clone(),
        };
        let groups: BTreeMap<String, Option<Settings>> =
            rollout.instance_groups.iter().map(|group| (group.clone(), Some(settings.clone()))).collect();
        Course {
            id: rollout.id.clone(),
            state: rollout.state,
            attempt: rollout.attempt,
            hold: match rollout.state {
                State::Running => None,
                State::Paused => Some("the rollout is paused".to_owned()),
                State::Aborted => Some("the rollout was aborted".to_owned()),
            },
            taken_back: BTreeSet::new(),
            elsewhere: 0,
            is_of_policy: false,
            task: rollout.task(),
            others: groups.is_empty().then_some(settings),
            groups,
        }
    }
}
