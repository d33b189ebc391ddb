//! Decides which nodes are next: control planes, other API servers, canaries, all other workers.

use std::collections::BTreeMap;

use super::course::Settings;
use super::decide::{ApiServer, Canary, Member, Rank};
use super::order::Task;
use super::progress::Progress;
use crate::labels::INSTANCE_GROUP;

/// Maximum number of nodes whose order has failed or is not finished, in the operator's rollout and the policy's rollouts together. The
/// ConfigMap contains a status of about 1,000 bytes for each of these nodes, and has at most 1 MiB. Control planes may exceed this
/// maximum, so that failed workers never block control planes.
pub(super) const MOST_AT_WORK: usize = 500;

/// An instance group, with its nodes (members) and the progress of each node.
pub(super) struct Group<'a> {
    pub(super) rank: Rank,
    pub(super) hash: Option<&'a str>,
    /// The settings of the group; `None` if the group is not part of the rollout.
    pub(super) settings: Option<&'a Settings>,
    /// Why all nodes of the group must wait for a window. `None` if the nodes need not wait for a window.
    pub(super) closed: Option<String>,
    pub(super) task: Task,
    pub(super) members: Vec<(&'a Member, Progress)>,
}

/// A member that gets an order now, with the hash and the settings of its group.
pub(super) struct Begun<'a> {
    pub(super) member: &'a Member,
    pub(super) hash: &'a str,
    pub(super) settings: &'a Settings,
    /// The number of nodes in the member's group.
    pub(super) nodes: usize,
}

impl<'a> Group<'a> {
    pub(super) fn is_of_control_planes(&self) -> bool {
        self.rank == Rank::ControlPlane
    }

    pub(super) fn done(&self) -> usize {
        self.count(|progress| *progress == Progress::Current)
    }

    fn count(&self, is: impl Fn(&Progress) -> bool) -> usize {
        self.members.iter().filter(|(_, progress)| is(progress)).count()
    }

    fn has_failed(&self) -> bool {
        self.members.iter().any(|(_, progress)| progress.is_failure())
    }

    /// Whether a member has an order that has failed or is not finished.
    pub(super) fn is_at_work(&self) -> bool {
        self.at_work() > 0
    }

    /// The number of members with an order that has failed or is not finished.
    fn at_work(&self) -> usize {
        self.count(|progress| matches!(progress, Progress::Updating(_) | Progress::Failed(..)))
    }

    fn is_done(&self) -> bool {
        self.left() == 0
    }

    /// The number of members that are neither done nor left out.
    pub(super) fn left(&self) -> usize {
        self.count(|progress| !matches!(progress, Progress::Current | Progress::LeftOut))
    }

    /// The number of canaries: members that have shown that the wanted state works. A node that already ran the wanted kops-agent is no
    /// canary, because it has carried out no order of this rollout.
    fn canaries(&self) -> usize {
        let is_canary = |(member, progress): &&(&Member, Progress)| match self.task {
            Task::Program => member.canary == Canary::Passed,
            Task::Configuration | Task::Reboot => *progress == Progress::Current,
        };
        self.members.iter().filter(is_canary).count()
    }

    /// The canaries that are still being observed, each with a text that says what the other workers wait for.
    fn observed(&self) -> impl Iterator<Item = (&'a Member, &'a str)> {
        self.members.iter().filter_map(|(member, _)| match &member.canary {
            Canary::Observed(why) => Some((*member, why.as_str())),
            Canary::No | Canary::Passed | Canary::Failed(_) => None,
        })
    }

    /// Whether other nodes need not wait for this group. They need not wait if each member is Ready, and is either done or must not begin
    /// now. In a rollout of configurations, the result is false, because a configuration can make a kubelet newer than an API server.
    fn is_passed(&self) -> bool {
        let is_passed = |(member, progress): &(&Member, Progress)| match progress {
            Progress::Current | Progress::LeftOut => member.is_ready,
            Progress::Waiting => member.is_ready && (self.closed.is_some() || !member.held.is_empty()),
            Progress::Updating(_) | Progress::Failed(..) | Progress::FailedCanary(_) => false,
        };
        self.task != Task::Configuration && self.members.iter().all(is_passed)
    }

    /// The number of nodes that are not Ready, or that may restart at any moment because their order has failed or is
    /// not finished.
    fn unavailable(&self) -> usize {
        self.members
            .iter()
            .filter(|(member, progress)| {
                !member.is_ready || matches!(progress, Progress::Updating(_) | Progress::Failed(..))
            })
            .count()
    }

