//! Estimates how long a rollout still takes, from the turns that are left and the time of the last finished orders.

use std::collections::BTreeMap;

use serde::Serialize;
use time::OffsetDateTime;

use super::course::Course;
use super::decide::{Member, Rank};
use super::order::{Order, Task};
use super::progress::Progress;
use super::status::{Phase, Status};
use super::turns::{Group, MOST_AT_WORK};

/// Maximum number of finished orders whose times the status keeps. A ConfigMap has at most 1 MiB.
const MOST_KEPT: usize = 10;

/// The remaining time of a rollout if nothing stops or holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Estimate {
    /// [`Status::turns_left`] times `median_seconds`.
    pub seconds_left: u64,
    /// The median of [`Status::order_seconds`].
    pub median_seconds: u32,
}

impl Status {
    /// `None` if no order has finished yet, or if the number of turns is not known.
    pub fn estimate(&self) -> Option<Estimate> {
        let mut seconds = self.order_seconds.clone();
        seconds.sort_unstable();
        let median_seconds = *seconds.get(seconds.len() / 2)?;
        let turns = u64::try_from(self.turns_left).unwrap_or(u64::MAX);
        let seconds_left = turns.saturating_mul(median_seconds.into());
        (turns > 0).then_some(Estimate { seconds_left, median_seconds })
    }
}

/// The new [`Status::order_seconds`]: the durations in the status `before`, and the durations of the orders that have finished since then.
/// `ordered` has the orders of the status `before`. An order finishes when its node counts as done, so its duration includes the check of
/// the node's pods.
pub(super) fn order_seconds(
    course: &Course,
    groups: &BTreeMap<&str, Group<'_>>,
    before: &Status,
    ordered: &BTreeMap<String, Order>,
    now: OffsetDateTime,
) -> Vec<u32> {
    let took = |(member, progress): &(&Member, Progress)| {
        let order = ordered.get(&member.node).filter(|order| order.attempt == course.attempt)?;
        let seconds = (now - order.time()?).whole_seconds();
        // If another controller's clock is ahead, the duration may be negative. Then the order is not counted. Times in the status have
        // whole seconds, so the minimum is 1 s.
        (*progress == Progress::Current).then_some(u32::try_from(seconds).ok()?.max(1))
    };
    let finished = groups.values().flat_map(|group| &group.members).filter_map(took);
    let mut seconds = before.order_seconds.clone();
    seconds.extend(finished);
    seconds.split_off(seconds.len().saturating_sub(MOST_KEPT))
}

/// The new [`Status::turns_left`]. The caller has already updated all other fields of `status`.
pub(super) fn turns_left(course: &Course, groups: &BTreeMap<&str, Group<'_>>, status: &Status) -> usize {
    let in_rollout = || groups.values().filter(|group| group.settings.is_some());
    let is_stuck = status
        .groups
        .values()
        .any(|group| group.failed > 0 || !group.held.is_empty() || !group.problem.is_empty());
    // Nodes wait for groups of an earlier rank, even if this rollout does not change these groups.
    let waits_for_others = groups.values().any(|others| {
        others.settings.is_none()
            && others.left() > 0
            && in_rollout().any(|group| group.rank > others.rank && group.left() > 0)
    });
    let waits_for_window = in_rollout().any(|group| group.closed.is_some() && group.left() > 0);
    // Canaries of an upgrade of kops-agent are observed after their orders, for an unknown time.
    let observes = course.task == Task::Program && in_rollout().any(|group| group.canaries_left() > 0);
    let waits = course.hold.is_some() || status.phase != Phase::Running || !status.waits_for.is_empty();
    if waits || is_stuck || waits_for_others || waits_for_window || observes {
        return 0;
    }
    let of_rank = |rank: Rank| in_rollout().filter(move |group| group.rank == rank);
    let others = |group: &Group<'_>| group.left().saturating_sub(group.canaries_left());
    let control_planes: usize = of_rank(Rank::ControlPlane).map(Group::left).sum();
    control_planes
        + turns(of_rank(Rank::ApiServer).map(|group| (group, group.left())))
        + turns(of_rank(Rank::Worker).map(|group| (group, group.canaries_left())))
        + turns(of_rank(Rank::Worker).map(|group| (group, others(group))))
}

