//! The rollout that the operator requests: the key `rollout` of the ConfigMap.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use kops_agent_spec::invalid::Invalid;
use serde::{Deserialize, Serialize};

use super::order::Task;
use super::program::WantedProgram;
use super::reboot::{Blockers, Boots};
use super::window::Window;
use kops_agent_spec::go_yaml::is_zero;

/// The name of the ConfigMap that contains a rollout. Its namespace is [`crate::pacing::NAMESPACE`].
pub const CONFIG_MAP: &str = "rollout";
/// The ConfigMap's key with the operator's [`Rollout`].
pub const ROLLOUT_KEY: &str = "rollout";
/// The ConfigMap's key with the status that the controller writes.
pub const STATUS_KEY: &str = "status";
const HUNDRED: u32 = 100;

/// A rollout as the operator started it. Only `fleet rollout` writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rollout {
    /// Each started rollout has a new ID.
    pub id: String,
    pub state: State,
    /// Counts the starts and resumptions of the rollout, from 1. A failed node retries only in a later attempt.
    pub attempt: u32,
    /// The instance groups that the rollout changes; empty for all groups.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub instance_groups: BTreeSet<String>,
    #[serde(default)]
    pub max_unavailable: MaxUnavailable,
    /// The number of canaries: the workers of each group that change before all other workers.
    #[serde(default)]
    pub canary: u32,
    #[serde(default)]
    pub drain: DrainMode,
    /// Whether nodes may return to a configuration that they had before.
    #[serde(default)]
    pub may_go_back: bool,
    /// The nodes that reboot. `None` if the rollout brings configurations or a version of kops-agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reboot: Option<Boots>,
    /// The version of kops-agent that the rollout brings to nodes. `None` if the rollout brings configurations or reboots nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<WantedProgram>,
    /// The conditions that keep nodes from a reboot.
    #[serde(default, skip_serializing_if = "Blockers::is_none")]
    pub blocked_by: Blockers,
    /// How long a node waits for each changed component to become healthy before it rolls back, in seconds.
    #[serde(default = "Rollout::health_timeout")]
    pub health_timeout: u32,
    /// The timeout of a node's order, in seconds. A node without a result after this time has failed.
    #[serde(default = "Rollout::node_timeout")]
    pub node_timeout: u32,
    /// How many seconds a changed node must be Ready before the controller checks its pods. The check compares the node's pods before the
    /// order with its pods after the order. 0 for no check.
    #[serde(default = "Rollout::check_pods_after")]
    pub check_pods_after: u32,
    /// How long the canaries must be healthy with a new version of kops-agent before other workers begin, in seconds; 0 for no wait.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub observe: u32,
    /// The windows in which nodes may begin; empty for always. A node that has begun also finishes outside a window.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<Window>,
}

impl Rollout {
    /// The default of `node_timeout`, in seconds. It is long, because a run may wait for a drain and for its slot (the permission to
    /// restart components), and because health checks take minutes.
    pub const fn node_timeout() -> u32 {
        3600
    }

    /// The default of `health_timeout` in seconds: the time that kubelet allows the API server to start.
    pub const fn health_timeout() -> u32 {
        300
    }

    /// The default of `check_pods_after`, in seconds. By this time, a container that crashes at its start is in its third back-off.
    pub const fn check_pods_after() -> u32 {
        60
    }

    /// The default of `fleet upgrade --observe`, in seconds.
    pub const fn observe() -> u32 {
        300
    }

    pub fn task(&self) -> Task {
        match (&self.reboot, &self.program) {
            (Some(_), _) => Task::Reboot,
            (None, Some(_)) => Task::Program,
            (None, None) => Task::Configuration,
        }
    }

    pub fn has_group(&self, group: &str) -> bool {
        !group.is_empty() && (self.instance_groups.is_empty() || self.instance_groups.contains(group))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    Running,
    /// No further node gets an order. A node that has begun continues until it has finished. A node that has not begun loses its order if
    /// the order can expire ([`Task::expires`]).
    Paused,
    /// No further node gets an order. A node that has begun continues until it has finished. All other nodes lose their orders.
    Aborted,
}

/// Whether a node is drained before a change that restarts its components.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DrainMode {
    /// Drains the node for a minor upgrade of kubelet and for a major upgrade of containerd.
    #[default]
    Auto,
    Always,
    Never,
}

/// How many nodes of a group may be unavailable at a time: a number, or a share of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Text", into = "String")]
pub enum MaxUnavailable {
    Nodes(u32),
    /// A share of the group, from 1 to 100 percent.
    Percent(u32),
}

impl Default for MaxUnavailable {
    fn default() -> MaxUnavailable {
        MaxUnavailable::Nodes(1)
    }
}

impl MaxUnavailable {
    /// How many nodes of a group with `nodes` nodes may be unavailable at a time. The minimum is 1, because otherwise no node could change.
    pub fn among(self, nodes: usize) -> usize {
        let wanted = match self {
            MaxUnavailable::Nodes(wanted) => usize::try_from(wanted).unwrap_or(usize::MAX),
            MaxUnavailable::Percent(percent) => nodes.saturating_mul(percent as usize) / HUNDRED as usize,
        };
        wanted.max(1)
    }
}

impl FromStr for MaxUnavailable {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<MaxUnavailable, Invalid> {
        let wrong = || {
            Invalid::new(format!("{text:?} is neither a number of nodes (1 or more) nor a share (1%-100%)"))
        };
        let (digits, is_share) = text.strip_suffix('%').map_or((text, false), |digits| (digits, true));
        let number = digits.parse().map_err(|_| wrong())?;
        match (number, is_share) {
            (1.., false) => Ok(MaxUnavailable::Nodes(number)),
            (1..=HUNDRED, true) => Ok(MaxUnavailable::Percent(number)),
            _ => Err(wrong()),
        }
    }
}

/// A number of nodes, or a share. YAML reads `2` as a number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Text {
    Number(u32),
    Share(String),
}

impl TryFrom<Text> for MaxUnavailable {
    type Error = Invalid;

    fn try_from(text: Text) -> Result<MaxUnavailable, Invalid> {
        match text {
            Text::Number(number) => number.to_string().parse(),
            Text::Share(share) => share.parse(),
        }
    }
}

impl From<MaxUnavailable> for String {
    fn from(wanted: MaxUnavailable) -> String {
        wanted.to_string()
    }
}

impl fmt::Display for MaxUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MaxUnavailable::Nodes(nodes) => write!(f, "{nodes}"),
            MaxUnavailable::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_share_is_rounded_down_and_at_least_one_node() {
        for (text, nodes, of) in [("5%", 1000, 50), ("5%", 39, 1), ("5%", 3, 1), ("100%", 7, 7), ("3", 2, 3)]
        {
            assert_eq!(text.parse::<MaxUnavailable>().unwrap().among(nodes), of, "{text} of {nodes}");
            assert_eq!(text.parse::<MaxUnavailable>().unwrap().to_string(), text);
        }
        for wrong in ["0", "0%", "101%", "-1", "", "%", "a", "1.5"] {
            assert!(wrong.parse::<MaxUnavailable>().is_err(), "{wrong}");
        }
    }
}
