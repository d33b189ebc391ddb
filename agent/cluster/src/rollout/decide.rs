//! Decides which nodes take the current configuration of their group next.
//!
//! The order is: control planes, one at a time; the other API servers; the canaries of each group of workers; all other
//! workers. A group with a failed node gets no further orders. So a mistake in the spec stops at the first node.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use time::OffsetDateTime;

use super::course::Course;
use super::estimate::{order_seconds, turns_left};
use super::order::{Order, Outcome, Task};
use super::pods::{Containers, PodCheck};
use super::program::{ProgramFile, decide_programs};
use super::progress::{Progress, Recorded, depends_on_api_server, progress};
use super::reboot::{Blocked, Blockers, LastReboot, decide_reboots};
use super::status::{FirstNodes, GroupStatus, Phase, Status};
use super::turns::{Begun, Group, Next, next};
use super::wanted::{Rollout, State};
use kops_agent_spec::failure::Failure;
use kops_agent_spec::timestamp;

/// The maximum number of failed nodes, held nodes, finishing nodes and canaries that the status names for each group. A ConfigMap has
/// at most 1 MiB.
pub(super) const MOST_NAMED: usize = 10;

/// The position of a node in a rollout. Nodes with a later rank wait for nodes with an earlier rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    ControlPlane,
    ApiServer,
    Worker,
}

/// Whether a node is a canary of an upgrade of kops-agent, and the state of its observation. Other workers wait for the canaries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Canary {
    #[default]
    No,
    /// The node has carried out its order, and its observation goes on. The text says why other workers wait.
    Observed(String),
    Passed,
    /// The node was not healthy in time. The text is the problem.
    Failed(String),
}

/// Whether the API server of a control plane is ready, according to its own answer. An API server is ready only if its etcd members serve
/// and have a quorum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ApiServer {
    #[default]
    NotAsked,
    Ready,
    /// The text is the reason. An API server that does not answer counts as not ready.
    NotReady(String),
}

/// The facts about a Node that a rollout uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub node: String,
    /// The instance group in the Node's label; empty if the Node has no such label.
    pub group: String,
    pub rank: Rank,
    pub is_ready: bool,
    /// The address of a control plane's machine. `None` if the Node has no address, or is not a control plane.
    pub address: Option<IpAddr>,
    /// Whether the control plane's API server is ready, if the caller asked the API server ([`Decision::api_servers_to_ask`]).
    pub api_server: ApiServer,
    /// The hash of the configuration that the node runs, according to its own report; `None` if the node has not reported one.
    pub runs: Option<String>,
    /// The digest of the authorities that the node trusts, according to its own report; `None` if the node has not reported one.
    pub authorities: Option<String>,
    /// The SHA-256 of the kops-agent that the node runs, according to its own report. `None` if the node has not reported it. A node
    /// without this report may not know orders to upgrade kops-agent.
    pub program: Option<String>,
    /// Whether the node reports that the last check of its kops-agent has not succeeded.
    pub is_unchecked: bool,
    /// The architecture that the node's kubelet reports, such as `amd64`; empty if it reports none.
    pub architecture: String,
    /// Whether the rollout leaves the node out. If so, the node gets no order, and no other node waits for it.
    pub is_left_out: bool,
    /// Whether the node reports that it is configured: its condition `KopsConfigured` has the status `True`.
    pub is_healthy: bool,
    pub canary: Canary,
    /// The boot ID that the node's kubelet reports; empty if it reports none.
    pub boot_id: String,
    /// Whether the node reports that it requires a reboot in this boot.
    pub requires_reboot: bool,
    /// The last order to reboot that the controller has written.
    pub last_reboot: Option<LastReboot>,
    /// Why the node must not begin yet; empty if it may begin.
    pub held: String,
    /// When a run cordoned the Node, by the clock of the node. `None` if no run has cordoned the Node. The cordon of an operator does not
    /// count.
    pub cordoned_since: Option<OffsetDateTime>,
    /// The value of the Node's annotation with an order; empty if the Node has no such annotation.
    pub order: String,
    pub outcome: Option<Outcome>,
}

