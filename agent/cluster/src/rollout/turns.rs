//! Whose turn it is: control planes, other API servers, canaries, all other workers.

use std::collections::BTreeMap;

use super::decide::{Member, Rank};
use super::progress::Progress;
use super::wanted::Rollout;
use crate::labels::INSTANCE_GROUP;

/// A group's members, with their progress.
pub(super) struct Group<'a> {
    pub(super) rank: Rank,
    pub(super) hash: Option<&'a str>,
    pub(super) members: Vec<(&'a Member, Progress)>,
}

impl Group<'_> {
    pub(super) fn done(&self) -> usize {
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

/// The members that get an order now, each with the hash of its group.
///
/// # Errors
/// No member may get one; the text is what they wait for.
pub(super) fn next<'a>(
    rollout: &Rollout,
    groups: &BTreeMap<&str, Group<'a>>,
    unlabelled: &[&'a Member],
) -> Result<Vec<(&'a Member, &'a str)>, String> {
    let of_rank = |rank: Rank| groups.values().filter(move |group| group.rank == rank);
    let control_planes: Vec<&Group<'a>> = of_rank(Rank::ControlPlane).collect();
    if !control_planes.iter().all(|group| group.is_done()) {
        return one_control_plane(rollout, &control_planes, unlabelled).map(|member| vec![member]);
    }
    // Without a group, its current configuration is unknown, so it may have an older API server than the others.
    if let Some(member) = unlabelled.iter().find(|member| member.rank < Rank::Worker) {
        return Err(format!(
            "{} has an API server and no label {INSTANCE_GROUP}, so its configuration is not known; all other nodes come after it",
            member.node
        ));
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
fn one_control_plane<'a>(
    rollout: &Rollout,
    groups: &[&Group<'a>],
    unlabelled: &[&'a Member],
) -> Result<(&'a Member, &'a str), String> {
    let is_control_plane = |member: &&&Member| member.rank == Rank::ControlPlane;
    if let Some(member) = unlabelled.iter().filter(is_control_plane).find(|member| !member.is_ready) {
        return Err(format!("the control plane {} is not Ready", member.node));
    }
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
