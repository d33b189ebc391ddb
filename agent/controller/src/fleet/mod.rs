//! How a cluster's machines are, as their Nodes tell it: `tell` is a node that says it of itself, `status` shows it of all.
//!
//! What a node says, and what follows from what all say, is decided in `kops_agent_plan::fleet`.

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
