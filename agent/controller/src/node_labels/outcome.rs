//! What came of looking at a Node, and how that is told.

use kops_agent_plan::identity::Refusal;
use kops_agent_plan::pod_ranges::NodePatch;

/// What came of looking at a Node.
pub(super) enum Outcome {
    /// It is as it should be.
    Done,
    /// It was patched, and is as it should be now.
    Patched,
    /// It would be patched.
    Shown(NodePatch),
    /// It cannot be dealt with before something about it changes.
    NotYet,
    /// It changed while it was looked at.
    Conflict,
    Refused(Refusal),
    /// Its labels are as they should be, and its pods have no addresses.
    NoPodRange(String),
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

/// A patch, for the log and for Events.
pub(super) fn in_words(patch: &NodePatch) -> String {
    let labels = patch.labels.clone().unwrap_or_default();
    let set = labels.set.iter().map(|(key, value)| format!("{key}={value}"));
    let removed = labels.remove.iter().map(|key| format!("{key}-"));
    let ranges = patch.pod_ranges.iter().map(|range| format!("podCIDR={range}"));
    set.chain(removed).chain(ranges).collect::<Vec<_>>().join(" ")
}