impl Member {
    /// Whether the node has reported an outcome of this order.
    pub(super) fn has_answered(&self, order: &Order) -> bool {
        self.outcome.as_ref().is_some_and(|outcome| outcome.is_of(order))
    }

    pub(super) fn was_asked(&self) -> bool {
        self.api_server != ApiServer::NotAsked
    }

    /// Whether the node is Ready. For a control plane, its API server must also be ready. An API server that was not asked counts as ready.
    pub(super) fn is_serving(&self) -> bool {
        self.is_ready && !matches!(self.api_server, ApiServer::NotReady(_))
    }

    /// The value of [`Order::authorities`] in an order to this node.
    fn authorities_to_order(&self, by_group: &BTreeMap<String, String>) -> String {
        // A node that does not report its authorities would not name authorities in its outcome, so its order names none.
        let wanted = by_group.get(&self.group).filter(|_| self.authorities.is_some());
        wanted.cloned().unwrap_or_default()
    }

    pub(super) fn has_carried_out(&self, rollout: &str) -> bool {
        self.outcome.as_ref().is_some_and(|outcome| outcome.rollout == rollout && outcome.problem.is_empty())
    }

    /// Whether the node's authorities differ from the authorities of new machines of its group. `false` if either is not known.
    pub(super) fn trusts_others(&self, authorities: &BTreeMap<String, String>) -> bool {
        let theirs = authorities.get(&self.group);
        self.authorities.as_ref().zip(theirs).is_some_and(|(ours, theirs)| ours != theirs)
    }
}

/// The controller's next actions for a rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The orders to write, by node. The status must be written before the orders.
    pub orders: BTreeMap<String, Order>,
    /// The nodes whose orders are taken back.
    pub withdrawn: Vec<String>,
    /// The nodes whose pods must be listed first. The caller lists these pods and decides again before it writes anything.
    pub pods_to_list: BTreeSet<String>,
    /// The control planes whose API servers must be asked first. The caller puts the answers into [`Member::api_server`] and
    /// decides again before it writes anything.
    pub api_servers_to_ask: BTreeSet<String>,
    /// Conditions that may block reboots, which the caller must check first. The caller then decides again before it writes anything.
    pub blockers_to_check: Option<Blockers>,
    pub status: Status,
}

impl Decision {
    /// Whether the rollout is running, but only waits: no node is at work, and no order is given or taken back. The result is `false` if
    /// blockers or API servers must be checked first.
    pub(super) fn only_waits(&self) -> bool {
        self.blockers_to_check.is_none()
            && self.api_servers_to_ask.is_empty()
            && self.orders.is_empty()
            && self.withdrawn.is_empty()
            && self.status.phase == Phase::Running
            && !self.status.is_at_work()
    }
}

/// The inputs of a decision besides the Nodes.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The hash of each group's current configuration, or the reason why the hash is not known.
    pub current: BTreeMap<String, Result<String, Failure>>,
    /// Whether `current` may have changed since it was read. While it may have changed, no rollout ends.
    pub is_stale: bool,
    /// The digest of the authorities that new machines of a group trust, by group. Only groups for which the configuration's hash does not
    /// cover the authorities have a digest.
    pub authorities: BTreeMap<String, String>,
    /// The containers of the nodes of [`Decision::pods_to_list`], or the reason why the containers are not known.
    pub listed: BTreeMap<String, Result<Containers, Failure>>,
    /// The program file of the state store, or the reason why the file is not known; `None` if the file was not read.
    pub program: Option<Result<ProgramFile, Failure>>,
    /// The nodes that the blockers of [`Decision::blockers_to_check`] keep from a reboot; `None` if the blockers were not checked.
    pub blocked: Option<Blocked>,
}

