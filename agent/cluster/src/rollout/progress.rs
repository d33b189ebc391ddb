//! Computes the progress of each node of a rollout.

use std::collections::{BTreeMap, BTreeSet};

use kops_agent_spec::failure::Failure;
use time::{Duration, OffsetDateTime};

use super::course::{Course, Settings};
use super::decide::{ApiServer, Member, Rank};
use super::order::Order;
use super::pods::{Containers, PodCheck};
use super::wanted::Rollout;

/// The progress of a node towards the current configuration of its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Current,
    /// The rollout leaves the node out ([`Member::is_left_out`]).
    LeftOut,
    Waiting,
    Updating(Order),
    Failed(Order, String),
    /// The node has carried out its order, but was not healthy in time when it was observed as a canary ([`Canary::Failed`]). The text is
    /// the problem.
    FailedCanary(String),
}

impl Progress {
    pub(super) fn is_failure(&self) -> bool {
        matches!(self, Progress::Failed(..) | Progress::FailedCanary(_))
    }
}

/// The parts of the last written status that `progress` needs, and the containers that were listed after the status was written.
pub(super) struct Recorded<'a> {
    pub(super) ordered: &'a BTreeMap<String, Order>,
    pub(super) failed: &'a BTreeSet<String>,
    pub(super) pods: &'a BTreeMap<String, PodCheck>,
    pub(super) listed: &'a BTreeMap<String, Result<Containers, Failure>>,
    pub(super) authorities: &'a BTreeMap<String, String>,
}

/// The progress of a member towards the configuration with this hash, and the check of the member's pods if the member has an order.
pub(super) fn progress(
    course: &Course,
    member: &Member,
    hash: Option<&str>,
    recorded: &Recorded<'_>,
    now: OffsetDateTime,
) -> (Progress, Option<PodCheck>) {
    if member.is_left_out {
        return (Progress::LeftOut, None);
    }
    // If the group's current configuration is unknown, the hash in the node's order is used.
    let ordered = recorded.ordered.get(&member.node);
    let hash = hash.or(ordered.map(|order| order.hash.as_str()));
    let authorities = Authorities::new(member, recorded.authorities, ordered);
    let is_current = hash.is_some() && member.runs.as_deref() == hash && authorities.are_trusted;
    let at_rest = if is_current { Progress::Current } else { Progress::Waiting };
    let (Some(hash), Some(order)) = (hash, ordered) else { return (at_rest, None) };
    let pods = recorded.pods.get(&member.node);
    // When the node is Ready with the configuration, a wait begins. After the wait, the node's pods are checked.
    let unsettled = || pods.map(PodCheck::unsettled);
    let failed = |problem: String| (Progress::Failed(order.clone(), problem), unsettled());
    let outcome = member.outcome.as_ref().filter(|outcome| outcome.is_of(order));
    let settings = course.settings(&member.group);
    let timeout = settings.map_or(Duration::seconds(Rollout::node_timeout().into()), Settings::timeout);
    let is_late = order.time().is_none_or(|at| now - at > timeout);
    let is_done = is_current && member.is_serving();
    // A single answer of an API server may be lost. So while a control plane waits for the check of its pods, it does not fail if its API
    // server is not ready for a short time.
    let is_unready = is_current && member.is_ready && !member.is_serving();
    let unready_shortly = pods.filter(|_| is_unready).and_then(|check| check.after_unready(now));
    let may_be_done = is_done || unready_shortly.is_some();
    let is_wanted = order.hash == hash && authorities.are_of(order);
    // A failure remains until the operator resumes the rollout. Exception: in a rollout of the policy, a failure also ends if
    // the wanted configuration has changed.
    if order.attempt == course.attempt && (is_wanted || !course.is_of_policy) {
        let crashes = pods.map(|check| check.problem.as_str()).filter(|problem| !problem.is_empty());
        let problem = match outcome {
            _ if crashes.is_some() => crashes.map(str::to_owned),
            Some(outcome) if !outcome.problem.is_empty() => Some(outcome.problem.clone()),
            None if is_late && !may_be_done => Some(format!(
                "no result {timeout} after its order; is kops-agent-follow.service active on the node?"
            )),
            None if recorded.failed.contains(&member.node) && !may_be_done => {
                Some("its order failed, and the node has not retried".to_owned())
            }
            _ => None,
        };
        if let Some(problem) = problem {
            return failed(problem);
        }
    }
    if order.attempt != course.attempt || !is_wanted {
        // The order is of an earlier attempt, or for an earlier configuration or earlier authorities. The node may still carry it out.
        return match outcome.is_some() || is_late {
            true => (at_rest, None),
            false => (Progress::Updating(order.clone()), unsettled()),
        };
    }
    match (is_done, unready_shortly, is_late) {
        (true, ..) => {
            let after = settings.map_or(Rollout::check_pods_after(), |settings| settings.check_pods_after);
            settled(order, pods, recorded.listed.get(&member.node), after, is_late, now)
        }
        (false, Some(check), _) => (Progress::Updating(order.clone()), Some(check)),
        (false, None, false) => (Progress::Updating(order.clone()), unsettled()),
        (false, None, true) => failed(match &member.api_server {
            ApiServer::NotReady(why) if is_current && member.is_ready => {
                format!("its run succeeded, but its API server is not ready {timeout} after the order: {why}")
            }
            _ if member.is_ready && !authorities.are_trusted => format!(
                "its run succeeded, but {timeout} after the order its Node does not show the ordered authorities of kubernetes-ca"
            ),
            _ => format!(
                "its run succeeded, but {timeout} after the order its Node is not Ready or does not show the result of the run"
            ),
        }),
    }
}

