//! When the current configurations of groups are read from the state store.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::time::Duration;

use kops_agent_cluster::rollout::{Member, Phase, Rank, RolloutAndPolicy, Task};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::current::{Configurations, Current};

const HASHES_TTL: Duration = Duration::from_secs(10);
/// The TTL of the hashes while there is no operator's rollout, and the policy's rollout is done or may give no orders that depend on the
/// state store. It is longer than `HASHES_TTL`, because each read of a hash is a request to the state store.
const HASHES_TTL_AT_REST: Duration = Duration::from_secs(60);

/// The IDs and attempts of two rollouts: the operator's rollout, and the last resumed automatic rollout.
type Attempts = [(String, u32); 2];

/// The configurations of groups and the program file, as they were last read.
#[derive(Default)]
pub(super) struct Hashes {
    pub(super) last: Configurations,
    groups: BTreeSet<String>,
    /// The IDs and attempts of the rollouts at the last read.
    attempts: Attempts,
    read: Option<Instant>,
    /// A read in the background, for which no decision waits.
    reading: JoinSet<(Attempts, Configurations)>,
}

impl Hashes {
    /// Reads the configurations of groups, or the program file, if a decision depends on them. Reads them again if the TTL has passed, if
    /// the set of groups has changed, or if a rollout has a new attempt. After the TTL, a decision waits for the read only if a node may
    /// get an order. So a pause or an abort does not wait for a slow state store. Returns whether the configurations of the last read are
    /// outdated.
    pub(super) async fn refresh(
        &mut self,
        current: &Current,
        asked: &RolloutAndPolicy,
        members: &[Member],
    ) -> bool {
        let mut groups: BTreeMap<String, Rank> = BTreeMap::new();
        let takes_configurations = asked.takes_configurations();
        for member in members {
            let counts = asked.has_part(member) || member.rank < Rank::Worker;
            if takes_configurations && !member.group.is_empty() && counts {
                let rank = groups.entry(member.group.clone()).or_insert(member.rank);
                *rank = member.rank.min(*rank);
            }
        }
        let may_order = asked.may_order_by_store();
        let is_at_rest = asked.rollout.is_none() && (asked.policy.status.phase == Phase::Done || !may_order);
        let ttl = if is_at_rest { HASHES_TTL_AT_REST } else { HASHES_TTL };
        let attempts = attempts(asked);
        let depends_on_program =
            asked.rollout.as_ref().is_some_and(|rollout| rollout.task() == Task::Program);
        if let Some(Ok((attempts, read))) = self.reading.try_join_next()
            && groups.keys().eq(&self.groups)
        {
            self.take(attempts, read);
        }
        let is_stale = |hashes: &Hashes| {
            hashes.attempts != attempts || hashes.read.is_none_or(|read| read.elapsed() >= ttl)
        };
        let is_other = self.read.is_none()
            || !groups.keys().eq(&self.groups)
            || depends_on_program != self.last.program.is_some();
        let depends_on_store = !groups.is_empty() || depends_on_program;
        if is_other || may_order && is_stale(self) {
            self.reading = JoinSet::new();
            self.groups = groups.keys().cloned().collect();
            let read = current.read(groups, depends_on_program).await;
            self.take(attempts.clone(), read);
        } else if is_stale(self) && depends_on_store && self.reading.is_empty() {
            let (current, attempts) = (current.clone(), attempts.clone());
            self.reading.spawn(async move { (attempts, current.read(groups, depends_on_program).await) });
        }
        is_stale(self) && depends_on_store
    }

    fn take(&mut self, attempts: Attempts, read: Configurations) {
        self.last = read.after(mem::take(&mut self.last));
        (self.attempts, self.read) = (attempts, Some(Instant::now()));
    }
}

