//! The state of each Node, in one map: the work queue of the node controller.
//!
//! One task at a time reconciles a Node. A change meanwhile queues the Node once more. A failed Node is retried with exponential backoff
//! and jitter, so a thousand failures do not become a thousand retries at the same time. A change of the Node does not shorten its
//! backoff: a machine with an unconfirmed identity can change its Node as often as it likes. Repeated writes of a Node's labels back off
//! too, because another controller undoes them. Nodes whose cloud does not answer wait together ([`Outage`]).
//!
//! Nothing here does I/O or reads a clock.

mod identity_answer;
mod outage;
mod queue_entry;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use kops_agent_cluster::identity::Identity;
use kops_agent_cluster::labels::ObservedNode;
use kops_agent_net::retry::Pauses;
use kube::runtime::watcher::Event;
use tokio::time::Instant;

use identity_answer::IdentityAnswer;
pub use outage::{CLOUD_PAUSES, Outage};
use queue_entry::QueueEntry;

use kops_agent_kube::node_api::{NodeObject, observed};

/// The pause after a conflict. During this pause, the watch should report the Node's new version.
pub const CONFLICT_PAUSE: Duration = Duration::from_millis(100);

/// The Nodes by name, each with its queue entry and its identity.
#[derive(Debug, Default)]
pub struct NodeQueue {
    nodes: BTreeMap<Arc<str>, NodeState>,
    /// The queued Nodes, by the time when they are due. [`NodeQueue::change_entry`] maintains this schedule.
    schedule: BTreeSet<(Instant, Arc<str>)>,
    outage: Outage,
    is_complete: bool,
}

#[derive(Debug, Default)]
struct NodeState {
    /// The Node as the watch last reported it. `None` before the list of Nodes is complete, and after the Node's deletion.
    seen: Option<Arc<ObservedNode>>,
    /// The Node in a list that is still being read.
    listed: Option<Arc<ObservedNode>>,
    /// The version of the Node for which the API server reported a conflict, because the API server has a newer version.
    outdated: Option<String>,
    queue_entry: QueueEntry,
    waits_for_cloud: bool,
    identity_answer: IdentityAnswer,
}

/// Methods for the events of the watch of Nodes.
impl NodeQueue {
    /// Resets all state except the Nodes' identities. `pauses` is the backoff while the cloud does not answer.
    pub fn begin(&mut self, pauses: Pauses) {
        for state in self.nodes.values_mut() {
            *state = NodeState {
                identity_answer: std::mem::take(&mut state.identity_answer),
                ..NodeState::default()
            };
        }
        self.schedule.clear();
        self.outage = Outage::pausing(pauses);
        self.is_complete = false;
    }

    /// Whether all Nodes are known.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The Node of this name as the watch last reported it.
    pub fn get(&self, name: &str) -> Option<&Arc<ObservedNode>> {
        self.nodes.get(name)?.seen.as_ref()
    }

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

    /// Stores a Node. Queues the Node only if its providerID or labels are new, or if the last reconcile of the Node had a conflict and the
    /// Node has another version now. Other changes, such as kubelets' reports every few seconds, need no reconcile.
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

