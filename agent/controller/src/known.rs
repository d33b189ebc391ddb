//! The state of each Node, in one map: the work queue of the controller of nodes.
//!
//! A Node is reconciled by one task at a time; a change meanwhile queues it once more. After a failure it is retried with exponential
//! backoff and jitter, so that a thousand failures at once do not become a thousand retries at once. A change of the Node does not
//! shorten the backoff, for a machine that is not believed can change its Node as often as it likes. Repeated writes of a Node's labels
//! back off too: another controller undoes them. The Nodes whose cloud does not answer wait together ([`Outage`]).
//!
//! Nothing here does I/O or reads a clock.

mod outage;
mod standing;
mod turn;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use kops_agent_plan::identity::Identity;
use kops_agent_plan::labels::ObservedNode;
use kube::runtime::watcher::Event;
use tokio::time::Instant;

pub use outage::Outage;
use standing::Standing;
use turn::Turn;

use super::node_api::{NodeObject, observed};
use super::pauses::Pauses;

/// How long the watch has to bring a Node's new version, after a patch met with one.
pub const CONFLICT_PAUSE: Duration = Duration::from_millis(100);

/// The Nodes, by name.
#[derive(Debug, Default)]
pub struct KnownNodes {
    nodes: BTreeMap<Arc<str>, NodeState>,
    /// The queued Nodes, by the time at which they are due. [`KnownNodes::turn`] keeps it.
    schedule: BTreeSet<(Instant, Arc<str>)>,
    outage: Outage,
    is_complete: bool,
}

/// What is known of one Node.
#[derive(Debug, Default)]
struct NodeState {
    /// The Node as it was last seen; none before the list of Nodes is complete, and once it is gone.
    seen: Option<Arc<ObservedNode>>,
    /// The Node of a list that is not complete yet.
    listed: Option<Arc<ObservedNode>>,
    /// The version that was found to be outdated: the API server has another than what was last seen.
    outdated: Option<String>,
    turn: Turn,
    waits_for_cloud: bool,
    standing: Standing,
}

/// The watch, and what it brings.
impl KnownNodes {
    /// Begins anew, with these pauses while the cloud does not answer. Only identities are still known.
    pub fn begin(&mut self, pauses: Pauses) {
        for state in self.nodes.values_mut() {
            *state = NodeState { standing: std::mem::take(&mut state.standing), ..NodeState::default() };
        }
        self.schedule.clear();
        self.outage = Outage::pausing(pauses);
        self.is_complete = false;
    }

    /// Whether all Nodes are known.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The Node of this name as it was last seen.
    pub fn get(&self, name: &str) -> Option<&Arc<ObservedNode>> {
        self.nodes.get(name)?.seen.as_ref()
    }

    /// Takes in what happened.
    pub fn apply(&mut self, event: Event<NodeObject>, now: Instant) {
        match event {
            Event::Init => self.nodes.values_mut().for_each(|state| state.listed = None),
            Event::InitApply(node) => {
                let node = observed(node);
                let state = self.entry(&node.name);
                state.listed = Some(node);
            }
            Event::InitDone => self.replace(now),
            Event::Apply(node) => self.see(observed(node), now),
            Event::Delete(node) => self.forget(&node.metadata.name.unwrap_or_default()),
        }
    }

    fn replace(&mut self, now: Instant) {
        let names: Vec<Arc<str>> = self.nodes.keys().cloned().collect();
        for name in names {
            match self.nodes.get_mut(&name).and_then(|state| state.listed.take()) {
                Some(node) => self.see(node, now),
                None => self.forget(&name),
            }
        }
        self.is_complete = true;
    }

    /// A kubelet reports every few seconds; only what decides labels has a Node looked at, or that it is known again.
    pub fn see(&mut self, node: Arc<ObservedNode>, now: Instant) {
        let state = self.entry(&node.name);
        let is_awaited = state.outdated.as_ref().is_some_and(|version| *version != node.resource_version);
        let name = node.name.clone();
        match state.seen.replace(node.clone()) {
            Some(before) if before.provider_id != node.provider_id => self.wake(&name, now),
            Some(_) if is_awaited => self.wake(&name, now + CONFLICT_PAUSE),
            Some(before) if before.labels == node.labels => {}
            _ => self.changed(&name, now),
        }
    }

