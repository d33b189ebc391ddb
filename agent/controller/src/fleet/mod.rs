//! The state of a cluster's nodes, as their Nodes report it. `tell` reports the state of this node; `status` shows all
//! nodes, and `plan` the changes that wait for them.
//!
//! `kops_agent_plan::fleet` decides what a node reports, and what follows from all reports.

use std::collections::BTreeSet;

use kube::Client;

use crate::api_error::ApiError;

mod args;
mod drain;
mod nodes;
mod planning;
mod slots;
mod status;
mod table;
mod telling;
mod watching;

pub use args::{FleetPlanArgs, FleetStatusArgs};
pub use drain::{OwnNode, Remaining};
pub use planning::plan;
pub use status::status;
pub use telling::{Told, Untold, tell};

/// The instance groups of a cluster's Nodes.
///
/// # Errors
/// The API server does not list Nodes, or does not answer.
pub(crate) async fn groups_of_nodes(client: Client) -> Result<BTreeSet<String>, ApiError> {
    let nodes = nodes::all(client).await?;
    Ok(nodes.into_iter().map(|node| node.group).filter(|group| !group.is_empty()).collect())
}
