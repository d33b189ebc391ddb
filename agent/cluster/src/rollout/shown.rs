//! The output of `kops-agent fleet rollout status`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::{Serialize, Serializer};

use kops_agent_spec::terminal::{SHOWN_OF_PROBLEM, columns, one_line};

use super::{Estimate, Phase, Policy, PolicyState, PolicyStatus, Rollout, State, Status};
use crate::fleet::short_hash;
use crate::fleet::table::shown;
use crate::labels::INSTANCE_GROUP;

/// Appended to a problem text that the node has shortened.
const CUT: &str = " (cut; `journalctl -u kops-agent-follow.service` on the node shows all of it)";

/// The rollout and the policy, as `status` shows them.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Shown {
    /// The rollout that an operator started last.
    rollout: Option<Rollout>,
    /// Whether a controller has begun the current attempt of the rollout. The status of an earlier attempt is not
    /// shown.
    is_begun: bool,
    #[serde(serialize_with = "with_estimate")]
    status: Option<Status>,
    /// `None` if all groups are manual.
    policy: Option<ShownPolicy>,
}

/// The automation policy, and the automatic rollout of this policy.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShownPolicy {
    state: PolicyState,
    /// Why the text of the policy is rejected. Empty if the text is valid.
    refused: String,
    /// The policy that the controller follows.
    accepted: Policy,
    unknown_groups: BTreeSet<String>,
    /// The status of the automatic rollout. `None` if no controller has read the policy since the policy was resumed.
    #[serde(serialize_with = "with_estimate")]
    status: Option<Status>,
    /// The status of the automatic reboots. `None` if no controller has read the policy since the policy was resumed.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "with_estimate")]
    reboots: Option<Status>,
}

/// A status in JSON, with the estimated remaining time. The ConfigMap has no estimate, only the values that the estimate needs.
#[derive(Serialize)]
struct Estimated<'a> {
    #[serde(flatten)]
    status: &'a Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    estimate: Option<Estimate>,
}

#[allow(clippy::ref_option)] // serde passes a reference.
fn with_estimate<S: Serializer>(status: &Option<Status>, serializer: S) -> Result<S::Ok, S::Error> {
    let estimated = status.as_ref().map(|status| Estimated { status, estimate: status.estimate() });
    estimated.serialize(serializer)
}

impl ShownPolicy {
    pub fn new(state: PolicyState, refused: String, status: PolicyStatus) -> ShownPolicy {
        let PolicyStatus { accepted, unknown_groups, status, reboots, .. } = status;
        let read = |status: Status| {
            let is_read = !status.is_none() && status.attempt == state.attempt_of(&status.rollout);
            is_read.then_some(status)
        };
        let (status, reboots) = (read(status), read(reboots));
        ShownPolicy { state, refused, accepted, unknown_groups, status, reboots }
    }

    fn is_in(&self, phases: &[Phase]) -> bool {
        let is_in = |status: &Status| phases.contains(&status.phase);
        self.status.as_ref().is_some_and(is_in) && self.reboots.as_ref().is_none_or(is_in)
    }
}

impl Shown {
    pub fn new(rollout: Option<Rollout>, status: &Status, policy: Option<ShownPolicy>) -> Shown {
        let status = rollout.as_ref().filter(|rollout| status.answers(rollout)).map(|_| status.clone());
        Shown { rollout, is_begun: status.is_some(), status, policy }
    }

    /// Whether `is_done` and `is_ended` are about the operator's rollout. If not, they are about the policy's
    /// rollout.
    fn is_rollout_first(&self) -> bool {
        match (&self.rollout, &self.status, &self.policy) {
            (_, _, None) => true,
            (None, _, Some(_)) => false,
            (Some(rollout), None, Some(_)) => rollout.state != State::Aborted,
            (Some(rollout), Some(status), Some(_)) => !status.is_over(rollout),
        }
    }

