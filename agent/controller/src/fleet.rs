//! The state of a cluster's nodes, as their Nodes report it: `status` shows all nodes, and `plan` the changes that wait for
//! them.
//!
//! `kops_agent_cluster::fleet` decides the content of a node's report, and the conclusions from all reports.

mod args;
mod nodes;
mod planning;
mod slots;
mod status;
pub(crate) mod table;
mod wanted_machines;
mod watching;

pub use args::{FleetPlanArgs, FleetStatusArgs};
pub(crate) use nodes::{all as all_nodes, groups_of_nodes};
pub use planning::plan;
pub use status::status;
pub(crate) use wanted_machines::Publisher;
