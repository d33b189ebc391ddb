//! Reboots instead of configurations. A reboot names the boot that shall end. So a node reboots at most once for it, and a node
//! that has rebooted by itself is done.

mod last;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use kops_agent_spec::invalid::Invalid;
use kops_agent_spec::terminal::one_line;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::course::Course;
use super::decide::{Decision, MOST_NAMED, Member, Seen, decide_course};
use super::order::{LONGEST_PROBLEM, Order};
use super::status::Status;
use crate::fleet::{SeenNode, reboot_required, reports_reboots};

pub use last::{LAST_REBOOT, LastReboot};

/// The nodes to reboot, each with the ID of its present boot.
pub type Boots = BTreeMap<String, String>;

/// The maximum number of nodes of one command. The ConfigMap with their names and boots has at most 1 MiB.
pub const MOST_BOOTS: usize = 2000;

/// In orders to reboot and in the status, this value replaces the hash of a configuration. A node with this value in [`Member::runs`] is
/// done.
const DONE: &str = "rebooted";
const NOT_DONE: &str = "not rebooted";

/// A cordon may be earlier than an order by at most this time, and still counts as a cordon for the order. This
/// tolerance is necessary, because earlier versions of kops-agent record the time by the node's clock. That clock may be behind the
/// controller's clock.
const CLOCK_DIFFERENCE: time::Duration = time::Duration::MINUTE;

/// The conditions that keep nodes from a reboot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Blockers {
    /// A label selector of pods. A node with a selected pod does not begin to reboot. Empty for none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pods: String,
    /// A query of Prometheus. No node begins while the query has a result. Empty for none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub alerts: String,
    /// The Service of Prometheus: `NAMESPACE/NAME:PORT`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub prometheus: String,
}

/// The nodes that [`Blockers`] keep from a reboot now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocked {
    /// Why no node may reboot; `None` if nodes may reboot.
    pub all: Option<String>,
    /// The nodes that may not reboot, each with the reason.
    pub nodes: BTreeMap<String, String>,
}

impl Blockers {
    pub fn is_none(&self) -> bool {
        self.pods.is_empty() && self.alerts.is_empty()
    }

    /// The Service of Prometheus: its namespace, and its `NAME:PORT`. `None` if no query is set. A query without a valid Service is an
    /// error.
    pub fn service(&self) -> Result<Option<(&str, &str)>, Invalid> {
        let service = self.prometheus.split_once('/').filter(|(namespace, name)| {
            let is_part =
                |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.:".contains(&byte));
            !namespace.is_empty() && is_part(namespace) && name.contains(':') && is_part(name)
        });
        match service {
            _ if self.alerts.is_empty() => Ok(None),
            Some(service) => Ok(Some(service)),
            None => Err(Invalid::new(format!(
                "the Service of Prometheus is {:?}; give it as NAMESPACE/NAME:PORT, such as monitoring/prometheus:9090",
                self.prometheus
            ))),
        }
    }
}

/// The nodes that an operator has chosen to reboot: the nodes of these groups, or of all groups if `groups` is empty. With `only_required`,
/// only nodes that report that they require a reboot are chosen. Nodes without an instance group or a boot ID are left out. Also returns
/// the chosen nodes that do not report whether they require a reboot: their version of kops-agent would mistake the order for an order to
/// take a configuration.
pub fn boots_to_end(nodes: &[SeenNode], groups: &[String], only_required: bool) -> (Boots, Vec<String>) {
    let is_chosen = |node: &&SeenNode| {
        let is_required = || reboot_required(&node.reboot, &node.boot_id).is_some_and(|why| !why.is_empty());
        !node.group.is_empty()
            && !node.boot_id.is_empty()
            && (groups.is_empty() || groups.contains(&node.group))
            && (!only_required || is_required())
    };
    let (reporting, left_out): (Vec<&SeenNode>, Vec<&SeenNode>) =
        nodes.iter().filter(is_chosen).partition(|node| reports_reboots(&node.reboot));
    let boots = reporting.into_iter().map(|node| (node.name.clone(), node.boot_id.clone()));
    (boots.collect(), left_out.into_iter().map(|node| node.name.clone()).collect())
}

/// Whether a boot has ended: the Node reports a different, valid boot ID.
pub(super) fn has_ended(member: &Member, boot_id: &str) -> bool {
    !member.boot_id.is_empty() && member.boot_id != boot_id
}

/// Whether a run has cordoned the Node for this order. An older cordon may come from a killed run, and does not mean that the node has
/// begun.
fn drains_for(member: &Member, order: &Order) -> bool {
    let since = member.cordoned_since.zip(order.time());
    since.is_some_and(|(cordoned, ordered)| cordoned - ordered >= -CLOCK_DIFFERENCE)
}