    fn is_in(&self, phases: &[Phase]) -> bool {
        let of_policy = self.policy.as_ref().filter(|_| !self.is_rollout_first());
        of_policy.map_or_else(
            || self.status.as_ref().is_some_and(|status| phases.contains(&status.phase)),
            |policy| policy.is_in(phases),
        )
    }

    /// Whether all nodes run the configuration of the shown rollout. If there is a policy and
    /// no operator's rollout is active, this is the policy's rollout. In all other cases, it is the operator's rollout.
    pub fn is_done(&self) -> bool {
        self.is_in(&[Phase::Done])
    }

    /// Whether the shown rollout makes no more changes until an operator acts.
    pub fn is_ended(&self) -> bool {
        self.is_in(&[Phase::Done, Phase::Stopped, Phase::Aborted])
    }
}

pub fn table(shown: &Shown) -> String {
    let mut text = String::new();
    // Ignore the results of `writeln!`, because writing to a String cannot fail.
    if let Some(rollout) = &shown.rollout {
        let phase = match (&shown.status, rollout.state, rollout.attempt) {
            (Some(status), ..) => status.phase.to_string(),
            (None, State::Aborted, _) => Phase::Aborted.to_string(),
            (None, _, 1) => "not begun: no controller leads it".to_owned(),
            (None, ..) => "resumed, but no controller has read the change yet".to_owned(),
        };
        let of_program = rollout.program.as_ref().map_or_else(String::new, |program| {
            format!(" to version {} of kops-agent", one_line(&program.version, SHOWN_OF_PROBLEM))
        });
        let _ = writeln!(text, "rollout {}{of_program}: {phase}", rollout.id);
        text += &shown.status.as_ref().map(table_of_status).unwrap_or_default();
    }
    if let Some(policy) = &shown.policy {
        let phase = match (&policy.status, policy.accepted.is_automatic(), policy.state.state) {
            (Some(status), true, _) => status.phase.to_string(),
            (Some(_), false, _) => "manual; nodes that are updating finish".to_owned(),
            (None, _, State::Running) => "no controller has read it yet".to_owned(),
            (None, _, State::Paused | State::Aborted) => Phase::Paused.to_string(),
        };
        let _ = writeln!(text, "policy: {phase}");
        if !policy.refused.is_empty() {
            let refused = one_line(&policy.refused, SHOWN_OF_PROBLEM);
            let _ = writeln!(text, "policy: refused, so the previous policy stays in use: {refused}");
        }
        if !policy.unknown_groups.is_empty() {
            let unknown = policy.unknown_groups.iter().cloned().collect::<Vec<_>>().join(", ");
            let unknown = one_line(&unknown, SHOWN_OF_PROBLEM);
            let _ = writeln!(text, "policy: no Node has these groups: {unknown}");
        }
        if shown.is_rollout_first()
            && let Some(rollout) = &shown.rollout
        {
            let _ = writeln!(text, "policy: waits for the rollout {}", rollout.id);
        } else {
            text += &policy.status.as_ref().map(table_of_status).unwrap_or_default();
            if let Some(reboots) = &policy.reboots {
                let _ = writeln!(text, "reboots by the policy: {}", reboots.phase);
                text += &table_of_status(reboots);
            }
        }
    }
    text
}

