//! The changes that wait for the nodes of each instance group, as the nodes report them.
//!
//! A node reports only about itself: the report of a node decides whether this node is current, and reports of other nodes do not matter.
//! The change of a group is the change of one node. If reports of a group disagree, the group has a note about it.

use std::collections::BTreeMap;

use serde::Serialize;
use time::{Duration, OffsetDateTime};

use super::authorities::{different_authorities, read_authorities};
use super::machine::{MachineComparison, WantedMachines, not_compared};
use super::message::{Told, short_hash};
use super::next::Next;
use super::rows::{CLOCK_SKEW, SeenNode};
use kops_agent_spec::failure::Failure;
use kops_agent_spec::parse_timestamp;

/// A report of this age is stale, and its node's state is unknown. A node with the verify timer reports every hour.
pub(super) const STALE: Duration = Duration::hours(3);
/// The maximum number of configurations in a note about nodes that disagree.
const NAMED: usize = 3;

/// The nodes of an instance group, and their pending change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupPlan {
    /// The instance group; empty for Nodes without a label of an instance group.
    pub group: String,
    pub current: usize,
    pub superseded: usize,
    pub unknown: usize,
    /// The name of the node with the newest plan. The change of this node is shown for the whole group. `None` if no node has a plan.
    pub from: Option<String>,
    /// The change of the node in `from`.
    pub next: Option<Next>,
    /// How the reports of the nodes disagree.
    pub disagreements: Vec<String>,
    /// All nodes, sorted by name.
    pub nodes: Vec<NodePlan>,
}

/// One node, and its pending change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePlan {
    pub name: String,
    pub state: State,
    /// Why the state is unknown. For a superseded node: why its plan is missing or invalid. Empty if neither applies.
    pub why: String,
    /// When the node last reported, in RFC 3339; empty if it has never reported.
    pub told_at: String,
    /// The pending change of a node that does not run its group's current configuration; `None` if the Node has no valid plan.
    pub next: Option<Next>,
    /// Whether the node needs a new machine. A rollout does not replace machines.
    pub machine: MachineComparison,
    /// The hash of the group's newest configuration, as far as this node knows.
    #[serde(skip)]
    newest: String,
}

/// Whether a node runs the current configuration of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    Current,
    Superseded,
    Unknown,
}

/// The changes of all groups, sorted by name, as of `now`. `wanted` has the machines that the groups want, or the reason why
/// these machines are not known.
pub fn groups(
    nodes: &[SeenNode],
    wanted: &Result<WantedMachines, Failure>,
    now: OffsetDateTime,
) -> Vec<GroupPlan> {
    let mut groups: BTreeMap<&str, Vec<NodePlan>> = BTreeMap::new();
    let mut authorities: Vec<(&str, &str, &str)> = Vec::new();
    for node in nodes {
        let plan = node_plan(node, now);
        let machine = match wanted {
            // The machine of a node with an unknown state is not compared, because the node's report may be stale or missing.
            _ if plan.state == State::Unknown => not_compared(&plan.why),
            Ok(wanted) => wanted.compare(&node.group, &node.machine),
            Err(failure) => not_compared(&failure.to_string()),
        };
        if plan.state != State::Unknown && read_authorities(&node.authorities).is_some() {
            authorities.push((&node.group, &node.name, &node.authorities));
        }
        groups.entry(&node.group).or_default().push(NodePlan { machine, ..plan });
    }
    let mut notes = different_authorities(authorities.into_iter());
    let plans = groups.into_iter().map(|(group, nodes)| {
        let mut plan = group_plan(group, nodes, now);
        plan.disagreements.extend(notes.remove(group));
        plan
    });
    plans.collect()
}

