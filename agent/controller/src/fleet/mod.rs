//! The state of a cluster's nodes, as their Nodes report it. `tell` reports the state of this node; `status` shows all
//! nodes.
//!
//! `kops_agent_plan::fleet` decides what a node reports, and what follows from all reports.

mod args;
mod drain;
mod nodes;
mod slots;
mod status;
mod table;
mod telling;
mod watching;

pub use args::FleetStatusArgs;
pub use drain::{OwnNode, Remaining};
pub use status::status;
pub use telling::{Told, Untold, tell};