/// Lines about a rollout: one per group, the failures, why nodes wait, and an estimate of the remaining time.
fn table_of_status(status: &Status) -> String {
    let header = ["GROUP", "HASH", "NODES", "DONE", "UPDATING", "WAITING", "FAILED", "CANARIES LEFT"];
    let groups = status.groups.iter().map(|(name, group)| {
        let counts = [group.nodes, group.done, group.updating.len(), group.waiting, group.failed];
        let [nodes, done, updating, waiting, failed] = counts.map(|count| count.to_string());
        let has_canaries = group.canaries_left > 0 || !group.canaries.is_empty();
        let canaries = if has_canaries { group.canaries_left.to_string() } else { String::new() };
        [
            name.clone(),
            shown(&short_hash(&group.hash)),
            nodes,
            done,
            updating,
            waiting,
            failed,
            shown(&canaries),
        ]
    });
    let mut text = columns(header, groups);
    // Ignore the results of `writeln!`, because writing to a String cannot fail.
    for (name, group) in &status.groups {
        if !group.updating.is_empty() {
            let nodes = one_line(&group.updating.join(", "), SHOWN_OF_PROBLEM);
            let _ = writeln!(text, "{name}: updating: {nodes}");
        }
        if !group.canaries.is_empty() {
            let nodes = one_line(&group.canaries.join(", "), SHOWN_OF_PROBLEM);
            let _ = writeln!(text, "{name}: canaries: {nodes}");
        }
        if !group.problem.is_empty() {
            let _ = writeln!(text, "{name}: {}", one_line(&group.problem, SHOWN_OF_PROBLEM));
        }
        if group.left_out > 0 {
            let _ = writeln!(text, "{name}: left out: {}", group.left_out);
        }
        if group.other_authorities > 0 {
            let nodes = group.other_authorities;
            let _ = writeln!(
                text,
                "{name}: nodes that have this configuration, but trust other certificates of kubernetes-ca \
                 than new machines: {nodes}"
            );
        }
        for (node, why) in &group.held {
            let _ = writeln!(text, "{node} waits: {}", one_line(why, SHOWN_OF_PROBLEM));
        }
        for (node, why) in &group.finishing {
            let why = one_line(why, SHOWN_OF_PROBLEM);
            let _ = writeln!(text, "{node} finishes the reboot that it has begun: {why}");
        }
        for (node, problem) in &group.failures {
            // A problem text that the node has shortened ends with `…`.
            let more = if problem.ends_with('…') { CUT } else { "" };
            let _ = writeln!(text, "{node} failed: {}{more}", one_line(problem, SHOWN_OF_PROBLEM));
        }
    }
    for (node, check) in status.pods.iter().filter(|(_, check)| !check.not_compared.is_empty()) {
        let problem = one_line(&check.not_compared, SHOWN_OF_PROBLEM);
        let _ = writeln!(text, "{node}: its pods are not compared: {problem}");
    }
    let without_label = format!("nodes without the label {INSTANCE_GROUP}");
    for (what, so, named) in [
        (without_label.as_str(), "without an order", &status.unlabelled),
        (
            "nodes without a report of their kops-agent, or of an architecture without a program",
            "without an order",
            &status.left_out,
        ),
        (
            "nodes that do not report which authorities they trust",
            "update kops-agent on them",
            &status.without_authorities,
        ),
    ] {
        if !named.is_none() {
            let first = one_line(&named.first.join(", "), SHOWN_OF_PROBLEM);
            let more = if named.nodes > named.first.len() { ", …" } else { "" };
            let _ = writeln!(text, "{what} ({}), so {so}: {first}{more}", named.nodes);
        }
    }
    if !status.waits_for.is_empty() {
        let _ = writeln!(text, "waits for: {}", one_line(&status.waits_for, SHOWN_OF_PROBLEM));
    }
    if let Some(Estimate { seconds_left, median_seconds }) = status.estimate() {
        let (turns, orders) = (status.turns_left, status.order_seconds.len());
        let _ = writeln!(
            text,
            "about {} left if nothing stops or holds the rollout. Turns left: {turns}. Median time of the \
             last finished orders ({orders}): {median_seconds} s",
            rounded(seconds_left)
        );
    }
    text
}

