//! The output of `kops-agent fleet rollout status`.

use std::fmt::Write as _;

use kops_agent_cluster::fleet::short_hash;
use kops_agent_cluster::labels::INSTANCE_GROUP;
use kops_agent_cluster::rollout::{Phase, Rollout, State, Status};
use kops_agent_process::output::{self, one_line};
use serde::Serialize;

use crate::fleet::table::{SHOWN_OF_PROBLEM, shown};

/// A rollout with its status. The status is a controller's, or is empty while no controller has begun the rollout.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shown<'a> {
    rollout: &'a Rollout,
    /// Whether a controller has begun this attempt of it. The status of an earlier attempt is left out.
    is_begun: bool,
    status: Option<&'a Status>,
}

impl<'a> Shown<'a> {
    pub(super) fn of(rollout: &'a Rollout, status: &'a Status) -> Shown<'a> {
        let status = status.answers(rollout).then_some(status);
        Shown { rollout, is_begun: status.is_some(), status }
    }
}

/// One line per group, the failures, and what the rollout waits for.
pub(super) fn table(&Shown { rollout, status, .. }: &Shown<'_>) -> String {
    let phase = match (status, rollout.state, rollout.attempt) {
        (Some(status), ..) => status.phase.to_string(),
        (None, State::Aborted, _) => Phase::Aborted.to_string(),
        (None, _, 1) => "not begun: no controller leads it".to_owned(),
        (None, ..) => "resumed; no controller has read that yet".to_owned(),
    };
    let mut text = format!("rollout {}: {phase}\n", rollout.id);
    let Some(status) = status else { return text };
    let header = ["GROUP", "HASH", "NODES", "DONE", "UPDATING", "WAITING", "FAILED"].map(str::to_owned);
    let groups = status.groups.iter().map(|(name, group)| {
        let counts = [group.nodes, group.done, group.updating.len(), group.waiting, group.failed];
        let [nodes, done, updating, waiting, failed] = counts.map(|count| count.to_string());
        [name.clone(), shown(&short_hash(&group.hash)), nodes, done, updating, waiting, failed]
    });
    let lines: Vec<[String; 7]> = std::iter::once(header).chain(groups).collect();
    text += &output::columns(&lines);
    // Writing to a String cannot fail.
    for (name, group) in &status.groups {
        if !group.updating.is_empty() {
            let nodes = one_line(&group.updating.join(", "), SHOWN_OF_PROBLEM);
            let _ = writeln!(text, "{name}: at work: {nodes}");
        }
        if !group.problem.is_empty() {
            let _ = writeln!(text, "{name}: {}", one_line(&group.problem, SHOWN_OF_PROBLEM));
        }
        for (node, problem) in &group.failures {
            let _ = writeln!(text, "{node} failed: {}", one_line(problem, SHOWN_OF_PROBLEM));
        }
    }
    let unlabelled = &status.unlabelled;
    if !unlabelled.is_none() {
        let first = one_line(&unlabelled.first.join(", "), SHOWN_OF_PROBLEM);
        let more = if unlabelled.nodes > unlabelled.first.len() { ", …" } else { "" };
        let nodes = unlabelled.nodes;
        let _ = writeln!(
            text,
            "without the label {INSTANCE_GROUP} ({nodes}), so without an order: {first}{more}"
        );
    }
    if !status.waits_for.is_empty() {
        let _ = writeln!(text, "waits for: {}", one_line(&status.waits_for, SHOWN_OF_PROBLEM));
    }
    text
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
            "unlabelled": {"nodes": 2, "first": ["i-8", "i-9"]},
            "groups": {"nodes": {
                "hash": "3yUaBzOeXkF8m0qLrTtV1wPq9nGh2sJd5cRb7vYx4Zk=", "nodes": 3, "done": 1, "updating": [], "waiting": 1,
                "failed": 1, "failures": {"i-2": "kubelet is dead"},
            }},
        }))
        .unwrap();
        let rollout = rollout();
        let text = table(&Shown::of(&rollout, &status));
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["rollout", "r-1:", "stopped"]);
        assert_eq!(lines[2], ["nodes", "3yUaBzOeXkF8", "3", "1", "0", "1", "1"]);
        let (rest, strays) = (
            "i-2 failed: kubelet is dead",
            "without the label kops.k8s.io/instancegroup (2), so without an order: i-8, i-9",
        );
        assert!(text.ends_with(&format!("{rest}\n{strays}\nwaits for: the canaries\n")), "{text}");
    }

    #[test]
    fn a_rollout_that_no_controller_leads_says_so() {
        let (rollout, other) = (rollout(), Status { rollout: "r-0".into(), ..Status::default() });
        let text = table(&Shown::of(&rollout, &other));
        assert_eq!(text, "rollout r-1: not begun: no controller leads it\n");
        let resumed = Rollout { attempt: 2, ..rollout };
        let stopped =
            Status { rollout: "r-1".into(), attempt: 1, phase: Phase::Stopped, ..Status::default() };
        let text = table(&Shown::of(&resumed, &stopped));
        assert_eq!(text, "rollout r-1: resumed; no controller has read that yet\n");
    }
}