    /// A Node is gone, and nothing of it is kept; but that it is looked at, if it is, until [`KnownNodes::gone`].
    pub fn forget(&mut self, name: &str) {
        self.release(name);
        self.turn(name, |turn| *turn = if turn.is_looked_at { Turn::of_gone() } else { Turn::default() });
        match self.nodes.get_mut(name) {
            Some(state) if state.turn.is_looked_at => {
                let turn = std::mem::take(&mut state.turn);
                *state = NodeState { turn, ..NodeState::default() };
            }
            _ => drop(self.nodes.remove(name)),
        }
    }

    fn entry(&mut self, name: &str) -> &mut NodeState {
        if !self.nodes.contains_key(name) {
            self.nodes.insert(name.into(), NodeState::default());
        }
        self.nodes.get_mut(name).expect("it was put there")
    }
}

impl KnownNodes {
    /// Changes one Node's turn, and keeps the schedule.
    fn turn<T: Default>(&mut self, name: &str, change: impl FnOnce(&mut Turn) -> T) -> T {
        let this = (Bound::Included(name), Bound::Included(name));
        let Some((key, state)) = self.nodes.range_mut::<str, _>(this).next() else { return T::default() };
        let before = state.turn.not_before();
        let result = change(&mut state.turn);
        let after = state.turn.not_before();
        if before != after {
            if let Some(at) = before {
                self.schedule.remove(&(at, key.clone()));
            }
            if let Some(at) = after {
                self.schedule.insert((at, key.clone()));
            }
        }
        result
    }

    /// A Node changed: it is reconciled once the task at work on it ends, its backoff is over, and the cloud answers.
    pub fn changed(&mut self, name: &str, now: Instant) {
        if !self.nodes.get(name).is_some_and(|state| state.waits_for_cloud) {
            self.turn(name, |turn| turn.changed(now));
        }
    }

    /// Has a Node reconciled then, or once the task at work on it ends, whatever its backoff: the cause of its failure may be gone.
    pub fn wake(&mut self, name: &str, at: Instant) {
        self.release(name);
        self.turn(name, |turn| turn.wake(at));
    }

    pub fn wake_all(&mut self, at: Instant) {
        let seen = self.nodes.iter().filter(|(_, state)| state.seen.is_some());
        let names: Vec<Arc<str>> = seen.map(|(name, _)| name.clone()).collect();
        names.iter().for_each(|name| self.wake(name, at));
    }

    /// Takes at most so many due Nodes off the queue, the longest due first; returns them by name. Their reconciling begins now. One more
    /// may be there, which probes whether the cloud answers.
    pub fn take(&mut self, now: Instant, most: usize) -> Vec<String> {
        let due = self.schedule.iter().take_while(|(at, _)| *at <= now).map(|(_, name)| name);
        let idle = due.filter(|name| !self.is_looked_at(name)).take(most);
        let mut ready: Vec<String> = idle.map(|name| (**name).to_owned()).collect();
        ready.sort_unstable();
        ready.extend(self.take_for_all(now));
        for name in &ready {
            self.turn(name, Turn::begin);
        }
        ready
    }

    /// The Node that probes whether the cloud answers: the next one after the last.
    fn take_for_all(&mut self, now: Instant) -> Option<String> {
        let after = (Bound::Excluded(self.outage.due(now)?), Bound::Unbounded);
        let waits = |(_, state): &(&Arc<str>, &NodeState)| state.waits_for_cloud;
        let next = self.nodes.range::<str, _>(after).find(waits).or_else(|| self.nodes.iter().find(waits));
        let name = (**next?.0).to_owned();
        self.entry(&name).waits_for_cloud = false;
        self.outage.try_with(&name);
        Some(name)
    }

    fn is_looked_at(&self, name: &str) -> bool {
        self.nodes.get(name).is_some_and(|state| state.turn.is_looked_at)
    }

    pub fn done(&mut self, name: &str) {
        self.turn(name, Turn::done);
    }

    /// A Node was written to. After repeated writes it is not reconciled for the backoff that this returns.
    pub fn written(&mut self, name: &str, now: Instant) -> Option<Duration> {
        self.turn(name, |turn| turn.written(name, now))
    }

    /// Reconciling a Node failed. It is retried after the backoff that this returns, or at once if it was woken meanwhile.
    pub fn failed(&mut self, name: &str, now: Instant) -> Duration {
        self.turn(name, |turn| turn.failed(name, now))
    }

    /// The cloud did not answer for a Node, which is reconciled once the cloud answers for another. The first such Node, and the one that
    /// probes the cloud, are retried after the backoff that this returns.
    pub fn unanswered(&mut self, name: &str, now: Instant) -> Option<Duration> {
        self.turn(name, Turn::suspend);
        let state = self.nodes.get_mut(name)?;
        if !std::mem::replace(&mut state.waits_for_cloud, true) {
            self.outage.joined();
        }
        self.outage.failed(name, now)
    }

