//! The canaries of another version of kops-agent: whether they stay healthy for a while after their orders.

use std::collections::BTreeMap;

use kops_agent_spec::go_yaml::is_zero;
use kops_agent_spec::{parse_timestamp, timestamp};
use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};

use super::super::course::{Course, Settings};
use super::super::decide::{Canary, Member, Rank};
use super::super::order::Order;
use super::super::status::Status;
use super::super::wanted::Rollout;

/// The maximum number of canaries of a group. The status has each of them, and must fit into a ConfigMap.
pub const MOST_CANARIES: u32 = 100;

/// The observation of a canary's health after the canary has carried out its order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Observation {
    /// The attempt of the rollout in which the observation began.
    pub attempt: u32,
    pub begun: String,
    /// Since when the canary is healthy; empty if it is not healthy.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub healthy_since: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub has_passed: bool,
}

/// The canaries of each group of workers. A worker becomes a canary when it has carried out an order. The order must be in the
/// controller's own status, because a kubelet can write any outcome into its own Node. A canary stays a canary, whatever its Node reports
/// later.
pub(super) fn canaries(
    course: &Course,
    observe: u32,
    (members, before): (&[Member], &Status),
    now: OffsetDateTime,
) -> BTreeMap<String, Observation> {
    let is_same = before.rollout == course.id;
    let known = |member: &Member| before.canaries.get(&member.node).filter(|_| is_same);
    let has_carried_out = |member: &Member| {
        let order = before.ordered.get(&member.node).filter(|_| is_same);
        order.is_some_and(|order: &Order| member.has_answered(order)) && member.has_carried_out(&course.id)
    };
    let (earlier, later): (Vec<&Member>, Vec<&Member>) =
        members.iter().partition(|member| known(member).is_some());
    let mut of_groups: BTreeMap<&str, u32> = BTreeMap::new();
    let mut canaries = BTreeMap::new();
    for member in earlier.into_iter().chain(later) {
        let most = course.settings(&member.group).map_or(0, |settings| settings.canary);
        let number = of_groups.entry(&member.group).or_default();
        let is_canary = known(member).is_some() || has_carried_out(member);
        if member.rank != Rank::Worker || *number >= most || !is_canary {
            continue;
        }
        *number += 1;
        let of_attempt = known(member).filter(|known| known.has_passed || known.attempt == course.attempt);
        let mut observation = of_attempt.cloned().unwrap_or_else(|| Observation {
            attempt: course.attempt,
            begun: timestamp(now),
            ..Observation::default()
        });
        observation.continues(member, observe, now);
        canaries.insert(member.node.clone(), observation);
    }
    canaries
}

impl Observation {
    fn continues(&mut self, member: &Member, observe: u32, now: OffsetDateTime) {
        if self.has_passed {
            return;
        }
        match member.is_ready && member.is_healthy {
            true if self.healthy_since.is_empty() => self.healthy_since = timestamp(now),
            true => {}
            false => self.healthy_since.clear(),
        }
        self.has_passed = after(&self.healthy_since, observe.into()).is_some_and(|until| now >= until);
    }

    /// The state of the canary. The canary passes if it is healthy for `observe` seconds without interruption. It fails if it does not pass
    /// within the node timeout plus `observe` seconds after its observation began.
    pub(super) fn canary_state(
        &self,
        member: &Member,
        course: &Course,
        observe: u32,
        now: OffsetDateTime,
    ) -> Canary {
        if self.has_passed {
            return Canary::Passed;
        }
        let settings = course.settings(&member.group);
        let timeout = settings.map_or(Duration::seconds(Rollout::node_timeout().into()), Settings::timeout);
        let most = timeout.whole_seconds().saturating_add(observe.into());
        let state = match (member.is_ready, after(&self.healthy_since, observe.into())) {
            (_, Some(until)) => format!("is observed until {}", timestamp(until)),
            (false, None) => "is not Ready".to_owned(),
            (true, None) => "reports a problem (`kops-agent fleet status`)".to_owned(),
        };
        match after(&self.begun, most).is_some_and(|end| now < end) {
            true => Canary::Observed(format!("is upgraded, and {state}")),
            false => Canary::Failed(format!(
                "it runs the new version, but within {most} s after its order it was never healthy for \
                 {observe} s in a row; it {state}. If `kops-agent converge` on this node repairs it, run \
                 `kops-agent fleet rollout resume`. If not, run `rollout abort`, and start `fleet upgrade` \
                 again without --canary"
            )),
        }
    }
}

/// Adds seconds to a time of the status. `None` if the text is not a time, or the sum is too large. Both are possible, because anyone who
/// may write the ConfigMap may write any text.
fn after(time: &str, seconds: i64) -> Option<OffsetDateTime> {
    parse_timestamp(time)?.checked_add(Duration::seconds(seconds))
}
