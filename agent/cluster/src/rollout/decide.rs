//! Decides which nodes take the current configuration of their group next.
//!
//! The order is: control planes, one at a time; the other API servers; the canaries of each group of workers; all other
//! workers. A group with a failed node gets no further orders. So a mistake in the spec stops at the first node.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};

use super::order::{Order, Outcome};
use super::wanted::{Rollout, State};
use kops_agent_spec::timestamp;

/// The most failed nodes of a group that the status names. A ConfigMap has at most 1 MiB.
const MOST_FAILED: usize = 10;

/// The place of a node in the order of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    ControlPlane,
    ApiServer,
    Worker,
}

/// A Node, as far as a rollout needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub node: String,
    pub group: String,
    pub rank: Rank,
    pub is_ready: bool,
    /// The hash of the configuration that the node says it runs; `None` if it has not said so.
    pub runs: Option<String>,
    /// The node's annotation with an order; empty if it has none.
    pub order: String,
    pub outcome: Option<Outcome>,
}

/// What to do now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The orders to write, by node. The status must be written before them.
    pub orders: BTreeMap<String, Order>,
    /// The nodes whose orders are taken back.
    pub withdrawn: Vec<String>,
    pub status: Status,
}

/// The state of a rollout, as the controller writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The rollout's ID.
    pub rollout: String,
    pub phase: Phase,
    /// Why no node has an order although nodes wait; empty if a node has one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub waits_for: String,
    pub groups: BTreeMap<String, GroupStatus>,
    /// The nodes with an order, each with the order. The controller decides by this, because a kubelet can change the
    /// annotations of its own Node.
    #[serde(default)]
    pub ordered: BTreeMap<String, Order>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    #[default]
    Running,
    /// The operator has paused it.
    Paused,
    /// A node failed, no node is at work, and no other node may begin.
    Stopped,
    Aborted,
    Done,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Running => "running",
            Phase::Paused => "paused",
            Phase::Stopped => "stopped",
            Phase::Aborted => "aborted",
            Phase::Done => "done",
        })
    }
}

/// The nodes of a group, by progress.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupStatus {
    /// The hash of its current configuration; empty if it is not known.
    pub hash: String,
    pub nodes: usize,
    pub done: usize,
    pub updating: Vec<String>,
    /// Nodes without an order that do not run the current configuration.
    pub waiting: usize,
    pub failed: usize,
    /// The first failed nodes, each with its problem.
    pub failures: BTreeMap<String, String>,
    /// Why the group's current configuration is not known; empty if it is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub problem: String,
}

impl Status {
    /// Whether this is the status of this rollout, and the rollout is in this phase.
    pub fn is_in(&self, phase: Phase, rollout: &Rollout) -> bool {
        self.rollout == rollout.id && self.phase == phase
    }

    pub fn is_done(&self, rollout: &Rollout) -> bool {
        self.is_in(Phase::Done, rollout)
    }

    /// Whether a node has an order and has not finished.
    pub fn is_at_work(&self) -> bool {
        self.groups.values().any(|group| !group.updating.is_empty())
    }
}

/// How far a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Progress {
    Current,
    Waiting,
    Updating(Order),
    Failed(Order, String),
}

/// A group's members, with their progress.
struct Group<'a> {
    rank: Rank,
    hash: Option<&'a str>,
    members: Vec<(&'a Member, Progress)>,
}

impl Group<'_> {
    fn done(&self) -> usize {
        self.count(|progress| *progress == Progress::Current)
    }

    fn count(&self, is: impl Fn(&Progress) -> bool) -> usize {
        self.members.iter().filter(|(_, progress)| is(progress)).count()
    }

    fn has_failed(&self) -> bool {
        self.members.iter().any(|(_, progress)| matches!(progress, Progress::Failed(..)))
    }

    fn is_done(&self) -> bool {
        self.done() == self.members.len()
    }

    /// The nodes that serve nothing now, or may stop to do so at any moment.
    fn unavailable(&self) -> usize {
        self.members
            .iter()
            .filter(|(member, progress)| {
                !member.is_ready || matches!(progress, Progress::Updating(_) | Progress::Failed(..))
            })
            .count()
    }

    /// How many canaries the group still needs.
    fn canaries_left(&self, rollout: &Rollout) -> usize {
        let wanted = usize::try_from(rollout.canary).unwrap_or(usize::MAX).min(self.members.len());
        wanted.saturating_sub(self.done())
    }
}