/// Whether the progress of a control plane depends on the answer of its API server, which has not been asked yet.
pub(super) fn depends_on_api_server(
    course: &Course,
    member: &Member,
    hash: Option<&str>,
    recorded: &Recorded<'_>,
    now: OffsetDateTime,
) -> bool {
    if member.rank != Rank::ControlPlane || member.was_asked() {
        return false;
    }
    let not_ready = Member { api_server: ApiServer::NotReady(String::new()), ..member.clone() };
    progress(course, &not_ready, hash, recorded, now) != progress(course, member, hash, recorded, now)
}

/// The authorities that a node must trust. A worker gets the authorities with its boot config. So the authorities may change although the
/// hash of the worker's configuration stays the same.
struct Authorities<'a> {
    /// `None` if no authorities are compared.
    wanted: Option<&'a str>,
    /// Whether the node trusts the wanted authorities, according to its own report.
    are_trusted: bool,
}

impl<'a> Authorities<'a> {
    /// `by_group` has the digest of each group's authorities. If it lacks the member's group, the digest in the node's order is used.
    fn new(
        member: &Member,
        by_group: &'a BTreeMap<String, String>,
        ordered: Option<&'a Order>,
    ) -> Authorities<'a> {
        let of_order =
            ordered.map(|order| order.authorities.as_str()).filter(|authorities| !authorities.is_empty());
        let wanted = by_group.get(&member.group).map(String::as_str).or(of_order);
        let are_trusted = match (wanted, &member.authorities) {
            (None, _) => true,
            (Some(wanted), Some(trusted)) => wanted == trusted,
            // A node with an earlier version of kops-agent does not report its authorities. Such a node gets no order that names
            // authorities.
            (Some(_), None) => of_order.is_none(),
        };
        Authorities { wanted, are_trusted }
    }

    /// Whether an order is for the wanted authorities. If the order names no authorities, the result says whether the node trusts the
    /// wanted authorities.
    fn are_of(&self, order: &Order) -> bool {
        match order.authorities.as_str() {
            "" => self.are_trusted,
            authorities => self.wanted == Some(authorities),
        }
    }
}

/// The progress of a node that is Ready with the configuration. After `after` seconds, its pods are compared with its pods before the
/// order.
fn settled(
    order: &Order,
    pods: Option<&PodCheck>,
    listed: Option<&Result<Containers, Failure>>,
    after: u32,
    is_late: bool,
    now: OffsetDateTime,
) -> (Progress, Option<PodCheck>) {
    let Some(pods) = pods.filter(|pods| after > 0 && pods.not_compared.is_empty()) else {
        return (Progress::Current, None);
    };
    let settling = pods.settling(now);
    let is_due = settling.is_due(after, now);
    match listed {
        Some(Ok(containers)) if is_due => match settling.after_listing(order.time(), containers, now) {
            None => (Progress::Current, None),
            Some(check) if check.problem.is_empty() => (Progress::Updating(order.clone()), Some(check)),
            Some(check) => (Progress::Failed(order.clone(), check.problem.clone()), Some(check)),
        },
        Some(Err(_)) if is_due && is_late => (Progress::Current, None),
        _ => (Progress::Updating(order.clone()), Some(settling)),
    }
}

#[cfg(test)]
mod tests;
