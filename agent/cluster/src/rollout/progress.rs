//! How far each node of a rollout is.

use time::{Duration, OffsetDateTime};

use super::course::Course;
use super::decide::Member;
use super::order::Order;
use super::wanted::Rollout;

/// How far a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Current,
    Waiting,
    Updating(Order),
    Failed(Order, String),
}

/// How far a member is on its way to the configuration with this hash. `ordered` is its order, and `has_failed` whether it had
/// failed by then.
pub(super) fn progress(
    course: &Course,
    member: &Member,
    hash: Option<&str>,
    ordered: Option<&Order>,
    has_failed: bool,
    now: OffsetDateTime,
) -> Progress {
    // While the current configuration is unknown, an order counts as before.
    let hash = hash.or(ordered.map(|order| order.hash.as_str()));
    let is_current = hash.is_some() && member.runs.as_deref() == hash;
    let at_rest = if is_current { Progress::Current } else { Progress::Waiting };
    let (Some(hash), Some(order)) = (hash, ordered) else { return at_rest };
    let outcome = member.outcome.as_ref().filter(|outcome| outcome.is_of(order));
    let node_timeout = course.settings(&member.group).map(|settings| settings.node_timeout);
    let timeout = Duration::seconds(node_timeout.unwrap_or(Rollout::node_timeout()).into());
    let is_late = order.time().is_none_or(|at| now - at > timeout);
    let is_done = is_current && member.is_ready;
    // A failure counts until the operator resumes. In an operator's rollout it also counts if the spec has changed since.
    if order.attempt == course.attempt && (order.hash == hash || !course.is_standing) {
        let problem = match outcome {
            Some(outcome) if !outcome.problem.is_empty() => Some(outcome.problem.clone()),
            None if is_late && !is_done => Some(format!(
                "no result {timeout} after its order; is kops-agent-follow.service active on it?"
            )),
            None if has_failed && !is_done => Some("it has failed, and has not tried again".to_owned()),
            _ => None,
        };
        if let Some(problem) = problem {
            return Progress::Failed(order.clone(), problem);
        }
    }
    if order.attempt != course.attempt || order.hash != hash {
        // The node may still be at work for an earlier attempt, or for the configuration before the last change.
        return if outcome.is_some() || is_late { at_rest } else { Progress::Updating(order.clone()) };
    }
    match (is_done, is_late) {
        (true, _) => Progress::Current,
        (false, false) => Progress::Updating(order.clone()),
        (false, true) => {
            let problem = format!(
                "its run succeeded, but it is not Ready with the configuration {timeout} after its order"
            );
            Progress::Failed(order.clone(), problem)
        }
    }
}