    /// A Node was reconciled, or failed for another reason than the cloud. If the others waited for the cloud, they are due now. Returns
    /// their number.
    pub fn answered(&mut self, name: &str, now: Instant) -> usize {
        self.release(name);
        if !self.outage.answered(name) {
            return 0;
        }
        let release = |(name, state): (&Arc<str>, &mut NodeState)| {
            std::mem::take(&mut state.waits_for_cloud).then(|| name.clone())
        };
        let released: Vec<Arc<str>> = self.nodes.iter_mut().filter_map(release).collect();
        released.iter().for_each(|name| self.changed(name, now));
        released.len()
    }

    /// The outage of the cloud.
    pub fn outage(&self) -> &Outage {
        &self.outage
    }

    /// A Node is gone that was looked at: nothing of it is kept any more.
    pub fn gone(&mut self, name: &str, now: Instant) {
        self.done(name);
        self.forget(name);
        self.outage.gone(name, now);
    }

    /// When the next one is due that is not looked at.
    pub fn next_due(&self) -> Option<Instant> {
        let idle = self.schedule.iter().find(|(_, name)| !self.is_looked_at(name));
        idle.map(|(at, _)| *at).into_iter().chain(self.outage.next()).min()
    }

    /// How many wait that are due.
    pub fn depth(&self, now: Instant) -> usize {
        self.schedule.iter().take_while(|(at, _)| *at <= now).count()
    }

    /// A Node does not wait for the cloud any more.
    fn release(&mut self, name: &str) {
        let state = self.nodes.get_mut(name);
        if state.is_some_and(|state| std::mem::take(&mut state.waits_for_cloud)) {
            self.outage.left();
        }
    }

    /// Whether this very version of a Node was found to be outdated before.
    pub fn is_outdated(&self, node: &ObservedNode) -> bool {
        let outdated = self.nodes.get(node.name.as_str()).and_then(|state| state.outdated.as_ref());
        outdated == Some(&node.resource_version)
    }

    /// A patch met with another version of a Node than the one that was looked at.
    pub fn conflicted(&mut self, node: &ObservedNode, now: Instant) {
        if !self.is_outdated(node) {
            self.entry(&node.name).outdated = Some(node.resource_version.clone());
            self.changed(&node.name, now + CONFLICT_PAUSE);
        }
    }

    /// A look at a Node met with no other version of it.
    pub fn is_current(&mut self, name: &str) {
        if let Some(state) = self.nodes.get_mut(name) {
            state.outdated = None;
        }
    }

    /// Whether no Node is looked at or waits, other than after a failure.
    #[cfg(test)]
    pub fn is_idle(&self) -> bool {
        self.outage.len() == 0 && self.nodes.values().all(|state| state.turn.is_idle())
    }
}

impl KnownNodes {
    /// The identity of a Node, while it stands.
    pub fn identity(&self, name: &str, provider_id: &str, now: Instant) -> Option<&Arc<Identity>> {
        self.nodes.get(name)?.standing.identity(provider_id, now)
    }

    /// When a Node was asked for under this providerID for the first time, where it has been refused since; now otherwise.
    pub fn asked_since(&self, name: &str, provider_id: &str, now: Instant) -> Instant {
        self.nodes.get(name).map_or(now, |state| state.standing.asked_since(provider_id, now))
    }

    pub fn believed(&mut self, node: &ObservedNode, identity: Arc<Identity>, now: Instant) {
        if let Some(state) = self.nodes.get_mut(node.name.as_str()) {
            state.standing = Standing::believed(&node.provider_id, identity, now);
        }
    }

    /// A Node is refused, for certain or not, and was asked for first at `since`.
    pub fn refused(&mut self, node: &ObservedNode, since: Instant, is_definite: bool) {
        if let Some(state) = self.nodes.get_mut(node.name.as_str()) {
            state.standing = Standing::Refused { provider_id: node.provider_id.clone(), since, is_definite };
        }
    }

    /// Whether no more Nodes are certainly others' than are believed. If most were, the configuration would be another
    /// cluster's, or its region, and they would be right.
    pub fn believes_most(&self) -> bool {
        let (mut believed, mut refused) = (0, 0);
        for state in self.nodes.values() {
            match &state.standing {
                Standing::Believed { .. } => believed += 1,
                Standing::Refused { is_definite: true, .. } => refused += 1,
                Standing::Refused { .. } | Standing::Unknown => {}
            }
        }
        believed > 0 && believed >= refused
    }
}

#[cfg(test)]
mod tests;
