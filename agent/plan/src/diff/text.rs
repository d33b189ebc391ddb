//! Formats a plan as text.

use std::fmt::Write as _;

use kops_agent_spec::terminal;

use super::plan::{Count, Plan, Summary};
use super::removals::{Keeping, Kept};
use super::step::{Action, Change, Stage, Step};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    pub colour: bool,
    /// Whether to show the diff of every file.
    pub diffs: bool,
}

const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";
const CYAN: &str = "36";
const BOLD: &str = "1";

/// Formats the whole plan, with [`summary`] as the last line.
pub fn plan(plan: &Plan, style: Style) -> String {
    let mut out = String::new();
    for stage in Stage::ALL {
        let mut steps = plan.stage(stage).peekable();
        if steps.peek().is_some() {
            let _ = writeln!(out, "{}", style.paint(BOLD, stage.name()));
        }
        for next in steps {
            out.push_str(&step(next, style));
        }
    }
    for kept in &plan.kept {
        let _ = writeln!(out, "{}", keeping(kept));
    }
    for adopted in &plan.adopted {
        let _ = writeln!(out, "  = {} is adopted", printable(&adopted.to_string()));
    }
    if !plan.is_empty() || !plan.kept.is_empty() {
        out.push('\n');
    }
    let _ = writeln!(out, "{}", style.paint(BOLD, &summary(plan)));
    out
}

/// Formats a resource that stays unchanged, and the reason, as one line.
pub fn keeping(kept: &Kept) -> String {
    let stays = match kept.keeping {
        Keeping::NotWanted => "stays, although the configuration no longer has it",
        Keeping::Unknown => "stays as it is",
        Keeping::Unmended => "CANNOT BE REPAIRED",
        Keeping::Left => "is left as it is",
        Keeping::Loaded => "is not restarted",
    };
    format!("  = {} {stays}: {}", printable(&kept.resource.to_string()), printable(&kept.why))
}

/// Summarizes a plan in one line.
pub fn summary(plan: &Plan) -> String {
    if plan.is_empty() {
        return match plan.kept.iter().any(|kept| kept.keeping == Keeping::Unmended) {
            true => "Nothing to do now: the problems above cannot be repaired yet.".into(),
            false => "Nothing to do: this node is as it should be.".into(),
        };
    }
    let summary = plan.summary();
    let verb = |count: Count, one: &'static str, more: &'static str| {
        (count, if count.number == 1 { one } else { more })
    };
    let parts = [
        verb(summary.create, "is created", "are created"),
        verb(summary.change, "changes", "change"),
        verb(summary.remove, "is removed", "are removed"),
        verb(plan.adopted_count(), "is adopted", "are adopted"),
    ];
    format!("Plan: {}. Restarts: {}.", listed(&parts, "nothing changes"), named(&summary.restarts))
}

/// Summarizes an applied plan in one line.
pub fn applied(summary: &Summary) -> String {
    let parts = [(summary.create, "created"), (summary.change, "changed"), (summary.remove, "removed")];
    format!("Converged: {}. Restarted: {}.", listed(&parts, "nothing changed"), named(&summary.restarts))
}

fn listed(parts: &[(Count, &str)], nothing: &str) -> String {
    let parts: Vec<String> = parts
        .iter()
        .filter(|(count, _)| count.number > 0)
        .map(|(count, verb)| format!("{count} {verb}"))
        .collect();
    if parts.is_empty() { nothing.to_owned() } else { parts.join(", ") }
}

fn named(restarts: &[String]) -> String {
    if restarts.is_empty() { "none".to_owned() } else { printable(&restarts.join(", ")) }
}

/// Formats a step as one line, followed by its diffs.
pub fn step(step: &Step, style: Style) -> String {
    let (sign, colour) = match step.action {
        Action::Create => ("+", GREEN),
        Action::Change => ("~", YELLOW),
        Action::Restart => ("!", CYAN),
        Action::Remove => ("-", RED),
    };
    let mut line = format!("  {} {}", style.paint(colour, sign), printable(&step.resource.to_string()));
    let mut parts: Vec<String> = vec![];
    // The usual owner, group and mode of a new file are not shown.
    let is_usual = |field: &str, to: &str| match field {
        "mode" => to == "0644" || to == "0755",
        "owner" | "group" => to == "root",
        _ => false,
    };
    for change in &step.changes {
        match change {
            Change::Set { field, from: None, to } if is_usual(field, to) => {}
            other => parts.extend(words(other)),
        }
    }
    if !parts.is_empty() {
        let _ = write!(line, ": {}", printable(&parts.join(", ")));
    }
    line.push('\n');
    if style.diffs {
        for change in &step.changes {
            if let Change::Write { diff } = change {
                line.push_str(&indented(diff, style));
            }
        }
    }
    line
}