    /// How many canaries the group still needs before all other workers may begin. 0 while the group's windows are closed, so that other
    /// groups do not wait. If a node of the group has failed, closed windows do not change the number.
    pub(super) fn canaries_left(&self) -> usize {
        let Some(settings) = self.settings.filter(|_| self.closed.is_none() || self.has_failed()) else {
            return 0;
        };
        let observed = self.observed().count();
        if self.is_passed() && observed == 0 {
            return 0;
        }
        let wanted = usize::try_from(settings.canary).unwrap_or(usize::MAX);
        wanted.saturating_sub(self.canaries()).min(self.left() + observed)
    }

    /// The waiting members, with the hash and the settings of the group. Empty while the group's windows are closed.
    fn waiting(&self) -> impl Iterator<Item = Begun<'a>> {
        let of_group = self.hash.zip(self.settings).filter(|_| self.closed.is_none());
        of_group.into_iter().flat_map(|(hash, settings)| {
            let nodes = self.members.len();
            let waiting = self
                .members
                .iter()
                .filter(|(member, progress)| *progress == Progress::Waiting && member.held.is_empty());
            waiting.map(move |(member, _)| Begun { member, hash, settings, nodes })
        })
    }

    /// The members that get an order now. At most `most` members are at work at a time. In an upgrade of kops-agent, healthy members come
    /// first, because a canary must be healthy.
    fn next(&self, most: usize) -> Vec<Begun<'a>> {
        let Some(settings) = self.settings.filter(|_| !self.has_failed()) else { return Vec::new() };
        let at_a_time = settings.max_unavailable.among(self.members.len());
        let at_work = self.count(|progress| matches!(progress, Progress::Updating(_)));
        let free = at_a_time.saturating_sub(self.unavailable()).min(most.saturating_sub(at_work));
        let mut ready: Vec<Begun<'a>> = self.waiting().filter(|begun| begun.member.is_ready).collect();
        if self.task == Task::Program {
            ready.sort_by_key(|begun| !begun.member.is_healthy);
        }
        ready.truncate(free);
        ready
    }
}

pub(super) enum Next<'a> {
    /// These members get an order now.
    Begins(Vec<Begun<'a>>),
    /// No member may get an order. The text names the obstacle.
    Waits(String),
}

/// The members that get an order now. `elsewhere` is the number of nodes with an order of another rollout.
pub(super) fn next<'a>(
    groups: &BTreeMap<&str, Group<'a>>,
    unlabelled: &[&'a Member],
    elsewhere: usize,
) -> Next<'a> {
    let of_rank = |rank: Rank| groups.values().filter(move |group| group.rank == rank);
    let control_planes: Vec<&Group<'a>> = of_rank(Rank::ControlPlane).collect();
    let mut passed = None;
    if !control_planes.iter().all(|group| group.is_done()) {
        match one_control_plane(&control_planes, unlabelled) {
            Ok(member) => return Next::Begins(vec![member]),
            Err(why) if control_planes.iter().all(|group| group.is_passed()) => passed = Some(why),
            Err(why) => return Next::Waits(why),
        }
    }
    let at_work: usize = groups.values().map(Group::at_work).sum();
    let free = MOST_AT_WORK.saturating_sub(at_work.saturating_add(elsewhere));
    match next_of_others(groups, unlabelled, free) {
        Next::Waits(why) => Next::Waits(passed.unwrap_or(why)),
        begins => begins,
    }
}

/// The members that get an order now, at most `free`. Control planes are left out.
fn next_of_others<'a>(
    groups: &BTreeMap<&str, Group<'a>>,
    unlabelled: &[&'a Member],
    free: usize,
) -> Next<'a> {
    let of_rank = |rank: Rank| groups.values().filter(move |group| group.rank == rank);
    // The configuration of a machine without a group is unknown, so its API server may be older than other API servers.
    if let Some(member) = unlabelled.iter().find(|member| member.rank < Rank::Worker) {
        return Next::Waits(format!(
            "{} has an API server and no label {INSTANCE_GROUP}, so its configuration is unknown; other \
             nodes wait until it has this label",
            member.node
        ));
    }
    // A kubelet must not be newer than an API server. So workers also wait for API servers outside this rollout.
    let api_servers: Vec<&Group<'a>> = of_rank(Rank::ApiServer).collect();
    if !api_servers.iter().all(|group| group.is_done() || group.is_passed()) {
        let members = api_servers.iter().map(|group| group.next(usize::MAX));
        return in_turn(members, free, || obstacle(&api_servers, "the nodes with API servers"));
    }
    let workers: Vec<&Group<'a>> = of_rank(Rank::Worker).filter(|group| group.settings.is_some()).collect();
    if workers.iter().any(|group| group.canaries_left() > 0) {
        let canaries =
            |group: &&Group<'a>| group.next(group.canaries_left().saturating_sub(group.observed().count()));
        return in_turn(workers.iter().map(canaries), free, || {
            let has_failed = workers.iter().any(|group| group.has_failed());
            let observed = workers.iter().find_map(|group| group.observed().next()).filter(|_| !has_failed);
            observed.map_or_else(
                || obstacle(&workers, "the canaries"),
                |(member, why)| format!("the canaries: {} {why}", member.node),
            )
        });
    }
    let members = workers.iter().map(|group| group.next(usize::MAX));
    in_turn(members, free, || match api_servers.iter().all(|group| group.is_done()) {
        true => obstacle(&workers, "the nodes"),
        false => obstacle(&api_servers, "the nodes with API servers"),
    })
}

