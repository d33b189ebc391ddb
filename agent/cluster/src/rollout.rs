//! A rollout: takes the nodes of a cluster to the current configuration of their groups, a few at a time. Another rollout reboots
//! nodes, or takes them to another version of kops-agent.
//!
//! `kops-agent fleet rollout` writes the operator's [`Rollout`] into a ConfigMap. The leading controller [`decide`]s which
//! nodes are next, and writes an [`Order`] into the Node of each. The node acts, and acknowledges with an [`Outcome`] in
//! its own Node. So all state is in the ConfigMap and the Nodes, and any process may end at any time.
//!
//! The operator's [`Policy`] in the same ConfigMap starts rollouts without a command. [`decide_all`] decides for both. [`shown`] makes a table of both.

mod arbitration;
mod course;
mod decide;
mod estimate;
mod order;
mod order_validity;
mod pods;
mod policy;
mod program;
mod progress;
mod reboot;
pub mod shown;
mod status;
#[cfg(test)]
mod testing;
mod turns;
mod wanted;
mod window;

pub use arbitration::{Actions, RolloutAndPolicy, decide_all};
pub use decide::{ApiServer, Canary, Decision, Member, Rank, Seen, decide};
pub use estimate::Estimate;
pub use order::{ORDER, OUTCOME, Order, Outcome, Task};
pub use order_validity::OrderValidity;
pub use pods::{Container, Containers, PodCheck};
pub use policy::{
    Follow, GroupPolicy, POLICY_KEY, POLICY_STATE_KEY, POLICY_STATUS_KEY, Policy, PolicyState, PolicyStatus,
    decide_by_policy,
};
pub use program::{
    Download, LARGEST_PROGRAM_FILE, MOST_CANARIES, Observation, PROGRAM_FILE, ProgramFile, UpgradeChoice,
    WantedProgram,
};
pub use reboot::{Blocked, Blockers, Boots, LAST_REBOOT, LastReboot, MOST_BOOTS, boots_to_end};
pub use status::{GroupStatus, Phase, Status};
pub use wanted::{CONFIG_MAP, DrainMode, MaxUnavailable, ROLLOUT_KEY, Rollout, STATUS_KEY, State};
pub use window::Window;