fn attempts(asked: &RolloutAndPolicy) -> Attempts {
    let rollout = asked.rollout.as_ref().map(|rollout| (rollout.id.clone(), rollout.attempt));
    [rollout.unwrap_or_default(), (asked.policy_state.rollout.clone(), asked.policy_state.attempt)]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use kops_agent_cluster::labels::INSTANCE_GROUP;
    use kops_agent_cluster::rollout::{PolicyState, PolicyStatus, Status};
    use kops_agent_kube::node_watch::LIST_TIMEOUT;
    use kops_agent_store::Store;
    use serde_json::json;

    use super::super::leading::member;
    use super::*;

    /// A rollout of the group `nodes` in its first attempt.
    fn asked(id: &str, state: &str) -> RolloutAndPolicy {
        let rollout = serde_json::from_value(json!({"id": id, "state": state, "attempt": 1})).unwrap();
        let (policy, policy_state) = (PolicyStatus::default(), PolicyState::default());
        RolloutAndPolicy { rollout: Some(rollout), status: Status::default(), policy, policy_state }
    }

    fn nodes() -> [Member; 1] {
        let node = json!({"metadata": {"name": "i-1", "labels": {INSTANCE_GROUP: "nodes"}}, "spec": {}});
        [member(serde_json::from_value(node).unwrap())]
    }

    /// Hashes of this age that were read for the rollout `r-1`. They differ from the hashes in the state store of [`empty`].
    fn hashes(age: Duration) -> Hashes {
        let hashes = BTreeMap::from([("nodes".to_owned(), Ok("b=".to_owned()))]);
        let groups = hashes.keys().cloned().collect();
        let last = Configurations { hashes, ..Configurations::default() };
        let attempts = attempts(&asked("r-1", "running"));
        Hashes { last, groups, attempts, read: Instant::now().checked_sub(age), reading: JoinSet::new() }
    }

    fn empty(store: &tempfile::TempDir) -> Current {
        Current::new(Arc::new(Store::new(&[]).unwrap()), store.path().to_str().unwrap())
    }

    #[tokio::test]
    async fn after_a_pause_no_decision_waits_for_the_state_store() {
        let store = tempfile::tempdir().unwrap();
        let current = empty(&store);
        for (state, is_read) in [("paused", false), ("aborted", false), ("running", true)] {
            let mut hashes = hashes(10 * HASHES_TTL_AT_REST);
            let before = hashes.last.clone();
            let is_stale = hashes.refresh(&current, &asked("r-1", state), &nodes()).await;
            assert_eq!((hashes.last != before, is_stale), (is_read, !is_read), "{state}");
        }
    }

    #[tokio::test]
    async fn a_paused_rollout_learns_of_changes_in_the_background() {
        let store = tempfile::tempdir().unwrap();
        let (current, asked) = (empty(&store), asked("r-1", "paused"));
        let mut hashes = hashes(10 * HASHES_TTL_AT_REST);
        let before = hashes.last.clone();
        let learns = async {
            while hashes.refresh(&current, &asked, &nodes()).await {
                assert_eq!(hashes.last, before);
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LIST_TIMEOUT, learns).await.unwrap();
        assert_ne!(hashes.last, before);
    }

    #[tokio::test]
    async fn a_new_rollout_does_not_begin_with_hashes_of_an_earlier_one() {
        let store = tempfile::tempdir().unwrap();
        let current = empty(&store);
        let resumed = |mut asked: RolloutAndPolicy| {
            asked.rollout.as_mut().unwrap().attempt = 2;
            asked
        };
        for (asked, is_read) in [
            (asked("r-1", "running"), false),
            (asked("r-1", "paused"), false),
            (asked("r-2", "running"), true),
            (resumed(asked("r-1", "running")), true),
        ] {
            let mut hashes = hashes(Duration::ZERO);
            let before = hashes.last.clone();
            assert!(!hashes.refresh(&current, &asked, &nodes()).await);
            assert_eq!(hashes.last != before, is_read, "{:?}", asked.rollout);
        }
    }
}
