//! Rollouts: takes the nodes of a cluster to the current configuration of their groups, a few at a time.
//!
//! `kops_agent_cluster::rollout` decides. The leading controller runs `Rollouts`, a node waits for its
//! `kops_agent_kube::own_node::Orders`, and `kops-agent fleet rollout` changes the ConfigMap by [`Stored`].

mod blocking;
mod config_map;
mod current;
mod hashes;
mod leading;
pub mod operator;
mod pods;

pub use config_map::{Read, Stored};
pub(crate) use leading::Rollouts;