/// Describes a change in a few words. `None` for a change that the step shows as a diff, and for a removal, which the
/// step shows with the sign `-`.
fn words(change: &Change) -> Option<String> {
    Some(match change {
        Change::Set { field, from: None, to } => format!("{field} {to}"),
        Change::Set { field, from: Some(from), to } => format!("{field} {from} -> {to}"),
        Change::Write { .. } => return None,
        Change::WriteBytes { from, to, url } => {
            let from = from.as_ref().map(|from| format!("sha256 {from} -> ")).unwrap_or_default();
            let url = url.as_ref().map(|url| format!(" from {url}")).unwrap_or_default();
            format!("{from}{to}{url}")
        }
        Change::WriteHidden { what } => format!("content changes (not shown: {what})"),
        Change::Issue { why, .. } => format!("issue, because {why}"),
        Change::Replace { what } => format!("replace {what}"),
        Change::Run { command } => format!("run `{}`", command.join(" ")),
        Change::Enable => "enable".into(),
        Change::Disable => "disable".into(),
        // No words are needed, because the sign `-` already shows the removal.
        Change::Remove => return None,
        Change::RemoveIfEmpty => "if it is empty".into(),
        Change::Start => "start".into(),
        Change::Stop => "stop".into(),
        Change::Restart { because } if because.is_empty() => {
            "restart, because it has not been restarted since an earlier change".into()
        }
        Change::Restart { because } => {
            let ids: Vec<String> = because.iter().map(ToString::to_string).collect();
            format!("restart, because of {}", ids.join(", "))
        }
    })
}

/// Indents a unified diff below the line of its resource.
pub fn indented(diff: &str, style: Style) -> String {
    let mut out = String::new();
    for line in diff.lines() {
        let line = printable(line);
        let painted = match line.as_bytes().first() {
            _ if line.starts_with("--- ") || line.starts_with("+++ ") => style.paint(BOLD, &line),
            Some(b'+') => style.paint(GREEN, &line),
            Some(b'-') => style.paint(RED, &line),
            Some(b'@') => style.paint(CYAN, &line),
            _ => line,
        };
        let _ = writeln!(out, "      {painted}");
    }
    out
}

/// Escapes control characters, so that file contents cannot control the terminal.
fn printable(text: &str) -> String {
    let is_harmless = |c: char| !terminal::steers(c) || c == '\t';
    if text.chars().all(is_harmless) {
        return text.into();
    }
    text.chars()
        .map(|c| if is_harmless(c) { c.to_string() } else { c.escape_default().to_string() })
        .collect()
}

impl Style {
    fn paint(self, colour: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::{Access, Observed, ObservedContent, ObservedFile, ObservedState, diff};
    use crate::resource::{DesiredState, File, Package, Resource, Unit};
    use kops_agent_spec::digest::sha256_hex;

    const PLAIN: Style = Style { colour: false, diffs: true };

    fn example() -> Plan {
        let mut desired = DesiredState::default();
        desired.add(Package { name: "chrony".into() });
        desired.add(File::text("/etc/a", "one\ntwo\n"));
        desired.add(File::text("/etc/b", "new\x1b[2J\n").owned_by("b"));
        desired.add(Unit::new("a.service", "[Unit]\n"));
        let observed = ObservedState::from([(
            Resource::from(File::text("/etc/a", "")).id(),
            Observed::File(ObservedFile {
                access: Access::of_roots(),
                sha256: sha256_hex(b"one\n"),
                content: ObservedContent::Text("one\n".into()),
                commands_ran_for: None,
                serves: None,
                pod_mounted: None,
                free_text: None,
            }),
        )]);
        diff(&desired, &observed)
    }

    #[test]
    fn a_plan_is_formatted_by_stage() {
        assert_eq!(
            plan(&example(), PLAIN),
            "packages
  + package chrony
files
  ~ file /etc/a
      --- /etc/a
      +++ /etc/a
      @@ -1 +1,2 @@
       one
      +two
  + file /etc/b: owner b
      --- /dev/null
      +++ /etc/b
      @@ -0,0 +1 @@
      +new\\u{1b}[2J
services
  + unit a.service: enable, start
      --- /dev/null
      +++ a.service
      @@ -0,0 +1 @@
      +[Unit]

Plan: 3 resources are created, 1 file changes. Restarts: none.
"
        );
    }

    #[test]
    fn colours_only_add_escape_sequences() {
        let coloured = plan(&example(), Style { colour: true, diffs: true });
        assert!(coloured.contains("\x1b[32m+two\x1b[0m"), "{coloured}");
        let mut plain = coloured;
        for code in [RED, GREEN, YELLOW, CYAN, BOLD, "0"] {
            plain = plain.replace(&format!("\x1b[{code}m"), "");
        }
        assert_eq!(plain, plan(&example(), PLAIN));
    }

    #[test]
    fn an_empty_plan_reports_nothing_to_do() {
        assert_eq!(plan(&Plan::default(), PLAIN), "Nothing to do: this node is as it should be.\n");
    }
}
