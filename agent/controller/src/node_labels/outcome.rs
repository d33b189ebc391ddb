//! What came of looking at a Node, and how that is told.

use kops_agent_plan::identity::Refusal;
use kops_agent_plan::pod_ranges::NodePatch;

/// What came of looking at a Node.
pub(super) enum Outcome {
    /// It is as it should be.
    Done,
    /// It was patched, and is as it should be now.
    Patched,
    Shown(NodePatch),
    /// It cannot be dealt with before something about it changes.
    NotYet,
    /// It changed while it was looked at.
    Conflict,
    Refused(Refusal),
    /// Its labels are as they should be, and its pods have no addresses.
    NoPodRange(String),
    /// Its other labels are as they should be, and some are not, for the API server refuses them.
    LabelsLeftOut(Vec<String>),
    /// The cloud does not answer.
    Unanswered(String),
    Failed(String),
}

impl Outcome {
    /// Whether another look may find it otherwise.
    pub(super) fn may_pass(&self) -> bool {
        use Outcome::{Conflict, Failed, NoPodRange, Unanswered};
        matches!(self, Conflict | NoPodRange(_) | Unanswered(_) | Failed(_))
    }
}

/// What an Event is called that tells of labels that a Node does not get.
pub(super) const LABELS_LEFT_OUT: &str = "LabelsLeftOut";

/// Labels that a Node does not get, in a sentence.
pub(super) fn left_out(problems: &[String]) -> String {
    format!("{} of its labels are left out: {}", problems.len(), problems.join("; "))
}

/// A patch, for the log and for Events.
pub(super) fn in_words(patch: &NodePatch) -> String {
    let labels = patch.labels.clone().unwrap_or_default();
    let set = labels.set.iter().map(|(key, value)| format!("{key}={value}"));
    let removed = labels.remove.iter().map(|key| format!("{key}-"));
    let ranges = patch.pod_ranges.iter().map(|range| format!("podCIDR={range}"));
    set.chain(removed).chain(ranges).collect::<Vec<_>>().join(" ")
}
