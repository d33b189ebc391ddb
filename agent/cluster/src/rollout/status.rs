//! The state of a rollout: the key `status` of the ConfigMap.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::order::Order;
use super::pods::PodCheck;
use super::program::Observation;
use super::wanted::{Rollout, State};
use kops_agent_spec::go_yaml::is_zero;

/// The state of a rollout, as the controller writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The rollout's ID.
    pub rollout: String,
    /// The attempt of the rollout that this status describes.
    #[serde(default)]
    pub attempt: u32,
    pub phase: Phase,
    /// Why no node has an order although nodes wait; empty if a node has an order.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub waits_for: String,
    pub groups: BTreeMap<String, GroupStatus>,
    /// Nodes without the label of an instance group. These nodes get no order.
    #[serde(default, skip_serializing_if = "FirstNodes::is_none")]
    pub unlabelled: FirstNodes,
    /// Nodes that do not report which authorities they trust, in groups for which the rollout compares authorities. Such a node gets no
    /// order if only its authorities may be outdated.
    #[serde(default, skip_serializing_if = "FirstNodes::is_none")]
    pub without_authorities: FirstNodes,
    /// Nodes that get no order to upgrade kops-agent. Either a node does not report the SHA-256 of its kops-agent, or the program file has
    /// no program for the node's architecture.
    #[serde(default, skip_serializing_if = "FirstNodes::is_none")]
    pub left_out: FirstNodes,
    /// The nodes with an order, each with the order. The controller uses these copies for its decisions, because a
    /// kubelet can change the annotations of its own Node.
    #[serde(default)]
    pub ordered: BTreeMap<String, Order>,
    /// The nodes whose order has failed. This list is necessary, because the outcome of a later rollout replaces the outcome in the Node.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub failed: BTreeSet<String>,
    /// The canaries of an upgrade of kops-agent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub canaries: BTreeMap<String, Observation>,
    /// The nodes that failed to reboot, each with the boot in which the node failed. A node that is Ready in a later boot no longer counts
    /// as failed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failed_in: BTreeMap<String, String>,
    /// The number of remaining turns, for [`Status::estimate`]. A turn is a set of nodes that change at the same time. A turn in progress
    /// counts as a whole turn. 0 if no turn remains, or if the nodes wait for an unknown time.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub turns_left: usize,
    /// For each of the last finished orders: the time from the order until its node was done, in seconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order_seconds: Vec<u32>,
    /// For each node with an order: the check that compares its pods before and after the order.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pods: BTreeMap<String, PodCheck>,
}

/// Some nodes: their number, and the names of the first ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FirstNodes {
    pub nodes: usize,
    pub first: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    #[default]
    Running,
    /// The operator has paused the rollout.
    Paused,
    /// A node failed, no node is at work, and no other node may begin.
    Stopped,
    Aborted,
    Done,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Running => "running",
            Phase::Paused => "paused",
            Phase::Stopped => "stopped",
            Phase::Aborted => "aborted",
            Phase::Done => "done",
        })
    }
}

impl FirstNodes {
    /// Maximum number of names. This limit keeps the status small, because a ConfigMap has at most 1 MiB.
    const MOST_NAMED: usize = 10;

    pub(super) fn from_nodes<'a>(nodes: impl Iterator<Item = &'a str>) -> FirstNodes {
        let mut named = FirstNodes::default();
        for node in nodes {
            named.nodes += 1;
            if named.first.len() < Self::MOST_NAMED {
                named.first.push(node.to_owned());
            }
        }
        named
    }

    pub fn is_none(&self) -> bool {
        self.nodes == 0
    }
}

/// The nodes of a group, by progress.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupStatus {
    /// The hash of the group's current configuration; empty if it is not known.
    pub hash: String,
    pub nodes: usize,
    pub done: usize,
    /// Nodes that get no order of this rollout: [`Status::left_out`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: usize,
    pub updating: Vec<String>,
    /// Nodes that need an order and have none: they do not run the current configuration, or trust other CAs than new machines do.
    pub waiting: usize,
    /// Nodes that run the current configuration, but trust other CAs than new machines do.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub other_authorities: usize,
    pub failed: usize,
    /// The first canaries: nodes that got their orders while the other workers of the group waited.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub canaries: Vec<String>,
    /// How many canaries must still be done before other workers begin. 0 while the group's windows are closed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub canaries_left: usize,
    /// The first failed nodes, each with its problem.
    pub failures: BTreeMap<String, String>,
    /// The first waiting nodes that may not begin, each with the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub held: BTreeMap<String, String>,
    /// The first nodes that continue a reboot although reboots are blocked now, because the nodes already drain or are not Ready. Each
    /// comes with the reason for the block.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub finishing: BTreeMap<String, String>,
    /// Why the group's current configuration is not known; empty if it is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub problem: String,
}

impl GroupStatus {
    pub(super) fn is_done(&self) -> bool {
        self.problem.is_empty() && self.done + self.left_out == self.nodes
    }
}

impl Status {
    /// Whether no rollout has begun.
    pub fn is_none(&self) -> bool {
        self.rollout.is_empty()
    }

    /// Whether this is the status of this rollout's current attempt. The status of an earlier rollout or attempt does
    /// not count.
    pub fn answers(&self, rollout: &Rollout) -> bool {
        self.rollout == rollout.id && self.attempt == rollout.attempt
    }

    /// Whether this is the status of this rollout's current attempt, and the rollout is in this phase.
    pub fn is_in(&self, phase: Phase, rollout: &Rollout) -> bool {
        self.answers(rollout) && self.phase == phase
    }

    pub fn is_done(&self, rollout: &Rollout) -> bool {
        self.is_in(Phase::Done, rollout)
    }

    /// Whether the rollout is done, or aborted with no node at work. If so, the status does not change until an operator starts or resumes
    /// a rollout.
    pub fn is_over(&self, rollout: &Rollout) -> bool {
        self.is_done(rollout)
            || rollout.state == State::Aborted && self.is_in(Phase::Aborted, rollout) && !self.is_at_work()
    }

    /// Whether any node has an order that is not finished.
    pub fn is_at_work(&self) -> bool {
        self.groups.values().any(|group| !group.updating.is_empty())
    }
}