/// The number of turns if these groups change at the same time. In one turn, several nodes change together. Each group is given with the
/// number of its nodes that still have to change.
fn turns<'g, 'm: 'g>(groups: impl Iterator<Item = (&'g Group<'m>, usize)>) -> usize {
    let (mut turns, mut nodes) = (0_usize, 0_usize);
    for (group, left) in groups {
        let at_a_time =
            group.settings.map_or(1, |settings| settings.max_unavailable.among(group.members.len()));
        turns = left.div_ceil(at_a_time).max(turns);
        nodes += left;
    }
    nodes.div_ceil(MOST_AT_WORK).max(turns)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use kops_agent_spec::failure::{Failure, Kind};
    use time::Duration;

    use super::super::testing::Cluster;
    use super::super::wanted::{MaxUnavailable, State};
    use super::*;

    fn act_after(cluster: &mut Cluster, seconds: i64, nodes: &[&str]) {
        cluster.now += Duration::seconds(seconds);
        nodes.iter().for_each(|node| cluster.act(node, ""));
    }

    #[test]
    fn the_estimate_is_the_median_of_finished_orders_for_each_turn_that_is_left() {
        let mut cluster = Cluster::new(&[("masters", 2), ("a", 5), ("b", 1)]);
        cluster.rollout.max_unavailable = MaxUnavailable::Nodes(2);
        cluster.rollout.canary = 1;
        cluster.step();
        assert_eq!(
            (cluster.status.turns_left, cluster.status.estimate()),
            (5, None),
            "no order has finished"
        );
        let begun = cluster.status.clone();
        cluster.now += Duration::seconds(30);
        cluster.step();
        assert_eq!(cluster.status, begun, "the status changes with time alone");
        act_after(&mut cluster, 60, &["masters-00"]);
        assert_eq!(cluster.step(), ["masters-01"]);
        assert_eq!(cluster.status.turns_left, 4);
        assert_eq!(cluster.status.estimate(), Some(Estimate { seconds_left: 360, median_seconds: 90 }));
        act_after(&mut cluster, 100, &["masters-01"]);
        assert_eq!(cluster.step(), ["a-00", "b-00"]);
        act_after(&mut cluster, 20, &["a-00", "b-00"]);
        assert_eq!(cluster.step(), ["a-01", "a-02"]);
        assert_eq!(
            (&cluster.status.order_seconds[..], cluster.status.turns_left),
            (&[90, 100, 20, 20][..], 2)
        );
        assert_eq!(cluster.status.estimate(), Some(Estimate { seconds_left: 180, median_seconds: 90 }));
        act_after(&mut cluster, 20, &["a-01", "a-02"]);
        assert_eq!(cluster.step(), ["a-03", "a-04"]);
        assert_eq!(cluster.status.estimate(), Some(Estimate { seconds_left: 20, median_seconds: 20 }));
        act_after(&mut cluster, 20, &["a-03", "a-04"]);
        cluster.step();
        assert_eq!((cluster.status.phase, cluster.status.estimate()), (Phase::Done, None));
    }

    #[test]
    fn no_time_is_estimated_while_something_without_a_known_end_holds_nodes() {
        let begun = || {
            let mut cluster = Cluster::new(&[("a", 3), ("b", 3)]);
            cluster.step();
            act_after(&mut cluster, 10, &["a-00", "b-00"]);
            cluster.step();
            assert!(cluster.status.estimate().is_some());
            cluster
        };
        let holds: [fn(&mut Cluster); 4] = [
            |cluster| cluster.act("a-01", "kubelet is dead"),
            |cluster| cluster.rollout.state = State::Paused,
            |cluster| {
                let unknown = Failure::new(Kind::StoreUnreachable, "no answer");
                cluster.seen.current.insert("a".into(), Err(unknown));
            },
            |cluster| cluster.rollout.windows.push("Sat 00:00-01:00 UTC".parse().unwrap()),
        ];
        for hold in holds {
            let mut cluster = begun();
            hold(&mut cluster);
            cluster.step();
            assert_eq!(cluster.status.estimate(), None, "{:?}", cluster.status);
        }
        // The workers wait for control planes outside of the rollout. Only the worker that already has an order may finish.
        let mut cluster = Cluster::new(&[("a", 3), ("masters", 1)]);
        cluster.of_name("masters-00").runs = Some("b=".into());
        cluster.rollout.instance_groups.insert("a".into());
        cluster.step();
        act_after(&mut cluster, 10, &["a-00"]);
        cluster.step();
        assert!(cluster.status.estimate().is_some());
        cluster.seen.current.insert("masters".into(), Ok("c=".into()));
        cluster.step();
        assert_eq!((cluster.status.estimate(), cluster.status.waits_for.as_str()), (None, ""));
    }

    #[test]
    fn the_status_keeps_few_times_and_none_that_is_not_positive() {
        let mut cluster = Cluster::new(&[("a", 40)]);
        cluster.rollout.max_unavailable = MaxUnavailable::Nodes(15);
        cluster.step();
        cluster.now -= Duration::seconds(10);
        cluster.act("a-00", "");
        cluster.step();
        assert_eq!(cluster.status.order_seconds, [0; 0], "the clock of this controller is behind");
        cluster.now += Duration::seconds(10);
        cluster.act("a-01", "");
        cluster.step();
        assert_eq!(cluster.status.order_seconds, [1]);
        cluster.now += Duration::seconds(5);
        (2..15).for_each(|number| cluster.act(&format!("a-{number:02}"), ""));
        cluster.step();
        assert_eq!(cluster.status.order_seconds, [5; MOST_KEPT]);
    }

    #[test]
    fn all_groups_together_have_a_limit_of_nodes_at_work() {
        let mut cluster = Cluster::new(&[("a", 600), ("b", 600)]);
        cluster.rollout.max_unavailable = MaxUnavailable::Percent(100);
        cluster.step();
        assert_eq!(cluster.status.turns_left, 3);
    }
}
