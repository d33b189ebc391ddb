//! Rollouts: takes the nodes of a cluster to the current configuration of their groups, a few at a time.
//!
//! `kops_agent_cluster::rollout` decides. The leading controller runs `Rollouts`, a node waits for its
//! `kops_agent_kube::own_node::Orders`, and
//! `kops-agent fleet rollout` runs the [`commands`].

mod args;
pub mod commands;
mod config_map;
mod current;
mod leading;
mod pods;
mod reboot;
mod table;

pub use args::{DrainArg, RolloutCommand, RolloutStartArgs, RolloutStatusArgs};
pub(crate) use leading::Rollouts;
pub use reboot::{RebootArgs, reboot};