/// Decides the controller's next actions for a rollout. `before` is the last written status of this rollout. `elsewhere` is the number of
/// nodes with an order of a different rollout.
pub fn decide(
    rollout: &Rollout,
    members: &[Member],
    seen: &Seen,
    before: &Status,
    elsewhere: usize,
    now: OffsetDateTime,
) -> Decision {
    let course = Course { elsewhere, ..Course::from(rollout) };
    match (&rollout.reboot, &rollout.program) {
        (Some(boots), _) => decide_reboots(&course, boots, &rollout.blocked_by, (members, seen), before, now),
        (None, Some(program)) => {
            decide_programs(&course, (program, rollout.observe), (members, seen), before, now)
        }
        (None, None) => decide_course(&course, members, seen, before, now),
    }
}

pub(super) fn decide_course(
    course: &Course,
    members: &[Member],
    seen: &Seen,
    before: &Status,
    now: OffsetDateTime,
) -> Decision {
    let Seen { current, listed, authorities, .. } = seen;
    let of_other = Status::default();
    let before = if before.rollout == course.id { before } else { &of_other };
    let (ordered, gone) = without_gone(course, members, &before.ordered);
    let recorded =
        Recorded { ordered: &ordered, failed: &before.failed, pods: &before.pods, listed, authorities };
    let mut pods: BTreeMap<String, PodCheck> = BTreeMap::new();
    let mut api_servers_to_ask: BTreeSet<String> = BTreeSet::new();
    let mut groups: BTreeMap<&str, Group<'_>> = BTreeMap::new();
    let (labelled, unlabelled): (Vec<&Member>, Vec<&Member>) =
        members.iter().partition(|member| !member.group.is_empty());
    for member in labelled {
        let hash = current.get(&member.group).and_then(|hash| hash.as_deref().ok());
        if depends_on_api_server(course, member, hash, &recorded, now) {
            api_servers_to_ask.insert(member.node.clone());
        }
        let (progress, check) = progress(course, member, hash, &recorded, now);
        pods.extend(check.map(|check| (member.node.clone(), check)));
        let progress = match (progress, &member.canary) {
            (Progress::Current, Canary::Failed(problem)) => Progress::FailedCanary(problem.clone()),
            (progress, _) => progress,
        };
        let group = groups.entry(&member.group).or_insert_with(|| {
            let settings = course.settings(&member.group);
            let closed = settings.and_then(|settings| settings.closed(now));
            let task = course.task;
            Group { rank: member.rank, hash, settings, closed, task, members: Vec::new() }
        });
        group.rank = group.rank.min(member.rank);
        group.members.push((member, progress));
    }

    let next = course.hold.clone().map_or_else(|| next(&groups, &unlabelled, course.elsewhere), Next::Waits);
    let (begun, waits_for) = match next {
        Next::Begins(begun) => (begun, String::new()),
        Next::Waits(waits_for) => (Vec::new(), waits_for),
    };
    let of_control_planes = |group: &str| groups.get(group).is_some_and(Group::is_of_control_planes);
    // etcd keeps its quorum during a restart only if all other members serve.
    if begun.iter().any(|begun| of_control_planes(&begun.member.group)) {
        let not_asked = |member: &&Member| member.rank == Rank::ControlPlane && !member.was_asked();
        api_servers_to_ask.extend(members.iter().filter(not_asked).map(|member| member.node.clone()));
    }
    // The watch may not show a recently written order yet. So the controller also takes orders back from Nodes that seem not to have them.
    let mut decision = Decision { withdrawn: gone, api_servers_to_ask, ..Decision::default() };
    for Begun { member, hash, settings, nodes } in begun {
        let order = Order {
            rollout: course.id.clone(),
            attempt: course.attempt,
            hash: hash.to_owned(),
            authorities: member.authorities_to_order(authorities),
            drain: settings.drain,
            max_unavailable: u32::try_from(settings.max_unavailable.among(nodes)).unwrap_or(u32::MAX),
            health_timeout: settings.health_timeout,
            may_go_back: settings.may_go_back,
            boot_id: String::new(),
            program: course.task == Task::Program,
            at: timestamp(now),
            until: if course.task.expires() { timestamp(now + settings.timeout()) } else { String::new() },
        };
        if settings.check_pods_after > 0 {
            if let Some(containers) = listed.get(&member.node) {
                pods.insert(member.node.clone(), PodCheck::before_order(containers));
            } else {
                decision.pods_to_list.insert(member.node.clone());
            }
        }
        decision.orders.insert(member.node.clone(), order);
    }
    let mut status = status(course, &groups, seen, before, &decision.orders);
    status.unlabelled = FirstNodes::from_nodes(unlabelled.iter().map(|member| member.node.as_str()));
    for (group, (member, progress)) in
        groups.values().flat_map(|group| group.members.iter().map(move |member| (group, member)))
    {
        let (Progress::Updating(order) | Progress::Failed(order, _)) = progress else { continue };
        let is_open = matches!(progress, Progress::Updating(_)) && !member.has_answered(order);
        if is_open && course.takes_back(member, order) {
            decision.withdrawn.push(member.node.clone());
            // An order that can expire stays in the status until the Node no longer has it: the request that takes the order back may fail,
            // or the controller may end before the request.
            if course.task.expires() {
                status.ordered.insert(member.node.clone(), order.clone());
            }
            continue;
        }
        // The controller ended before it wrote the order, or someone changed the annotation, so the order is written again.
        if is_open && member.order != order.text() {
            decision.orders.insert(member.node.clone(), order.clone());
        }
        let after = group.settings.map_or(Rollout::check_pods_after(), |settings| settings.check_pods_after);
        let is_due = pods.get(&member.node).is_some_and(|check| check.is_due(after, now));
        if matches!(progress, Progress::Updating(_)) && is_due && !listed.contains_key(&member.node) {
            decision.pods_to_list.insert(member.node.clone());
        }
        status.ordered.insert(member.node.clone(), order.clone());
        if matches!(progress, Progress::Failed(..)) {
            status.failed.insert(member.node.clone());
            if course.task == Task::Reboot {
                let boot_id = before.failed_in.get(&member.node).unwrap_or(&member.boot_id);
                status.failed_in.insert(member.node.clone(), boot_id.clone());
            }
            // Take the order of a failed node back, so that the node does not begin hours later. A node that has already rebooted keeps its
            // order, and finishes it.
            if course.task.expires() && member.order == order.text() && !course.has_rebooted(member, order) {
                decision.withdrawn.push(member.node.clone());
            }
        }
    }
    pods.retain(|node, _| status.ordered.contains_key(node));
    status.pods = pods;
    if status.phase != Phase::Done && !status.is_at_work() {
        status.waits_for = waits_for;
    }
    status.order_seconds = order_seconds(course, &groups, before, &ordered, now);
    status.turns_left = turns_left(course, &groups, &status);
    Decision { status, ..decision }
}

