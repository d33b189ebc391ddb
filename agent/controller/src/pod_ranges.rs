//! The addresses of Nodes' pods, where kops-controller gives them (`enableCloudIPAM`): asked of the cloud for Nodes that have
//! none. The controller of nodes writes them beside the labels, with the same patch, while it leads.
//!
//! Upstream's kops-controller may do the same at any time: the API server takes the ranges of a Node once, and both take them
//! from the same place.

use std::sync::Arc;

use kops_agent_cloud::{ControlPlane, NoPodRanges, NotIdentified};
use kops_agent_plan::identity::Refusal;
use kops_agent_plan::labels::ObservedNode;
use tokio::time::Instant;

/// Asks for ranges, where the configuration wants Nodes to be given any.
pub struct PodRanges(Option<Arc<dyn ControlPlane>>);

/// Why a Node that is to have a range is given none.
#[derive(Debug)]
pub enum Lacking {
    /// It is not believed any more.
    Refused(Refusal),
    /// Its machine has none, or the cloud does not answer.
    Problem(String),
}

impl PodRanges {
    /// Asks this cloud, or gives none.
    pub fn of(cloud: Option<Arc<dyn ControlPlane>>) -> PodRanges {
        PodRanges(cloud)
    }

    /// The ranges that a Node is to be given; none where it has some, says no instance yet, or this gives none.
    ///
    /// # Errors
    /// Why it cannot be given any.
    pub async fn missing(&self, node: &ObservedNode) -> Result<Vec<String>, Lacking> {
        let Some(cloud) = self.0.as_ref().filter(|_| !node.has_pod_ranges) else { return Ok(Vec::new()) };
        if node.provider_id.is_empty() && cloud.names_instances() {
            return Ok(Vec::new());
        }
        // Not what is remembered of the instance: it may have got its range since.
        cloud.pod_ranges(node, Instant::now()).await.or_else(|why| match why {
            NoPodRanges::NotIdentified(NotIdentified::NotYet) => Ok(Vec::new()),
            NoPodRanges::NotIdentified(NotIdentified::Refused(refusal)) => Err(Lacking::Refused(refusal)),
            NoPodRanges::NotIdentified(NotIdentified::Unavailable(problem)) => {
                Err(Lacking::Problem(format!("its pods get no addresses yet: {problem}")))
            }
            NoPodRanges::Lacking(problem) => Err(Lacking::Problem(problem.to_string())),
            NoPodRanges::NeverGiven => {
                let problem = "its pods get no addresses: machines of this cloud have none for them";
                Err(Lacking::Problem(problem.to_owned()))
            }
        })
    }
}