/// Decides what to do now. `current` has the hash of each group's current configuration, or the reason why it is not
/// known. `before` is the last written status of this rollout.
pub fn decide(
    rollout: &Rollout,
    members: &[Member],
    current: &BTreeMap<String, Result<String, String>>,
    before: &Status,
    now: OffsetDateTime,
) -> Decision {
    let nothing = BTreeMap::new();
    let ordered = if before.rollout == rollout.id { &before.ordered } else { &nothing };
    let mut groups: BTreeMap<&str, Group<'_>> = BTreeMap::new();
    for member in members.iter().filter(|member| !member.group.is_empty()) {
        let hash = current.get(&member.group).and_then(|hash| hash.as_deref().ok());
        let progress = progress(rollout, member, hash, ordered.get(&member.node), now);
        let group =
            groups.entry(&member.group).or_insert(Group { rank: member.rank, hash, members: Vec::new() });
        group.rank = group.rank.min(member.rank);
        group.members.push((member, progress));
    }

    let next = match rollout.state {
        State::Running => next(rollout, &groups),
        State::Paused => Err("the rollout is paused".to_owned()),
        State::Aborted => Err("the rollout was aborted".to_owned()),
    };
    let (begun, waits_for) = match next {
        Ok(members) => (members, String::new()),
        Err(waits_for) => (Vec::new(), waits_for),
    };
    let mut decision = Decision::default();
    for (member, hash) in begun {
        let nodes = groups.get(member.group.as_str()).map_or(1, |group| group.members.len());
        let order = Order {
            rollout: rollout.id.clone(),
            attempt: rollout.attempt,
            hash: hash.to_owned(),
            drain: rollout.drain,
            max_unavailable: u32::try_from(rollout.max_unavailable.of(nodes)).unwrap_or(u32::MAX),
            health_timeout: rollout.health_timeout,
            may_go_back: rollout.may_go_back,
            at: timestamp(now),
        };
        decision.orders.insert(member.node.clone(), order);
    }
    let mut status = status(rollout, &groups, current, &decision.orders);
    for (member, progress) in groups.values().flat_map(|group| &group.members) {
        let (Progress::Updating(order) | Progress::Failed(order, _)) = progress else { continue };
        let is_open = matches!(progress, Progress::Updating(_))
            && member.outcome.as_ref().is_none_or(|outcome| !outcome.is_of(order));
        if is_open && rollout.state == State::Aborted {
            decision.withdrawn.push(member.node.clone());
            continue;
        }
        // The controller ended before it wrote the order, or someone changed the annotation.
        if is_open && member.order != order.text() {
            decision.orders.insert(member.node.clone(), order.clone());
        }
        status.ordered.insert(member.node.clone(), order.clone());
    }
    if status.phase != Phase::Done && !status.is_at_work() {
        status.waits_for = waits_for;
    }
    Decision { status, ..decision }
}

/// How far a member is on its way to the configuration with this hash.
fn progress(
    rollout: &Rollout,
    member: &Member,
    hash: Option<&str>,
    ordered: Option<&Order>,
    now: OffsetDateTime,
) -> Progress {
    let is_current = hash.is_some() && member.runs.as_deref() == hash;
    let at_rest = if is_current { Progress::Current } else { Progress::Waiting };
    let ordered = ordered.filter(|_| rollout.has_group(&member.group));
    let (Some(hash), Some(order)) = (hash, ordered) else { return at_rest };
    let outcome = member.outcome.as_ref().filter(|outcome| outcome.is_of(order));
    let timeout = Duration::seconds(rollout.node_timeout.into());
    let is_late = order.time().is_none_or(|at| now - at > timeout);
    let is_done = is_current && member.is_ready;
    // A failure counts until the operator resumes, also if the spec has changed since.
    if order.attempt == rollout.attempt {
        let problem = match outcome {
            Some(outcome) if !outcome.problem.is_empty() => Some(outcome.problem.clone()),
            None if is_late && !is_done => Some(format!(
                "no result {timeout} after its order; is kops-agent-follow.service active on it?"
            )),
            _ => None,
        };
        if let Some(problem) = problem {
            return Progress::Failed(order.clone(), problem);
        }
    }
    if order.attempt != rollout.attempt || order.hash != hash {
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

/// The members that get an order now, each with the hash of its group.
///
/// # Errors
/// No member may get one; the text is what they wait for.
fn next<'a>(
    rollout: &Rollout,
    groups: &BTreeMap<&str, Group<'a>>,
) -> Result<Vec<(&'a Member, &'a str)>, String> {
    let of_rank = |rank: Rank| groups.values().filter(move |group| group.rank == rank);
    let control_planes: Vec<&Group<'a>> = of_rank(Rank::ControlPlane).collect();
    if !control_planes.iter().all(|group| group.is_done()) {
        return one_control_plane(rollout, &control_planes).map(|member| vec![member]);
    }
    // A kubelet must not be newer than an API server, so these wait also if their groups are no part of this rollout.
    let api_servers: Vec<&Group<'a>> = of_rank(Rank::ApiServer).collect();
    if !api_servers.iter().all(|group| group.is_done()) {
        let members = api_servers.iter().flat_map(|group| of_group(rollout, group, usize::MAX));
        return some(members.collect(), || waiting(&api_servers, "the nodes with API servers"));
    }
    let workers: Vec<&Group<'a>> = of_rank(Rank::Worker)
        .filter(|group| group.members.iter().any(|(member, _)| rollout.has_group(&member.group)))
        .collect();
    if workers.iter().any(|group| group.canaries_left(rollout) > 0) {
        let members = workers.iter().flat_map(|group| of_group(rollout, group, group.canaries_left(rollout)));
        return some(members.collect(), || waiting(&workers, "the canaries"));
    }
    let members = workers.iter().flat_map(|group| of_group(rollout, group, usize::MAX));
    some(members.collect(), || waiting(&workers, "the nodes"))
}

fn some<T>(members: Vec<T>, waits_for: impl Fn() -> String) -> Result<Vec<T>, String> {
    if members.is_empty() { Err(waits_for()) } else { Ok(members) }
}

/// The next control plane. There is none while another one is not Ready or at work, because etcd could lose its quorum.
fn one_control_plane<'a>(rollout: &Rollout, groups: &[&Group<'a>]) -> Result<(&'a Member, &'a str), String> {
    let members = || groups.iter().flat_map(|group| &group.members);
    for (member, progress) in members() {
        match progress {
            Progress::Failed(_, problem) => return Err(format!("{} has failed: {problem}", member.node)),
            Progress::Updating(_) => return Err(format!("{} is at work", member.node)),
            _ if !member.is_ready => return Err(format!("the control plane {} is not Ready", member.node)),
            Progress::Current | Progress::Waiting => {}
        }
    }
    for group in groups {
        for (member, progress) in &group.members {
            if let (Progress::Waiting, Some(hash)) = (progress, group.hash)
                && rollout.has_group(&member.group)
            {
                return Ok((member, hash));
            }
        }
    }
    Err("the control planes do not run the current configuration of their groups; all other nodes come after them, so start a rollout of \
         all groups"
        .to_owned())
}

