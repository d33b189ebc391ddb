//! The pod ranges of Nodes, if kops-controller assigns them (`enableCloudIPAM`). They come from the cloud, for Nodes without
//! ranges. The node controller writes them with the labels in one patch, while it leads.
//!
//! Upstream's kops-controller may assign ranges at any time, too. The API server accepts the ranges of a Node only once, and
//! both controllers take them from the cloud.

use std::sync::Arc;

use kops_agent_cloud::{ControlPlane, NoPodRanges, NotIdentified};
use kops_agent_cluster::identity::Refusal;
use kops_agent_cluster::labels::ObservedNode;
use tokio::time::Instant;

/// The cloud that assigns pod ranges to machines. `None` if the configuration does not assign pod ranges to Nodes.
pub struct PodRanges(Option<Arc<dyn ControlPlane>>);

/// Why a Node does not get its pod ranges.
#[derive(Debug)]
pub enum Lacking {
    /// The Node's identity is no longer confirmed.
    Refused(Refusal),
    /// The machine has no ranges, or the cloud does not answer.
    Problem(String),
}

impl PodRanges {
    /// `cloud` returns the pod ranges of a machine. With `None`, no Node gets ranges.
    pub fn new(cloud: Option<Arc<dyn ControlPlane>>) -> PodRanges {
        PodRanges(cloud)
    }

    /// Returns the pod ranges to assign to a Node. Empty if the Node has ranges or names no instance yet, or if the configuration assigns
    /// no ranges.
    pub async fn missing(&self, node: &ObservedNode) -> Result<Vec<String>, Lacking> {
        let Some(cloud) = self.0.as_ref().filter(|_| !node.has_pod_ranges) else { return Ok(Vec::new()) };
        if node.provider_id.is_empty() && cloud.names_instances() {
            return Ok(Vec::new());
        }
        // Do not use the cached identity, because the instance may have got a range after the identity was cached.
        cloud.pod_ranges(node, Instant::now()).await.or_else(|why| match why {
            NoPodRanges::NotIdentified(NotIdentified::NotYet) => Ok(Vec::new()),
            NoPodRanges::NotIdentified(NotIdentified::Refused(refusal)) => Err(Lacking::Refused(refusal)),
            NoPodRanges::NotIdentified(NotIdentified::Unavailable(problem)) => {
                Err(Lacking::Problem(format!("its pods get no addresses yet: {problem}")))
            }
            NoPodRanges::Lacking(problem) => Err(Lacking::Problem(problem.to_string())),
            NoPodRanges::NeverGiven => {
                let problem = "its pods get no addresses: machines of this cloud have no pod ranges";
                Err(Lacking::Problem(problem.to_owned()))
            }
        })
    }
}
