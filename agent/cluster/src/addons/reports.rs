//! What a command about add-ons has done or would do, as `kops-agent addons` shows it.

use std::fmt::Write as _;

use kops_agent_spec::terminal::one_line;
use serde::Serialize;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub name: String,
    pub channel: String,
    /// The number of the manifest's objects that were applied or are paused.
    pub objects: usize,
    /// The fields taken over from other managers, each with its object.
    pub taken_over: Vec<String>,
    pub pruned: Vec<String>,
    /// Objects that a person has paused. They stay unchanged.
    pub paused: Vec<String>,
    /// The number of Nodes marked for replacement.
    pub marked_nodes: usize,
    /// Whether this update created the add-on's own certificate authority.
    pub made_authority: bool,
    pub is_recorded: bool,
    /// The failures. Empty if all due work succeeded.
    pub problems: Vec<String>,
}

impl Report {
    pub fn text_of(reports: &[&Report]) -> String {
        if reports.is_empty() {
            return "Nothing to do: the cluster has the add-ons of its channels.\n".to_owned();
        }
        let mut text = String::new();
        for report in reports {
            let state = if report.problems.is_empty() { "applied" } else { "FAILED" };
            let mut parts = vec![format!("{} objects", report.objects)];
            if report.made_authority {
                parts.push("its authority made".to_owned());
            }
            if report.marked_nodes > 0 {
                parts.push(format!("{} Nodes marked for replacement", report.marked_nodes));
            }
            let _ = writeln!(text, "{} {state}: {}", one_line(&report.name, usize::MAX), parts.join(", "));
            for (sign, lines) in [
                ("took over", &report.taken_over),
                ("pruned", &report.pruned),
                ("left paused", &report.paused),
                ("!", &report.problems),
            ] {
                for line in lines {
                    let _ = writeln!(text, "  {sign} {}", one_line(line, usize::MAX));
                }
            }
        }
        text
    }
}

#[derive(Debug)]
pub struct Recreation {
    /// The object's name in messages.
    pub object: String,
    pub state: RecreationState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecreationState {
    /// The cluster does not have the object.
    Missing,
    /// The object exists, and stays: the user only asked what would be deleted.
    Shown,
    Deleted,
}

impl Recreation {
    /// The recreations as text, one per line.
    pub fn text_of(recreations: &[Recreation]) -> String {
        let line = |recreation: &Recreation| {
            let state = match recreation.state {
                RecreationState::Missing => "does not exist",
                RecreationState::Shown => "would be deleted with its dependents, and recreated",
                RecreationState::Deleted => "deleted, to be recreated",
            };
            format!("{}: {state}\n", recreation.object)
        };
        recreations.iter().map(line).collect()
    }
}

/// The changes that an apply of one add-on would make.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    pub name: String,
    /// The objects that the apply would change or create.
    pub changed: Vec<Changed>,
    /// The objects that the apply would delete.
    pub pruned: Vec<String>,
    /// The objects of the add-on's own certificate authority that the apply would create.
    pub authority: Vec<String>,
    /// Why parts of the difference are unknown.
    pub problems: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct Changed {
    pub object: String,
    pub diff: String,
}

impl Difference {
    pub fn is_none(&self) -> bool {
        self.changed.is_empty() && self.pruned.is_empty() && self.authority.is_empty()
    }

    pub fn text_of(differences: &[Difference]) -> String {
        let mut text = String::new();
        for difference in differences.iter().filter(|one| !one.is_none() || !one.problems.is_empty()) {
            let _ = writeln!(text, "add-on {}", one_line(&difference.name, usize::MAX));
            for Changed { object, diff } in &difference.changed {
                let _ = writeln!(text, "  ~ {}", one_line(object, usize::MAX));
                for line in diff.lines() {
                    let _ = writeln!(text, "      {}", one_line(line, usize::MAX));
                }
            }
            for object in &difference.authority {
                let _ = writeln!(text, "  + {object}");
            }
            for object in &difference.pruned {
                let _ = writeln!(text, "  - {}", one_line(object, usize::MAX));
            }
            for problem in &difference.problems {
                let _ = writeln!(text, "  ! {}", one_line(problem, usize::MAX));
            }
        }
        if text.is_empty() {
            text.push_str("Nothing would change.\n");
        }
        text
    }
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Removal {
    pub name: String,
    /// `true` if the objects were deleted; `false` if they were only shown.
    pub is_done: bool,
    pub deleted: Vec<String>,
    /// The objects that stay, each with the reason.
    pub kept: Vec<String>,
    pub problems: Vec<String>,
}

impl Removal {
    /// One line for each object and each problem.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (sign, lines) in [("-", &self.deleted), ("kept", &self.kept), ("!", &self.problems)] {
            for line in lines {
                let _ = writeln!(text, "{sign} {}", one_line(line, usize::MAX));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_lists_applied_and_failed_work() {
        let done = Report {
            name: "a".into(),
            objects: 2,
            marked_nodes: 3,
            made_authority: true,
            ..Report::default()
        };
        let failed = Report {
            name: "b".into(),
            objects: 1,
            taken_over: vec!["ConfigMap a/b: .data.c".into()],
            pruned: vec!["Secret a/b".into()],
            problems: vec!["no".into()],
            ..Report::default()
        };
        assert_eq!(
            Report::text_of(&[&done, &failed]),
            "a applied: 2 objects, its authority made, 3 Nodes marked for replacement\n\
             b FAILED: 1 objects\n  took over ConfigMap a/b: .data.c\n  pruned Secret a/b\n  ! no\n"
        );
        assert!(Report::text_of(&[]).starts_with("Nothing to do"));
    }
}