/// Removes from `ordered` the orders that are taken back and that their Nodes no longer have. Returns the remaining orders, and the nodes
/// of the removed orders.
fn without_gone<'a>(
    course: &Course,
    members: &[Member],
    ordered: &'a BTreeMap<String, Order>,
) -> (Cow<'a, BTreeMap<String, Order>>, Vec<String>) {
    let is_gone = |member: &&Member| {
        course.task.expires()
            && ordered.get(&member.node).is_some_and(|order| {
                !member.has_answered(order)
                    && member.order != order.text()
                    && course.takes_back(member, order)
            })
    };
    let gone: Vec<String> = members.iter().filter(is_gone).map(|member| member.node.clone()).collect();
    let mut ordered = Cow::Borrowed(ordered);
    gone.iter().for_each(|node| drop(ordered.to_mut().remove(node)));
    (ordered, gone)
}

fn status(
    course: &Course,
    groups: &BTreeMap<&str, Group<'_>>,
    seen: &Seen,
    before: &Status,
    begun: &BTreeMap<String, Order>,
) -> Status {
    let mut status = Status {
        rollout: course.id.clone(),
        attempt: course.attempt,
        ordered: begun.clone(),
        ..Status::default()
    };
    for (name, group) in groups.iter().filter(|(_, group)| group.settings.is_some() || group.is_at_work()) {
        let problem = match seen.current.get(*name) {
            Some(Ok(_)) => String::new(),
            Some(Err(failure)) => failure.to_string(),
            None => "the state store has no configuration of it".to_owned(),
        };
        let has_other_authorities = |member: &Member| {
            group.hash.is_some_and(|hash| member.runs.as_deref() == Some(hash))
                && member.trusts_others(&seen.authorities)
        };
        let mut of_group = GroupStatus {
            hash: group.hash.unwrap_or_default().to_owned(),
            nodes: group.members.len(),
            done: group.done(),
            problem,
            canaries: canaries(group, before.groups.get(*name), begun),
            canaries_left: if group.rank == Rank::Worker { group.canaries_left() } else { 0 },
            other_authorities: group
                .members
                .iter()
                .filter(|(member, _)| has_other_authorities(member))
                .count(),
            ..GroupStatus::default()
        };
        for (member, progress) in &group.members {
            match progress {
                Progress::Current => {}
                Progress::LeftOut => of_group.left_out += 1,
                Progress::Waiting if !begun.contains_key(&member.node) => {
                    of_group.waiting += 1;
                    if !member.held.is_empty() && of_group.held.len() < MOST_NAMED {
                        of_group.held.insert(member.node.clone(), member.held.clone());
                    }
                }
                Progress::Waiting | Progress::Updating(_) => of_group.updating.push(member.node.clone()),
                Progress::Failed(_, problem) | Progress::FailedCanary(problem) => {
                    of_group.failed += 1;
                    if of_group.failures.len() < MOST_NAMED {
                        of_group.failures.insert(member.node.clone(), problem.clone());
                    }
                }
            }
        }
        status.groups.insert((*name).to_owned(), of_group);
    }
    let compared = groups
        .iter()
        .filter(|(name, group)| group.settings.is_some() && seen.authorities.contains_key(**name))
        .flat_map(|(_, group)| &group.members);
    let without = compared.filter(|(member, _)| member.authorities.is_none());
    status.without_authorities = FirstNodes::from_nodes(without.map(|(member, _)| member.node.as_str()));
    let has_failed = status.groups.values().any(|group| group.failed > 0);
    let is_done = status.groups.values().all(GroupStatus::is_done);
    status.phase = match course.state {
        _ if is_done && !seen.is_stale => Phase::Done,
        State::Aborted => Phase::Aborted,
        State::Paused => Phase::Paused,
        State::Running if has_failed && !status.is_at_work() => Phase::Stopped,
        State::Running => Phase::Running,
    };
    status
}

/// The names of a group's canaries, at most [`MOST_NAMED`]. A node stays a canary until it needs a new order.
fn canaries(group: &Group<'_>, before: Option<&GroupStatus>, begun: &BTreeMap<String, Order>) -> Vec<String> {
    let needs_canaries = group.rank == Rank::Worker && group.canaries_left() > 0;
    let is_canary = |(member, progress): &&(&Member, Progress)| {
        let was_canary = before.is_some_and(|before| before.canaries.contains(&member.node));
        member.canary != Canary::No
            || was_canary && *progress != Progress::Waiting
            || needs_canaries && begun.contains_key(&member.node)
    };
    let canaries = group.members.iter().filter(is_canary).take(MOST_NAMED);
    canaries.map(|(member, _)| member.node.clone()).collect()
}

#[cfg(test)]
mod tests;