/// A rounded time. The unit is the largest one that gives a number of at least 2.
fn rounded(seconds: u64) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    let in_units = |unit: u64| seconds.saturating_add(unit / 2) / unit;
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", in_units(MINUTE)),
        7200.. => format!("{} h", in_units(HOUR)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn rollout() -> Rollout {
        serde_json::from_value(json!({"id": "r-1", "state": "running", "attempt": 1})).unwrap()
    }

    #[test]
    fn each_group_has_a_line_and_each_failure_another() {
        let status: Status = serde_json::from_value(json!({
            "rollout": "r-1", "attempt": 1, "phase": "stopped", "waitsFor": "the canaries",
            "pods": {"i-1": {"notCompared": "forbidden"}, "i-2": {}},
            "unlabelled": {"nodes": 2, "first": ["i-8", "i-9"]}, "leftOut": {"nodes": 11, "first": ["i-7"]},
            "withoutAuthorities": {"nodes": 11, "first": ["i-6", "i-7"]},
            "groups": {"gpu": {"hash": "", "nodes": 0, "done": 0, "updating": [], "waiting": 0, "failed": 0, "failures": {}}, "nodes": {
                "canaries": ["i-1", "i-2"], "canariesLeft": 1,
                "hash": "3yUaBzOeXkF8m0qLrTtV1wPq9nGh2sJd5cRb7vYx4Zk=", "nodes": 3, "done": 1, "updating": [], "waiting": 1, "leftOut": 2, "otherAuthorities": 1,
                "failed": 1, "failures": {"i-2": "kubelet is dead"}, "held": {"i-3": "its pod runs"}, "finishing": {"i-4": "it burns"},
            }},
        }))
        .unwrap();
        let text = table(&Shown::new(Some(rollout()), &status, None));
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["rollout", "r-1:", "stopped"]);
        assert!(lines[1].ends_with(&["FAILED", "CANARIES", "LEFT"]), "{text}");
        assert_eq!(lines[2], ["gpu", "-", "0", "0", "0", "0", "0", "-"]);
        assert_eq!(lines[3], ["nodes", "3yUaBzOeXkF8", "3", "1", "0", "1", "1", "1"]);
        let (rest, strays) = (
            "nodes: canaries: i-1, i-2\n\
             nodes: left out: 2\n\
             nodes: nodes that have this configuration, but trust other certificates of kubernetes-ca than \
             new machines: 1\n\
             i-3 waits: its pod runs\ni-4 finishes the reboot that it has begun: it burns\ni-2 failed: kubelet is dead\ni-1: its pods are not compared: forbidden",
            "nodes without the label kops.k8s.io/instancegroup (2), so without an order: i-8, i-9\n\
             nodes without a report of their kops-agent, or of an architecture without a program (11), so without an order: i-7, …\n\
             nodes that do not report which authorities they trust (11), so update kops-agent on them: i-6, i-7, …",
        );
        assert!(text.ends_with(&format!("{rest}\n{strays}\nwaits for: the canaries\n")), "{text}");
    }

    #[test]
    fn the_time_left_is_estimated_from_finished_orders() {
        let status: Status = serde_json::from_value(json!({
            "rollout": "r-1", "attempt": 1, "phase": "running", "groups": {}, "turnsLeft": 3, "orderSeconds": [1000, 230, 220],
        }))
        .unwrap();
        let shown = |status: &Status| Shown::new(Some(rollout()), status, None);
        let line = "about 12 min left if nothing stops or holds the rollout. Turns left: 3. Median time of the \
                    last finished orders (3): 230 s\n";
        assert!(table(&shown(&status)).ends_with(line), "{}", table(&shown(&status)));
        let json = serde_json::to_value(shown(&status)).unwrap();
        assert_eq!(json["status"]["estimate"], json!({"secondsLeft": 690, "medianSeconds": 230}));
        assert_eq!((&json["status"]["turnsLeft"], &json["status"]["phase"]), (&json!(3), &json!("running")));
        for unknown in
            [Status { order_seconds: Vec::new(), ..status.clone() }, Status { turns_left: 0, ..status }]
        {
            assert!(!table(&shown(&unknown)).contains("about"), "{unknown:?}");
            let json = serde_json::to_value(shown(&unknown)).unwrap();
            assert_eq!(json["status"]["estimate"], serde_json::Value::Null);
        }
        let texts = [119, 120, 149, 150, 7199, 7200, 9000].map(rounded);
        assert_eq!(texts, ["119 s", "2 min", "2 min", "3 min", "120 min", "2 h", "3 h"]);
        assert_eq!(rounded(u64::MAX), format!("{} h", u64::MAX / 3600));
    }

    #[test]
    fn a_problem_that_the_node_has_cut_names_the_log_with_all_of_it() {
        let lines = |problem: &str| {
            let group = json!({
                "hash": "", "nodes": 1, "done": 0, "updating": [], "waiting": 0, "failed": 1, "failures": {"i-2": problem},
            });
            let status =
                json!({"rollout": "r-1", "attempt": 1, "phase": "stopped", "groups": {"nodes": group}});
            table_of_status(&serde_json::from_value(status).unwrap())
        };
        let cut = "i-2 failed: kubelet is… (cut; `journalctl -u kops-agent-follow.service` on the node shows all of it)\n";
        assert!(lines("kubelet is…").ends_with(cut), "{}", lines("kubelet is…"));
        assert!(lines("kubelet is dead").ends_with("i-2 failed: kubelet is dead\n"));
    }

    #[test]
    fn the_table_shows_that_no_controller_leads_a_rollout() {
        let (rollout, other) = (rollout(), Status { rollout: "r-0".into(), ..Status::default() });
        let text = table(&Shown::new(Some(rollout.clone()), &other, None));
        assert_eq!(text, "rollout r-1: not begun: no controller leads it\n");
        let resumed = Rollout { attempt: 2, ..rollout };
        let stopped =
            Status { rollout: "r-1".into(), attempt: 1, phase: Phase::Stopped, ..Status::default() };
        let text = table(&Shown::new(Some(resumed.clone()), &stopped, None));
        assert_eq!(text, "rollout r-1: resumed, but no controller has read the change yet\n");
        let program = json!({"version": "0.2.0", "hash": "b=", "sha256": {}});
        let upgrade = Rollout { program: serde_json::from_value(program).unwrap(), ..resumed };
        let text = table(&Shown::new(Some(upgrade), &stopped, None));
        assert_eq!(
            text,
            "rollout r-1 to version 0.2.0 of kops-agent: resumed, but no controller has read the change yet\n"
        );
    }

    #[test]
    fn the_policy_is_shown_and_counts_once_the_rollout_is_over() {
        let policy = |phase: &str, refused: &str| {
            let status = PolicyStatus::default().with_policy("cluster: {follow: automatic}");
            let of_rollout = json!({"rollout": "policy-1", "attempt": 1, "phase": phase, "groups": {}});
            let status = PolicyStatus { status: serde_json::from_value(of_rollout).unwrap(), ..status };
            Some(ShownPolicy::new(PolicyState::default(), refused.to_owned(), status))
        };
        let begun = Status { rollout: "r-1".into(), attempt: 1, ..Status::default() };
        let shown = Shown::new(Some(rollout()), &begun, policy("done", ""));
        assert!(
            !shown.is_done() && table(&shown).ends_with("policy: waits for the rollout r-1\n"),
            "{}",
            table(&shown)
        );
        let done = Status { phase: Phase::Done, ..begun };
        let shown = Shown::new(Some(rollout()), &done, policy("stopped", "it is not YAML"));
        assert!(!shown.is_done() && shown.is_ended());
        assert!(
            table(&shown).contains(
                "policy: stopped\npolicy: refused, so the previous policy stays in use: it is not YAML\n"
            ),
            "{}",
            table(&shown)
        );
        let shown = Shown::new(None, &Status::default(), policy("done", ""));
        assert!(shown.is_done() && table(&shown).starts_with("policy: done\n"));
        let resumed = PolicyState::default().resumed("policy-1", "");
        let status = shown.policy.unwrap().status.unwrap();
        let policy =
            ShownPolicy::new(resumed, String::new(), PolicyStatus { status, ..PolicyStatus::default() });
        assert_eq!(policy.status, None, "it is the status of the attempt before");
    }
}
