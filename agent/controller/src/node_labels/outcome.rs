//! The result of reconciling a Node, and its text for messages.

use kops_agent_cluster::identity::Refusal;
use kops_agent_cluster::pod_ranges::NodePatch;

pub(super) enum Outcome {
    /// The Node has its labels and pod ranges.
    Done,
    /// The Node was patched, and now has its labels and pod ranges.
    Patched,
    Shown(NodePatch),
    /// The Node cannot be reconciled until it changes.
    NotYet,
    /// The Node changed during its reconcile.
    Conflict,
    Refused(Refusal),
    /// The Node has its labels, but its pods have no addresses.
    NoPodRange(String),
    /// The API server rejects some labels. The Node has all other labels.
    LabelsLeftOut(Vec<String>),
    /// The cloud does not answer.
    Unanswered(String),
    Failed(String),
}

impl Outcome {
    /// Whether a retry may succeed.
    pub(super) fn may_pass(&self) -> bool {
        use Outcome::{Conflict, Failed, NoPodRange, Unanswered};
        matches!(self, Conflict | NoPodRange(_) | Unanswered(_) | Failed(_))
    }
}

/// The sentence about labels that a Node does not get.
pub(super) fn left_out(problems: &[String]) -> String {
    format!("{} of its labels are left out: {}", problems.len(), problems.join("; "))
}

/// The text of a patch, for the log and for Events.
pub(super) fn in_words(patch: &NodePatch) -> String {
    let labels = patch.labels.clone().unwrap_or_default();
    let set = labels.set.iter().map(|(key, value)| format!("{key}={value}"));
    let removed = labels.remove.iter().map(|key| format!("{key}-"));
    let ranges = patch.pod_ranges.iter().map(|range| format!("podCIDR={range}"));
    set.chain(removed).chain(ranges).collect::<Vec<_>>().join(" ")
}
