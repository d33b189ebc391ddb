//! The node controller: gives every Node the labels of its instance group.
//!
//! It watches Nodes, and reconciles a Node whose labels or providerID changed. The cloud confirms the Node's identity, the state
//! store has the labels of its group, and a patch sets them. The controller never trusts what a machine says about itself. If a
//! Node is definitely not the machine that it claims to be, it loses roles that another controller may have given it.

mod outcome;
mod patching;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::future::{BoxFuture, join};
use futures_util::stream::{FuturesUnordered, StreamExt};
use kube::api::ListParams;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout};

use kops_agent_cloud::NotIdentified;
use kops_agent_cluster::identity::{Identity, Refusal};
use kops_agent_cluster::labels::{self, LabelPatch, ObservedNode, Wanted};
use kops_agent_cluster::pod_ranges::NodePatch;
use kops_agent_kube::events::{Events, Reason};
use kops_agent_kube::lease::Leadership;
use kops_agent_kube::list_pages;
use kops_agent_kube::node_api::{Nodes, observed};
use kops_agent_kube::node_watch::{NodeWatch, no_answer};
use kops_agent_net::retry::Pauses;
use kops_agent_spec::failure::{Failure, Kind};

use super::groups::{Changed, Group, Groups};
use super::identify::Identifier;
use super::metrics::{Metrics, Reconciled};
use super::node_queue::NodeQueue;
use super::pod_ranges::{Lacking, PodRanges};
use crate::options::LabelsFrom;
use outcome::{Outcome, in_words, left_out};

/// The number of patches in flight at the same time.
const PATCHES_AT_ONCE: usize = 32;
/// The number of Nodes that are reconciled at the same time. Each of them needs some kB of memory.
const LOOKS_AT_ONCE: usize = 5000;
/// While more reconciles than this are in flight, no new reconcile starts. So the next thousands of reconciles start together, and each
/// call to the cloud asks for as many Nodes as possible.
const LOOKS_FEW: usize = 2000;
/// The interval between resyncs. A resync reconciles all Nodes together, which needs few calls to the cloud.
const RESYNC: Duration = Duration::from_secs(60 * 60);
/// The problem of a Node whose reconciles conflict repeatedly.
const OUTDATED: &str = "it has changed, but the watch of Nodes has not delivered the change";
/// The number of consecutive failures of the cloud after which an Event reports the outage. A shorter outage is only logged.
const TOLD_AFTER: u32 = 4;

pub struct NodeLabels {
    pub nodes: Nodes,
    /// The Nodes of the cluster, and the queue of their reconciles.
    pub known: Arc<Mutex<NodeQueue>>,
    pub identifier: Identifier,
    pub pod_ranges: PodRanges,
    /// The source of the groups' labels.
    pub groups: Groups,
    /// Creates Events about rejected Nodes and other problems.
    pub events: Events,
    pub metrics: Metrics,
    pub mode: Mode,
    /// Whether the first list of Nodes is complete.
    pub is_synced: AtomicBool,
    /// The timeout of a page of the list of Nodes: [`kops_agent_kube::node_watch::LIST_TIMEOUT`].
    pub list_timeout: Duration,
    /// The pauses between probes of a cloud that does not answer.
    pub cloud_pauses: Pauses,
    /// The source of the labels of a Node whose identity is confirmed.
    pub labels_from: LabelsFrom,
}

#[derive(Clone)]
pub enum Mode {
    /// Patches are applied while this process leads.
    Apply(Leadership),
    /// Patches are returned, not applied.
    Show,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The patches that were not applied, by the Node's name.
    pub patches: BTreeMap<String, NodePatch>,
    /// How many Nodes were patched.
    pub patched: usize,
    /// Why some Nodes could not be reconciled, by the Node's name.
    pub problems: BTreeMap<String, String>,
    /// The number of problems that a retry may solve.
    pub failed: usize,
}