/// The members of a group that get an order now, at most this many.
fn of_group<'a>(rollout: &Rollout, group: &Group<'a>, most: usize) -> Vec<(&'a Member, &'a str)> {
    let Some(hash) = group.hash.filter(|_| !group.has_failed()) else { return Vec::new() };
    let at_a_time = rollout.max_unavailable.of(group.members.len());
    let at_work = group.count(|progress| matches!(progress, Progress::Updating(_)));
    let free = at_a_time.saturating_sub(group.unavailable()).min(most.saturating_sub(at_work));
    group
        .members
        .iter()
        .filter(|(member, progress)| {
            *progress == Progress::Waiting && member.is_ready && rollout.has_group(&member.group)
        })
        .map(|(member, _)| (*member, hash))
        .take(free)
        .collect()
}

/// What keeps these groups from being done.
fn waiting(groups: &[&Group<'_>], what: &str) -> String {
    for group in groups.iter().filter(|group| !group.is_done()) {
        for (member, progress) in &group.members {
            let name = &member.group;
            match progress {
                Progress::Failed(..) => {
                    return format!("{what}: the group {name} is paused, because {} has failed", member.node);
                }
                _ if !member.is_ready => {
                    return format!("{what}: {} of the group {name} is not Ready", member.node);
                }
                _ if group.hash.is_none() => {
                    return format!("{what}: the current configuration of the group {name} is not known");
                }
                _ => {}
            }
        }
    }
    format!("{what} of groups that are no part of this rollout")
}

fn status(
    rollout: &Rollout,
    groups: &BTreeMap<&str, Group<'_>>,
    current: &BTreeMap<String, Result<String, String>>,
    begun: &BTreeMap<String, Order>,
) -> Status {
    let mut status = Status { rollout: rollout.id.clone(), ordered: begun.clone(), ..Status::default() };
    for (name, group) in groups.iter().filter(|(name, _)| rollout.has_group(name)) {
        let problem = match current.get(*name) {
            Some(Ok(_)) => String::new(),
            Some(Err(problem)) => problem.clone(),
            None => "the state store has no configuration of it".to_owned(),
        };
        let mut of_group = GroupStatus {
            hash: group.hash.unwrap_or_default().to_owned(),
            nodes: group.members.len(),
            done: group.done(),
            problem,
            ..GroupStatus::default()
        };
        for (member, progress) in &group.members {
            match progress {
                Progress::Current => {}
                Progress::Waiting if !begun.contains_key(&member.node) => of_group.waiting += 1,
                Progress::Waiting | Progress::Updating(_) => of_group.updating.push(member.node.clone()),
                Progress::Failed(_, problem) => {
                    of_group.failed += 1;
                    if of_group.failures.len() < MOST_FAILED {
                        of_group.failures.insert(member.node.clone(), problem.clone());
                    }
                }
            }
        }
        status.groups.insert((*name).to_owned(), of_group);
    }
    let has_failed = status.groups.values().any(|group| group.failed > 0);
    let is_done = status.groups.values().all(|group| group.problem.is_empty() && group.done == group.nodes);
    status.phase = match rollout.state {
        _ if is_done => Phase::Done,
        State::Aborted => Phase::Aborted,
        State::Paused => Phase::Paused,
        State::Running if has_failed && !status.is_at_work() => Phase::Stopped,
        State::Running => Phase::Running,
    };
    status
}

#[cfg(test)]
mod tests;
