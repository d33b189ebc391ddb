//! The report of a run.

use kops_agent_plan::diff::{Kept, Summary};
use kops_agent_plan::resource::ResourceId;

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Report {
    /// The resources that the run handled, in order.
    pub applied: Vec<ResourceId>,
    pub summary: Summary,
    /// The units that are still starting. Nothing on the node depends on them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub starting: Vec<String>,
    /// The resources that were left unchanged, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Kept>,
}