impl Found {
    /// A text with three numbers: the Nodes that changed or would change, the refused Nodes, and the failed Nodes.
    pub fn summary(&self) -> String {
        let changes = match (self.patched, self.patches.len()) {
            (0, 0) => "no Node needs a change".to_owned(),
            (0, shown) => format!("{shown} Nodes would change"),
            (patched, _) => format!("{patched} Nodes were changed"),
        };
        let refused = self.problems.len() - self.failed;
        match (refused, self.failed) {
            (0, 0) => changes,
            (refused, 0) => format!("{changes}; {refused} Nodes are refused"),
            (0, failed) => format!("{changes}; {failed} Nodes failed: repeat the command"),
            (refused, failed) => {
                format!("{changes}; {refused} Nodes are refused, and {failed} failed: repeat the command")
            }
        }
    }
}

type Looking<'a> = FuturesUnordered<BoxFuture<'a, (Arc<ObservedNode>, Outcome, Duration)>>;

impl NodeLabels {
    /// Reconciles Nodes until the returned future is dropped.
    pub async fn run(&self) -> Result<()> {
        let mut watch = NodeWatch::new(self.nodes.api(), self.list_timeout);
        self.known.lock().begin(self.cloud_pauses);
        let slots = Semaphore::new(PATCHES_AT_ONCE);
        let mut looking = Looking::new();
        let mut telling: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
        let mut refreshing: BoxFuture<'_, Changed> = Box::pin(self.groups.refresh());
        let mut groups_were_read = self.labels_from == LabelsFrom::Tags;
        let mut resync = Instant::now() + RESYNC;
        loop {
            let now = Instant::now();
            let wake = {
                let mut known = self.known.lock();
                let is_idle = looking.len() <= LOOKS_FEW;
                let may_look = known.is_complete() && groups_were_read && is_idle;
                let most = LOOKS_AT_ONCE.saturating_sub(looking.len());
                for name in if may_look { known.take(now, most) } else { vec![] } {
                    match known.get(&name) {
                        Some(node) => looking.push(self.reconcile(node.clone(), &slots)),
                        None => known.gone(&name, now),
                    }
                }
                // While thousands of reconciles are in flight, thousands of Nodes may be due. Counting them at each event would be slow.
                if is_idle {
                    self.metrics.queued(known.depth(now), known.outage().len());
                }
                known.next_due().filter(|_| may_look)
            };
            tokio::select! {
                event = watch.next() => match event {
                    Some(Ok(event)) => {
                        let mut known = self.known.lock();
                        known.apply(event, Instant::now());
                        self.is_synced.store(known.is_complete(), Ordering::Relaxed);
                    }
                    Some(Err(problem)) => log::warn!("{problem}; trying again"),
                    None => return Err(Failure::new(Kind::Ended, "the watch of Nodes ended").into()),
                },
                Some((node, outcome, took)) = looking.next() => {
                    if let (Outcome::Refused(refusal), Mode::Apply(leadership)) = (&outcome, &self.mode)
                        && let Some(patch) = self.roles_to_take_away(&node, refusal)
                    {
                        let (node, refusal) = (node.clone(), refusal.clone());
                        telling.push(Box::pin(async {
                            self.take_roles_away(node, patch, refusal, leadership, &slots).await;
                        }));
                    }
                    if let Some(problem) = self.settle(&node, outcome, took) {
                        telling.push(Box::pin(async move {
                            self.events.warn_of_controller(Reason::CloudUnavailable, &problem).await;
                        }));
                    }
                }
                Some(()) = telling.next() => {}
                changed = &mut refreshing => {
                    groups_were_read = true;
                    self.metrics.store_is_readable.set(i64::from(self.groups.is_current()));
                    self.groups_changed(&changed);
                    refreshing = Box::pin(async {
                        self.groups.pause().await;
                        self.groups.refresh().await
                    });
                }
                () = sleep_until(wake.unwrap_or(now)), if wake.is_some() => {}
                () = sleep_until(resync) => {
                    self.known.lock().wake_all(Instant::now());
                    resync += RESYNC;
                }
            }
        }
    }

