//! What is told of a run.

use kops_agent_plan::diff::{Kept, Summary};
use kops_agent_plan::resource::ResourceId;

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Report {
    /// The resources that were dealt with, in order.
    pub applied: Vec<ResourceId>,
    pub summary: Summary,
    /// The units whose start was asked for and that take their time; nothing of the node depends on them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub starting: Vec<String>,
    /// What was left as it is, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Kept>,
}