/// Removes from the status all nodes that failed and are now Ready in a later boot. A person has rebooted these nodes.
fn without_recovered<'a>(before: &'a Status, members: &[Member]) -> Cow<'a, Status> {
    let mut before = Cow::Borrowed(before);
    for member in members {
        let failed_in = before.failed_in.get(&member.node);
        if failed_in.is_some_and(|boot_id| member.is_ready && has_ended(member, boot_id)) {
            let before = before.to_mut();
            before.ordered.remove(&member.node);
            before.failed.remove(&member.node);
            before.failed_in.remove(&member.node);
            before.pods.remove(&member.node);
        }
    }
    before
}

/// Decides which nodes reboot now, by the rules of [`decide_course`]. A node is done once its Node has a new boot ID, its kubelet is Ready
/// in that boot, and the node has reported an outcome of its order. If a blocker appears after an order, the order is taken back, unless
/// the node drains for the order or is not Ready.
pub(super) fn decide_reboots(
    course: &Course,
    boots: &Boots,
    blockers: &Blockers,
    (members, seen): (&[Member], &Seen),
    before: &Status,
    now: OffsetDateTime,
) -> Decision {
    let before = without_recovered(before, members);
    let order = |member: &Member| before.ordered.get(&member.node).filter(|_| before.rollout == course.id);
    let is_due = |member: &Member| boots.get(&member.node).is_some_and(|ends| !has_ended(member, ends));
    let has_result = |member: &Member, order: &Order| {
        order.attempt == course.attempt
            && (member.has_answered(order) || before.failed.contains(&member.node))
    };
    let may_begin = |member: &Member| {
        is_due(member) && order(member).map_or(member.held.is_empty(), |order| !has_result(member, order))
    };
    let blocked = match &seen.blocked {
        Some(blocked) => blocked.clone(),
        None if blockers.is_none() || course.hold.is_some() || !members.iter().any(may_begin) => {
            Blocked::default()
        }
        None => return Decision { blockers_to_check: Some(blockers.clone()), ..Decision::default() },
    };
    let why_blocked = |member: &Member| blocked.nodes.get(&member.node).or(blocked.all.as_ref());
    let (mut taken_back, mut finishing) = (BTreeSet::new(), Vec::new());
    for member in members.iter().filter(|member| is_due(member)) {
        let Some((order, why)) = order(member).zip(why_blocked(member)) else { continue };
        // A drain or a reboot may itself cause an alert. If the order were taken back, a drained node would be drained again later, and a
        // machine that does not come back would not count as failed.
        if (drains_for(member, order) || !member.is_ready) && member.order == order.text() {
            finishing.push((member, one_line(why, LONGEST_PROBLEM)));
        } else if !has_result(member, order) {
            taken_back.insert(member.node.clone());
        }
    }
    let as_configured = |member: &Member| {
        let is_open = order(member).is_some_and(|order| !member.has_answered(order));
        let runs = if is_due(member) || is_open { NOT_DONE } else { DONE };
        let held = blocked.nodes.get(&member.node).filter(|_| member.held.is_empty());
        let held = one_line(held.unwrap_or(&member.held), LONGEST_PROBLEM);
        Member { runs: Some(runs.to_owned()), held, ..member.clone() }
    };
    let members: Vec<Member> = members.iter().map(as_configured).collect();
    let current = members.iter().map(|member| (member.group.clone(), Ok(DONE.to_owned()))).collect();
    let seen = Seen { current, listed: seen.listed.clone(), ..Seen::default() };
    // A query, a label selector or an answer of Prometheus may have any length, but the status has limits.
    let all = blocked.all.map(|why| one_line(&why, LONGEST_PROBLEM));
    let course = Course { hold: course.hold.clone().or(all), taken_back, ..course.clone() };
    let mut decision = decide_course(&course, &members, &seen, &before, now);
    let name_boot = |(node, order): (&String, &mut Order)| {
        if order.boot_id.is_empty() {
            order.boot_id = boots.get(node).cloned().unwrap_or_default();
        }
    };
    decision.orders.iter_mut().for_each(name_boot);
    decision.status.ordered.iter_mut().for_each(name_boot);
    for (member, why) in finishing {
        let group = decision.status.groups.get_mut(&member.group);
        if let Some(group) = group.filter(|group| group.updating.contains(&member.node))
            && group.finishing.len() < MOST_NAMED
        {
            group.finishing.insert(member.node.clone(), why);
        }
    }
    decision
}

#[cfg(test)]
mod tests;