    pub async fn run_once(&self) -> Result<Found> {
        self.groups.refresh().await;
        let mut found = Found::default();
        let slots = Semaphore::new(PATCHES_AT_ONCE);
        let mut looking = Looking::new();
        let mut refused = Vec::new();
        for node in self.list().await? {
            self.known.lock().see(node.clone(), Instant::now());
            looking.push(self.reconcile(node, &slots));
        }
        while let Some((node, outcome, _)) = looking.next().await {
            found.failed += usize::from(outcome.may_pass());
            let problem = match outcome {
                Outcome::Done => continue,
                Outcome::Patched => {
                    found.patched += 1;
                    continue;
                }
                Outcome::Shown(patch) => {
                    found.patches.insert(node.name.clone(), patch);
                    continue;
                }
                Outcome::Conflict => "another client changed it concurrently; repeat the command".to_owned(),
                Outcome::NotYet => "its instance is not known yet".to_owned(),
                Outcome::Refused(refusal) => {
                    let problem = refusal.to_string();
                    refused.push((node.clone(), refusal));
                    problem
                }
                Outcome::LabelsLeftOut(problems) => left_out(&problems),
                Outcome::NoPodRange(problem) | Outcome::Unanswered(problem) | Outcome::Failed(problem) => {
                    problem
                }
            };
            found.problems.insert(node.name.clone(), problem);
        }
        // `believes_most` counts confirmed and rejected Nodes, so its result is right only after all Nodes have been identified.
        for (node, refusal) in refused {
            let Some(patch) = self.roles_to_take_away(&node, &refusal) else { continue };
            match &self.mode {
                Mode::Show => drop(found.patches.insert(node.name.clone(), patch)),
                Mode::Apply(leadership) => {
                    let taken = self.take_roles_away(node, patch, refusal, leadership, &slots).await;
                    found.patched += usize::from(taken);
                }
            }
        }
        Ok(found)
    }

    async fn list(&self) -> Result<Vec<Arc<ObservedNode>>> {
        let api = &self.nodes.api();
        let ask = |page| async move {
            match timeout(self.list_timeout, api.list(&page)).await {
                Ok(answer) => Ok(answer?),
                Err(_) => {
                    let problem = no_answer(self.list_timeout);
                    Err(anyhow::Error::new(Failure::new(Kind::ApiServerUnanswered, problem)))
                }
            }
        };
        list_pages::all(ListParams::default(), ask, observed).await.context("listing Nodes")
    }

