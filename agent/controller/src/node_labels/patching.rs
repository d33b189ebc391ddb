//! Writes what is to change about a Node, while this process leads.

use kops_agent_plan::labels::ObservedNode;
use kops_agent_plan::pod_ranges::NodePatch;
use kube::Error;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::NodeLabels;
use super::outcome::{Outcome, in_words};
use crate::lease::Leadership;

/// The API server refuses what a patch would make of a Node.
const INVALID: u16 = 422;

impl NodeLabels {
    /// Patches a Node. Where the API server refuses the ranges of its pods, it gets its labels all the same.
    pub(super) async fn patch(
        &self,
        node: &ObservedNode,
        patch: NodePatch,
        leadership: &Leadership,
        slots: &Semaphore,
    ) -> Outcome {
        let Ok(_slot) = slots.acquire().await else { return Outcome::NotYet };
        let problem = match self.write(node, &patch, leadership).await {
            Ok(()) => return Outcome::Patched,
            Err(Unwritten::Other(outcome)) => return outcome,
            Err(Unwritten::Invalid(problem)) => problem,
        };
        if patch.pod_ranges.is_empty() {
            return Outcome::Failed(format!("its labels cannot be patched: {problem}"));
        }
        let refused = || {
            let ranges = patch.pod_ranges.join(", ");
            Outcome::NoPodRange(format!(
                "its pods get no addresses: the API server refuses {ranges}: {problem}"
            ))
        };
        let Some(labels) = NodePatch::of(patch.labels.clone(), Vec::new()) else { return refused() };
        match self.write(node, &labels, leadership).await {
            Ok(()) => refused(),
            Err(Unwritten::Other(outcome)) => outcome,
            Err(Unwritten::Invalid(problem)) => {
                Outcome::Failed(format!("its labels cannot be patched: {problem}"))
            }
        }
    }

    async fn write(
        &self,
        node: &ObservedNode,
        patch: &NodePatch,
        leadership: &Leadership,
    ) -> Result<(), Unwritten> {
        let failed = |problem: String| Err(Unwritten::Other(Outcome::Failed(problem)));
        if leadership.remaining().is_none() {
            return failed("this process does not lead any more".into());
        }
        // Thousands wait for their turn at the same time: what few do takes its memory when they do it.
        match timeout(Leadership::LONGEST_WRITE, Box::pin(self.nodes.patch(node, patch))).await {
            Ok(Ok(())) => {
                self.metrics.patches.inc();
                log::info!("patched the Node {}: {}", node.name, in_words(patch));
                Ok(())
            }
            Ok(Err(Error::Api(status))) => Err(match status.code {
                409 => Unwritten::Other(Outcome::Conflict),
                404 => Unwritten::Other(Outcome::NotYet),
                INVALID => Unwritten::Invalid(status.message),
                _ => {
                    Unwritten::Other(Outcome::Failed(format!("it cannot be patched: {}", Error::Api(status))))
                }
            }),
            Ok(Err(error)) => failed(format!("it cannot be patched: {error}")),
            Err(_) => failed("it cannot be patched: the API server does not answer".into()),
        }
    }
}

/// Why a patch was not written.
enum Unwritten {
    /// The API server refuses what is in it.
    Invalid(String),
    /// Anything else.
    Other(Outcome),
}