    /// Removes a deleted Node. An in-flight reconcile keeps its entry until [`NodeQueue::gone`].
    pub fn forget(&mut self, name: &str) {
        self.release(name);
        self.change_entry(name, |queue_entry| {
            *queue_entry =
                if queue_entry.is_looked_at { QueueEntry::of_gone() } else { QueueEntry::default() }
        });
        match self.nodes.get_mut(name) {
            Some(state) if state.queue_entry.is_looked_at => {
                let queue_entry = std::mem::take(&mut state.queue_entry);
                *state = NodeState { queue_entry, ..NodeState::default() };
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

impl NodeQueue {
    /// Changes a Node's entry, and updates the schedule.
    fn change_entry<T: Default>(&mut self, name: &str, change: impl FnOnce(&mut QueueEntry) -> T) -> T {
        let this = (Bound::Included(name), Bound::Included(name));
        let Some((key, state)) = self.nodes.range_mut::<str, _>(this).next() else { return T::default() };
        let before = state.queue_entry.not_before();
        let result = change(&mut state.queue_entry);
        let after = state.queue_entry.not_before();
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

    /// Queues a changed Node. Its next reconcile waits for three things: the end of its current reconcile, the end of its backoff, and an
    /// answer of the cloud.
    pub fn changed(&mut self, name: &str, now: Instant) {
        if !self.nodes.get(name).is_some_and(|state| state.waits_for_cloud) {
            self.change_entry(name, |queue_entry| queue_entry.changed(now));
        }
    }

    /// Queues a Node for `at`, or for the end of its current reconcile. Ends its backoff, because the cause of the failure may be over.
    pub fn wake(&mut self, name: &str, at: Instant) {
        self.release(name);
        self.change_entry(name, |queue_entry| queue_entry.wake(at));
    }

    pub fn wake_all(&mut self, at: Instant) {
        let seen = self.nodes.iter().filter(|(_, state)| state.seen.is_some());
        let names: Vec<Arc<str>> = seen.map(|(name, _)| name.clone()).collect();
        names.iter().for_each(|name| self.wake(name, at));
    }

    /// Takes at most `most` due Nodes off the queue, starting with those that are due longest. Returns their names, sorted. Their
    /// reconciles begin now. The list may contain one more Node, whose reconcile tests whether the cloud answers again.
    pub fn take(&mut self, now: Instant, most: usize) -> Vec<String> {
        let due = self.schedule.iter().take_while(|(at, _)| *at <= now).map(|(_, name)| name);
        let idle = due.filter(|name| !self.is_looked_at(name)).take(most);
        let mut ready: Vec<String> = idle.map(|name| (**name).to_owned()).collect();
        ready.sort_unstable();
        ready.extend(self.take_for_all(now));
        for name in &ready {
            self.change_entry(name, QueueEntry::begin);
        }
        ready
    }

    /// Takes a waiting Node for the next probe, if the probe is due. The reconcile of this Node tests whether the cloud answers again.
    /// Probes take the waiting Nodes in turn, in the order of their names.
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
        self.nodes.get(name).is_some_and(|state| state.queue_entry.is_looked_at)
    }

    pub fn done(&mut self, name: &str) {
        self.change_entry(name, QueueEntry::done);
    }

    /// Notes a write to a Node. After repeated writes, returns a backoff, during which the Node is not reconciled.
    pub fn written(&mut self, name: &str, now: Instant) -> Option<Duration> {
        self.change_entry(name, |queue_entry| queue_entry.written(name, now))
    }

    /// Notes a failed reconcile. Returns the backoff before the retry, which is zero if the Node was woken during the reconcile.
    pub fn failed(&mut self, name: &str, now: Instant) -> Duration {
        self.change_entry(name, |queue_entry| queue_entry.failed(name, now))
    }

    /// Notes that the cloud did not answer for a Node. The Node then waits until a probe succeeds. If this is the first failure of the
    /// outage, or if a probe with this Node failed, returns the backoff before the next probe.
    pub fn unanswered(&mut self, name: &str, now: Instant) -> Option<Duration> {
        self.change_entry(name, QueueEntry::suspend);
        let state = self.nodes.get_mut(name)?;
        if !std::mem::replace(&mut state.waits_for_cloud, true) {
            self.outage.joined();
        }
        self.outage.failed(name, now)
    }

    /// Notes that a Node was reconciled, or that its reconcile failed although the cloud answered. If this was a probe of the cloud, all
    /// waiting Nodes become due. Returns how many Nodes become due.
    pub fn cloud_answered(&mut self, name: &str, now: Instant) -> usize {
        self.release(name);
        if !self.outage.cloud_answered(name) {
            return 0;
        }
        let release = |(name, state): (&Arc<str>, &mut NodeState)| {
            std::mem::take(&mut state.waits_for_cloud).then(|| name.clone())
        };
        let released: Vec<Arc<str>> = self.nodes.iter_mut().filter_map(release).collect();
        released.iter().for_each(|name| self.changed(name, now));
        released.len()
    }

    pub fn outage(&self) -> &Outage {
        &self.outage
    }

    /// Removes all state of a Node that was deleted during its reconcile.
    pub fn gone(&mut self, name: &str, now: Instant) {
        self.done(name);
        self.forget(name);
        self.outage.gone(name, now);
    }

    /// The earliest due time of all Nodes that are not being reconciled, and of the next probe.
    pub fn next_due(&self) -> Option<Instant> {
        let idle = self.schedule.iter().find(|(_, name)| !self.is_looked_at(name));
        idle.map(|(at, _)| *at).into_iter().chain(self.outage.next()).min()
    }

    /// The number of due Nodes.
    pub fn depth(&self, now: Instant) -> usize {
        self.schedule.iter().take_while(|(at, _)| *at <= now).count()
    }

    /// Ends a Node's wait for the cloud.
    fn release(&mut self, name: &str) {
        let state = self.nodes.get_mut(name);
        if state.is_some_and(|state| std::mem::take(&mut state.waits_for_cloud)) {
            self.outage.left();
        }
    }

    /// Whether this version of the Node has caused a conflict.
    pub fn is_outdated(&self, node: &ObservedNode) -> bool {
        let outdated = self.nodes.get(node.name.as_str()).and_then(|state| state.outdated.as_ref());
        outdated == Some(&node.resource_version)
    }

    /// Notes a conflict, which means that the API server has another version of the Node. The first conflict of a version queues the Node.
    pub fn conflicted(&mut self, node: &ObservedNode, now: Instant) {
        if !self.is_outdated(node) {
            self.entry(&node.name).outdated = Some(node.resource_version.clone());
            self.changed(&node.name, now + CONFLICT_PAUSE);
        }
    }

    /// Notes that a reconcile of the Node had no conflict.
    pub fn is_current(&mut self, name: &str) {
        if let Some(state) = self.nodes.get_mut(name) {
            state.outdated = None;
        }
    }

    /// Whether the queue is idle: no Node is being reconciled, no Node waits for the cloud, and each queued Node only waits for a retry.
    #[cfg(test)]
    pub fn is_idle(&self) -> bool {
        self.outage.len() == 0 && self.nodes.values().all(|state| state.queue_entry.is_idle())
    }
}

impl NodeQueue {
    /// The confirmed identity of a Node. `None` after its TTL.
    pub fn identity(&self, name: &str, provider_id: &str, now: Instant) -> Option<&Arc<Identity>> {
        self.nodes.get(name)?.identity_answer.identity(provider_id, now)
    }

    /// Since when the cloud rejects the Node with this providerID: when the cloud was asked for the first of these rejections. `now` if the
    /// last answer did not reject the Node with this providerID.
    pub fn asked_since(&self, name: &str, provider_id: &str, now: Instant) -> Instant {
        self.nodes.get(name).map_or(now, |state| state.identity_answer.asked_since(provider_id, now))
    }

    pub fn believed(&mut self, node: &ObservedNode, identity: Arc<Identity>, now: Instant) {
        if let Some(state) = self.nodes.get_mut(node.name.as_str()) {
            state.identity_answer = IdentityAnswer::believed(&node.provider_id, identity, now);
        }
    }

    /// Notes that a Node is rejected. `is_definite` says whether the rejection is final. `since` is when the cloud was first asked about
    /// the Node.
    pub fn refused(&mut self, node: &ObservedNode, since: Instant, is_definite: bool) {
        if let Some(state) = self.nodes.get_mut(node.name.as_str()) {
            state.identity_answer =
                IdentityAnswer::Refused { provider_id: node.provider_id.clone(), since, is_definite };
        }
    }

    /// Whether the rejections can be trusted: at least one Node is confirmed, and the definitely rejected Nodes do not outnumber the
    /// confirmed Nodes. If the result is `false`, the configuration may belong to another cluster or region, and the rejections may be
    /// wrong.
    pub fn believes_most(&self) -> bool {
        let (mut believed, mut refused) = (0, 0);
        for state in self.nodes.values() {
            match &state.identity_answer {
                IdentityAnswer::Believed { .. } => believed += 1,
                IdentityAnswer::Refused { is_definite: true, .. } => refused += 1,
                IdentityAnswer::Refused { .. } | IdentityAnswer::Unknown => {}
            }
        }
        believed > 0 && believed >= refused
    }
}

#[cfg(test)]
mod tests;