/// Returns at most `free` members: the first of each group, then the second of each group, and so on. Returns [`Next::Waits`] if no group
/// has a member, or if `free` is 0.
fn in_turn<'a>(
    groups: impl Iterator<Item = Vec<Begun<'a>>>,
    free: usize,
    waits_for: impl Fn() -> String,
) -> Next<'a> {
    let mut members: Vec<(usize, Begun<'a>)> =
        groups.flat_map(|members| members.into_iter().enumerate()).collect();
    if members.is_empty() {
        return Next::Waits(waits_for());
    }
    if free == 0 {
        return Next::Waits(format!(
            "{MOST_AT_WORK} nodes are updating or have failed, in operators' rollouts and the policy's \
             rollouts together; this is the maximum"
        ));
    }
    members.sort_by_key(|(number, _)| *number);
    Next::Begins(members.into_iter().take(free).map(|(_, member)| member).collect())
}

/// The next control plane. No control plane may begin while another control plane is at work, is not Ready, or has an API server that is
/// not ready. Otherwise etcd could lose its quorum.
fn one_control_plane<'a>(groups: &[&Group<'a>], unlabelled: &[&'a Member]) -> Result<Begun<'a>, String> {
    let is_control_plane = |member: &&&Member| member.rank == Rank::ControlPlane;
    unlabelled.iter().filter(is_control_plane).try_for_each(|member| serves(member))?;
    for (member, progress) in groups.iter().flat_map(|group| &group.members) {
        match progress {
            Progress::Failed(_, problem) | Progress::FailedCanary(problem) => {
                return Err(format!("{} has failed: {problem}", member.node));
            }
            Progress::Updating(_) => return Err(format!("{} is updating", member.node)),
            Progress::Current | Progress::LeftOut | Progress::Waiting => serves(member)?,
        }
    }
    if let Some(begun) = groups.iter().find_map(|group| group.waiting().next()) {
        return Ok(begun);
    }
    let mut not_done = groups.iter().filter(|group| !group.is_done());
    Err(not_done.find_map(|group| of_closed(group).or_else(|| of_held(group))).unwrap_or_else(|| {
        "the control planes do not run the current configuration of their groups; all other nodes wait for \
         them, so start a rollout of all groups"
            .to_owned()
    }))
}

/// Fails if a control plane is not Ready, or if its API server is not ready.
fn serves(member: &Member) -> Result<(), String> {
    match &member.api_server {
        _ if !member.is_ready => Err(format!("the control plane {} is not Ready", member.node)),
        ApiServer::NotReady(why) => Err(format!("the API server of {} is not ready: {why}", member.node)),
        ApiServer::NotAsked | ApiServer::Ready => Ok(()),
    }
}

/// Why a group waits for its time windows to open; `None` if its nodes may begin.
fn of_closed(group: &Group<'_>) -> Option<String> {
    let (closed, (member, _)) = (group.closed.as_ref()?, group.members.first()?);
    Some(format!("the group {}: {closed}", member.group))
}

/// Why a waiting member of a group must not begin. `None` if every waiting member may begin.
fn of_held(group: &Group<'_>) -> Option<String> {
    let is_held =
        |(member, progress): &&(&Member, Progress)| *progress == Progress::Waiting && !member.held.is_empty();
    let (member, _) = group.members.iter().find(is_held)?;
    Some(format!("{}: {}", member.node, member.held))
}

/// The reason why these groups are not done.
fn obstacle(groups: &[&Group<'_>], what: &str) -> String {
    let not_done = || groups.iter().filter(|group| !group.is_done());
    for group in not_done() {
        if let Some((member, _)) = group.members.iter().find(|(_, progress)| progress.is_failure()) {
            return format!(
                "{what}: the group {} is paused, because {} has failed",
                member.group, member.node
            );
        }
    }
    if let Some(why) = not_done().find_map(|group| of_closed(group).or_else(|| of_held(group))) {
        return format!("{what}: {why}");
    }
    for group in not_done() {
        for (member, _) in &group.members {
            let name = &member.group;
            if !member.is_ready {
                return format!("{what}: {} of the group {name} is not Ready", member.node);
            }
            if group.hash.is_none() {
                return format!("{what}: the current configuration of the group {name} is not known");
            }
        }
    }
    format!("{what} in groups outside this rollout")
}

#[cfg(test)]
mod tests;
