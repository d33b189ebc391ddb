//! Writes changes to a Node while this process leads.

use kops_agent_cluster::labels::{LabelPatch, ObservedNode};
use kops_agent_cluster::pod_ranges::NodePatch;
use kube::Error;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::NodeLabels;
use super::outcome::{Outcome, in_words};
use kops_agent_kube::lease::Leadership;

/// The API server's status code for an invalid object.
const INVALID: u16 = 422;
/// The texts by which a webhook or a policy rejects a request, although the client has the right to make it.
const DENIED: [&str; 2] = ["denied the request", "denied request"];

impl NodeLabels {
    /// Patches a Node. If the API server rejects the pod ranges, the Node still gets its labels. If it rejects some labels, the Node
    /// still gets the other labels.
    pub(super) async fn patch(
        &self,
        node: &ObservedNode,
        patch: NodePatch,
        leadership: &Leadership,
        slots: &Semaphore,
    ) -> Outcome {
        let Ok(_slot) = slots.acquire().await else { return Outcome::NotYet };
        let problem = match self.write(node, &patch, leadership).await {
            Ok(_) => return Outcome::Patched,
            Err(Unwritten::Other(outcome)) => return outcome,
            Err(Unwritten::Invalid(problem)) => problem,
        };
        let Some(labels) = patch.labels else { return no_ranges(&patch.pod_ranges, &problem) };
        if patch.pod_ranges.is_empty() {
            return self.write_each(node, &labels, &problem, leadership).await;
        }
        let only_labels = NodePatch { labels: Some(labels.clone()), pod_ranges: Vec::new() };
        match self.write(node, &only_labels, leadership).await {
            Ok(_) => no_ranges(&patch.pod_ranges, &problem),
            Err(Unwritten::Other(outcome)) => outcome,
            Err(Unwritten::Invalid(problem)) => self.write_each(node, &labels, &problem, leadership).await,
        }
    }

    /// Writes each label in a request of its own, after the API server has rejected a request with all labels.
    async fn write_each(
        &self,
        node: &ObservedNode,
        labels: &LabelPatch,
        problem: &str,
        leadership: &Leadership,
    ) -> Outcome {
        let each = labels.each();
        let count = each.len();
        if count == 1 {
            return Outcome::LabelsLeftOut(vec![problem.to_owned()]);
        }
        let (mut node, mut left_out) = (node.clone(), Vec::new());
        for label in each {
            let patch = NodePatch { labels: Some(label), pod_ranges: Vec::new() };
            match self.write(&node, &patch, leadership).await {
                Ok(after) => node.resource_version = resource_version(&after),
                Err(Unwritten::Other(outcome)) => return outcome,
                Err(Unwritten::Invalid(problem)) => left_out.push(format!("{}: {problem}", in_words(&patch))),
            }
        }
        match left_out.len() {
            0 => Outcome::Patched,
            refused if refused == count => {
                Outcome::Failed(format!("the labels cannot be patched: {problem}"))
            }
            _ => Outcome::LabelsLeftOut(left_out),
        }
    }

    async fn write(
        &self,
        node: &ObservedNode,
        patch: &NodePatch,
        leadership: &Leadership,
    ) -> Result<String, Unwritten> {
        let failed = |problem: String| Err(Unwritten::Other(Outcome::Failed(problem)));
        if leadership.remaining().is_none() {
            return failed("this process does not lead any more".into());
        }
        // Thousands of reconciles wait before this call. Because of the box, a reconcile allocates the memory for the write only when it
        // writes, so the waiting reconciles are small.
        match timeout(Leadership::LONGEST_WRITE, Box::pin(self.nodes.patch(node, patch))).await {
            Ok(Ok(after)) => {
                self.metrics.patches.inc();
                log::info!("patched the Node {}: {}", node.name, in_words(patch));
                Ok(after)
            }
            Ok(Err(Error::Api(status))) => Err(match status.code {
                409 => Unwritten::Other(Outcome::Conflict),
                404 => Unwritten::Other(Outcome::NotYet),
                code if code == INVALID || DENIED.iter().any(|words| status.message.contains(words)) => {
                    Unwritten::Invalid(status.message)
                }
                _ => {
                    Unwritten::Other(Outcome::Failed(format!("it cannot be patched: {}", Error::Api(status))))
                }
            }),
            Ok(Err(error)) => failed(format!("it cannot be patched: {error}")),
            Err(_) => failed("it cannot be patched: the API server does not answer".into()),
        }
    }
}

fn no_ranges(ranges: &[String], problem: &str) -> Outcome {
    let ranges = ranges.join(", ");
    Outcome::NoPodRange(format!("its pods get no addresses: the API server refuses {ranges} ({problem})"))
}

/// The version of a Node in the API server's answer. If the answer has no version, returns an empty text, which matches any version.
fn resource_version(node: &str) -> String {
    let node: serde_json::Value = serde_json::from_str(node).unwrap_or_default();
    node.pointer("/metadata/resourceVersion")
        .and_then(serde_json::Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

/// Why a patch was not written.
enum Unwritten {
    /// The API server rejects the content of the patch.
    Invalid(String),
    Other(Outcome),
}