fn node_plan(node: &SeenNode, now: OffsetDateTime) -> NodePlan {
    let told_at = node.configured.as_ref().map(|told| told.last_heartbeat_time.clone()).unwrap_or_default();
    let plan = |state, why: String| NodePlan {
        name: node.name.clone(),
        state,
        why,
        told_at: told_at.clone(),
        next: None,
        machine: MachineComparison::default(),
        newest: String::new(),
    };
    let unknown = |why: String| plan(State::Unknown, why);
    let Some(condition) = &node.configured else {
        return unknown("it has reported nothing: nodeup made it, or it has only just started".to_owned());
    };
    let Told { runs: Some(runs), superseded_by, .. } = Told::read(&condition.message) else {
        return unknown("it has not converged yet".to_owned());
    };
    match parse_timestamp(&told_at) {
        Some(at) if at > now + CLOCK_SKEW => {
            return unknown(format!("its last report has a time in the future: {told_at}"));
        }
        Some(at) if now - at <= STALE => {}
        Some(_) => return unknown(format!("no report since {told_at}")),
        None => return unknown("its last report has no time".to_owned()),
    }
    match superseded_by.filter(|by| by.hash != runs.hash) {
        None => NodePlan { newest: runs.hash, ..plan(State::Current, String::new()) },
        Some(by) => {
            let (next, why) = match next(node, &runs.hash, now) {
                Ok(next) => (Some(next), String::new()),
                Err(why) => (None, why),
            };
            NodePlan { next, newest: by.hash, ..plan(State::Superseded, why) }
        }
    }
}

/// The pending change of a node that does not run its group's current configuration, or why the change is not known.
fn next(node: &SeenNode, runs: &str, now: OffsetDateTime) -> Result<Next, String> {
    if node.next.is_empty() {
        return Err(
            "it has published no plan; its next hourly verify publishes one, unless its kops-agent is too old"
                .to_owned(),
        );
    }
    let next = Next::read(&node.next).map_err(|unread| unread.to_string())?;
    match next.made_at() {
        // An older agent neither writes nor removes the annotation, so the annotation may be stale.
        _ if next.runs != runs => Err("its plan begins with a configuration that it does not run".to_owned()),
        Some(at) if at <= now + CLOCK_SKEW => Ok(next),
        _ => Err(format!("its plan has a time in the future: {}", next.at)),
    }
}

fn group_plan(group: &str, mut nodes: Vec<NodePlan>, now: OffsetDateTime) -> GroupPlan {
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    let count = |state| nodes.iter().filter(|node| node.state == state).count();
    let planned = || nodes.iter().filter_map(|node| Some((node, node.next.as_ref()?)));
    // If two plans have the same time, the plan of the node whose name sorts first is shown.
    let shown = planned().rev().max_by_key(|(_, next)| next.made_at().unwrap_or(now));
    let mut disagreements: Vec<String> = configurations(&nodes).into_iter().collect();
    if let Some((from, next)) = shown {
        let others = planned().filter(|(_, other)| !other.is_same_change(next));
        let others: Vec<&str> = others.map(|(node, _)| node.name.as_str()).collect();
        if !others.is_empty() {
            disagreements.push(format!(
                "the planned change of {} differs from the planned change of {}",
                named(&others),
                from.name
            ));
        }
    }
    GroupPlan {
        group: group.to_owned(),
        current: count(State::Current),
        superseded: count(State::Superseded),
        unknown: count(State::Unknown),
        from: shown.map(|(node, _)| node.name.clone()),
        next: shown.map(|(_, next)| next.clone()),
        disagreements,
        nodes,
    }
}

/// A note for a group whose nodes do not agree which configuration is the newest; `None` if they agree. Their reports may differ, because
/// each node reads the store at a different time, up to an hour before its report.
fn configurations(nodes: &[NodePlan]) -> Option<String> {
    let mut by_hash: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in nodes.iter().filter(|node| node.state != State::Unknown) {
        by_hash.entry(&node.newest).or_default().push(&node.name);
    }
    if by_hash.len() < 2 {
        return None;
    }
    let each = |(hash, names): (&&str, &Vec<&str>)| format!("{} ({})", short_hash(hash), named(names));
    let mut shown: Vec<String> = by_hash.iter().take(NAMED).map(each).collect();
    if by_hash.len() > NAMED {
        shown.push("…".to_owned());
    }
    Some(format!(
        "the nodes report {} different configurations as the newest of the group: {}",
        by_hash.len(),
        shown.join(", ")
    ))
}

/// Names in a note: `i-1`, `i-1 and 1 other node`, `i-1 and 41 other nodes`.
pub fn named(names: &[&str]) -> String {
    match names {
        [] => "no node".to_owned(),
        [name] => (*name).to_owned(),
        [name, _] => format!("{name} and 1 other node"),
        [name, others @ ..] => format!("{name} and {} other nodes", others.len()),
    }
}

#[cfg(test)]
mod tests;
