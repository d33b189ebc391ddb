//! The state of a cluster's nodes, as their Nodes report it, and the machines that their groups want.
//!
//! `kops_agent_cluster::fleet` decides the content of a node's report, and the conclusions from all reports. `kops-agent fleet`
//! shows them.

pub mod names;
pub mod nodes;
pub mod slots;
pub mod wanted_machines;
pub mod watching;

pub(crate) use wanted_machines::Publisher;