    fn reconcile<'a>(
        &'a self,
        node: Arc<ObservedNode>,
        slots: &'a Semaphore,
    ) -> BoxFuture<'a, (Arc<ObservedNode>, Outcome, Duration)> {
        Box::pin(async move {
            let begun = Instant::now();
            let outcome = self.outcome(&node, slots).await;
            let told = match &outcome {
                Outcome::Refused(refusal) => {
                    Some((Reason::OfDecision(refusal.reason()), refusal.to_string()))
                }
                Outcome::NoPodRange(problem) => Some((Reason::CIDRNotAvailable, problem.clone())),
                Outcome::LabelsLeftOut(problems) => Some((Reason::LabelsLeftOut, left_out(problems))),
                _ => None,
            };
            if let (Some((reason, message)), Mode::Apply(_)) = (told, &self.mode) {
                Box::pin(self.events.warn(&node.name, reason, &message)).await;
            }
            (node, outcome, begun.elapsed())
        })
    }

    async fn outcome(&self, node: &ObservedNode, slots: &Semaphore) -> Outcome {
        // Ask for the identity and for the pod ranges concurrently, so that both questions share a call to the cloud.
        let (identity, ranges) = join(self.identifier.identify(node), self.pod_ranges.missing(node)).await;
        let identity = match identity {
            Ok(identity) => identity,
            Err(NotIdentified::NotYet) => return Outcome::NotYet,
            Err(NotIdentified::Refused(refusal)) => return Outcome::Refused(refusal),
            Err(NotIdentified::Unavailable(problem)) => return Outcome::Unanswered(problem),
        };
        // A Node gets its pod addresses even if its group has a problem. A Node gets its labels even if its pod addresses are missing.
        let (ranges, lacking) = ranges.map_or_else(|why| (Vec::new(), Some(why)), |ranges| (ranges, None));
        let (labels, refused) = match self.wanted(node, &identity) {
            Ok(wanted) => (labels::diff(node, &wanted), None),
            Err(refusal) => (None, Some(refusal)),
        };
        let (labels, invalid) = labels.map_or((None, Vec::new()), LabelPatch::without_invalid);
        if let (false, Mode::Show) = (invalid.is_empty(), &self.mode) {
            log::warn!("the Node {}: {}", node.name, left_out(&invalid));
        }
        let written = match (NodePatch::new(labels, ranges), &self.mode) {
            (None, _) => Outcome::Done,
            (Some(patch), Mode::Show) => Outcome::Shown(patch),
            (Some(patch), Mode::Apply(leadership)) => {
                Box::pin(self.patch(node, patch, leadership, slots)).await
            }
        };
        match (written, refused, lacking) {
            (Outcome::Done | Outcome::Patched, Some(refusal), _)
            | (Outcome::Done | Outcome::Patched, None, Some(Lacking::Refused(refusal))) => {
                Outcome::Refused(refusal)
            }
            (Outcome::Done | Outcome::Patched, None, Some(Lacking::Problem(problem))) => {
                Outcome::NoPodRange(problem)
            }
            (Outcome::Done | Outcome::Patched, None, None) if !invalid.is_empty() => {
                Outcome::LabelsLeftOut(invalid)
            }
            (Outcome::LabelsLeftOut(problems), ..) => {
                Outcome::LabelsLeftOut(invalid.into_iter().chain(problems).collect())
            }
            (written, ..) => written,
        }
    }

    /// The patch that removes all roles from a definitely rejected Node. `None` if the Node has no roles, or if most Nodes are rejected.
    /// Also `None` with `Tags`: whenever upstream's controller leads, it would give the roles to the Node again.
    fn roles_to_take_away(&self, node: &ObservedNode, refusal: &Refusal) -> Option<NodePatch> {
        if self.labels_from == LabelsFrom::Tags {
            return None;
        }
        let patch = refusal.is_definite().then(|| labels::without_roles(node)).flatten()?;
        if !self.known.lock().believes_most() {
            log::warn!(
                "the Node {}: its role labels are not removed, because most Nodes are rejected; check that \
                 the configuration belongs to this cluster",
                node.name
            );
            return None;
        }
        NodePatch::new(Some(patch), Vec::new())
    }

    /// Removes the role labels of a Node, and creates an Event. Returns whether all these labels were removed. After a failure, the next
    /// reconcile of the Node retries.
    async fn take_roles_away(
        &self,
        node: Arc<ObservedNode>,
        patch: NodePatch,
        refusal: Refusal,
        leadership: &Leadership,
        slots: &Semaphore,
    ) -> bool {
        let taken = in_words(&patch);
        match self.patch(&node, patch, leadership, slots).await {
            Outcome::Patched => {
                let message = format!("removed {taken}: {refusal}");
                Box::pin(self.events.warn(&node.name, Reason::RoleLabelsRemoved, &message)).await;
                true
            }
            Outcome::Failed(problem) => {
                log::warn!("the Node {}: {problem}; its role labels are not removed yet", node.name);
                false
            }
            Outcome::LabelsLeftOut(problems) => {
                let problems = problems.join("; ");
                log::warn!("the Node {}: some role labels are not removed yet: {problems}", node.name);
                false
            }
            _ => false,
        }
    }

    fn wanted(&self, node: &ObservedNode, identity: &Identity) -> Result<Wanted, Refusal> {
        if self.labels_from == LabelsFrom::Tags {
            return Ok(labels::wanted_by_upstream(identity));
        }
        match self.groups.get(&identity.instance_group, &identity.noted_labels) {
            Group::Known(of_group) => Ok(labels::wanted(identity, Some(&of_group))),
            Group::Unreadable => Ok(labels::wanted(identity, None)),
            Group::Unknown => Err(Refusal::UnknownInstanceGroup {
                instance: node.provider_id.clone(),
                instance_group: identity.instance_group.clone(),
            }),
        }
    }

    fn groups_changed(&self, changed: &Changed) {
        if changed.0.is_empty() {
            return;
        }
        log::info!(
            "instance groups have changed: {}",
            changed.0.iter().cloned().collect::<Vec<_>>().join(", ")
        );
        // Wake all Nodes. This causes no calls to the cloud, because the Nodes' identities are cached.
        self.known.lock().wake_all(Instant::now());
    }

    /// Notes the result of a reconcile. Returns a message if an Event about the cloud is due.
    fn settle(&self, node: &ObservedNode, outcome: Outcome, took: Duration) -> Option<String> {
        let (name, now) = (node.name.as_str(), Instant::now());
        let mut known = self.known.lock();
        if known.get(name).is_none() {
            // The Node was deleted during its reconcile. Any state noted now would never be removed.
            known.gone(name, now);
            return None;
        }
        let (result, problem) = match outcome {
            Outcome::Done | Outcome::Patched | Outcome::NotYet | Outcome::Shown(_) => {
                (Reconciled::Success, None)
            }
            Outcome::Conflict if !known.is_outdated(node) => (Reconciled::Requeued, None),
            Outcome::Conflict => (Reconciled::Error, Some(OUTDATED.to_owned())),
            Outcome::Unanswered(problem) => {
                self.metrics.reconciled(Reconciled::Error, took);
                return unanswered(&mut known, name, &problem, now);
            }
            Outcome::NoPodRange(ref problem) | Outcome::Failed(ref problem) => {
                (Reconciled::Error, Some(problem.clone()))
            }
            Outcome::LabelsLeftOut(ref problems) => {
                self.metrics.labels_left_out.inc_by(problems.len() as u64);
                (Reconciled::Success, Some(left_out(problems)))
            }
            Outcome::Refused(ref refusal) => {
                self.metrics.refused(refusal.reason());
                (Reconciled::Refused, Some(refusal.to_string()))
            }
        };
        self.metrics.reconciled(result, took);
        match problem {
            None => known.done(name),
            Some(problem) => {
                let pause = known.failed(name, now);
                log::warn!("the Node {name}: {problem}; retrying in {pause:.0?}");
            }
        }
        match known.cloud_answered(name, now) {
            0 => {}
            released => {
                log::info!("the cloud answers again; checking {released} Nodes that waited for it")
            }
        }
        match outcome {
            Outcome::Conflict => known.conflicted(node, now),
            _ => known.is_current(name),
        }
        if matches!(outcome, Outcome::Patched)
            && let Some(pause) = known.written(name, now)
        {
            log::warn!(
                "the Node {name}: another client keeps changing its labels; checking it again in {pause:.0?}"
            );
        }
        None
    }
}

/// Notes that the cloud did not answer for a Node. Logs one message for all waiting Nodes. If the outage lasts, returns the message for an
/// Event.
fn unanswered(known: &mut NodeQueue, name: &str, problem: &str, now: Instant) -> Option<String> {
    let pause = known.unanswered(name, now)?;
    let outage = known.outage();
    log::warn!("{problem}; {} Nodes wait for the cloud; asking the cloud again in {pause:.0?}", outage.len());
    let told = format!("{problem}; Nodes that are not identified yet get no labels until the cloud answers");
    (outage.failures() >= TOLD_AFTER).then_some(told)
}

#[cfg(test)]
mod tests;
