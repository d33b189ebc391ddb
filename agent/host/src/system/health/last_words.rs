//! The log lines that say why a unit failed. systemd may already have started the unit again: the lines of the new start
//! say nothing about the failure.

use serde::Deserialize;
use serde_json::Value;

use crate::system::commands::ask;

/// Enough journal entries for two starts, each with a Go stack trace.
const LAST_ENTRIES: &str = "1000";
/// Enough lines for a Go stack trace.
const LAST_LINES: usize = 200;
/// How many of a program's last lines are quoted.
const MOST_LINES: usize = 3;
/// Maximum length of a quoted line, in characters.
const LONGEST_LINE: usize = 300;
/// Words that mark a line as the reason of a failure.
const REASONS: [&str; 9] =
    ["error", "err=", "fail", "fatal", "panic", "invalid", "unknown", "unrecognized", "cannot"];
/// systemd's message for a main process that exited with a failure (`SD_MESSAGE_UNIT_PROCESS_EXIT` of sd-messages.h).
const PROCESS_EXIT: &str = "98e322203f7a4ed290d09fe03c09fe15";

/// An entry of the journal (systemd.journal-fields(7)). With systemd before version 232, entries have no IDs of unit starts.
#[derive(Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
struct Entry {
    /// The log line. An array of bytes if the line is not UTF-8.
    message: Option<Value>,
    message_id: Option<String>,
    /// In an entry that systemd itself wrote: the ID of the unit start that the entry describes.
    invocation_id: Option<String>,
    /// In an entry that a unit's process wrote: the ID of the unit start to which the process belongs.
    #[serde(rename = "_SYSTEMD_INVOCATION_ID")]
    of_process: Option<String>,
    #[serde(rename = "_PID")]
    pid: Option<String>,
}

impl Entry {
    fn is_of_systemd(&self) -> bool {
        self.pid.as_deref() == Some("1")
    }
}

/// The log lines of one start of the unit, which [`of_failed_start`] chooses. Returns only the lines that say why the
/// unit failed. If no line says why, returns the last lines.
pub(super) fn of_unit(unit: &str) -> Vec<String> {
    let (of_processes, of_systemd) = (format!("_SYSTEMD_UNIT={unit}"), format!("UNIT={unit}"));
    let entries = [&*of_processes, "+", "_PID=1", &of_systemd];
    // Without `--all`, JSON has null in the place of a long message.
    let how = ["--all", "--lines", LAST_ENTRIES, "--output=json", "--no-pager", "--quiet"];
    let command = [&["journalctl"][..], &entries, &how].concat();
    ask(&command).map_or(vec![], |outcome| lines_with_reasons(&of_failed_start(&outcome.stdout)))
}

/// The lines of the failed start, if one of the last two starts failed. Otherwise the lines of the last start.
fn of_failed_start(journal: &str) -> Vec<String> {
    let entries: Vec<Entry> = journal.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let (of_systemd, of_processes): (Vec<Entry>, Vec<Entry>) =
        entries.into_iter().partition(Entry::is_of_systemd);
    let failed = of_systemd.iter().rfind(|entry| entry.message_id.as_deref() == Some(PROCESS_EXIT));
    let failed = failed.and_then(|entry| entry.invocation_id.as_deref());
    let mut starts: Vec<&str> = of_processes.iter().filter_map(|entry| entry.of_process.as_deref()).collect();
    starts.dedup();
    let last = starts.last().copied();
    // A failure before the last two starts does not explain the unit's present state.
    let told = failed.filter(|failed| starts.iter().rev().take(2).any(|start| start == failed)).or(last);
    let is_told = |entry: &&Entry| told.is_none() || entry.of_process.as_deref() == told;
    let messages = of_processes.iter().filter(is_told).filter_map(|entry| entry.message.as_ref()?.as_str());
    let lines: Vec<&str> = messages.flat_map(str::lines).collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].iter().map(|line| (*line).to_owned()).collect()
}

/// The last lines that say why a program failed, without duplicates. Without such lines, the last lines of the log.
fn lines_with_reasons(lines: &[String]) -> Vec<String> {
    let is_reason = |line: &&String| {
        let lower = line.to_lowercase();
        // Lines of a stack trace are indented.
        !line.starts_with([' ', '\t']) && REASONS.iter().any(|reason| lower.contains(reason))
    };
    let (mut reasons, all): (Vec<&String>, Vec<&String>) =
        (lines.iter().filter(is_reason).collect(), lines.iter().collect());
    if reasons.is_empty() {
        reasons = all;
    }
    let mut told: Vec<String> = Vec::new();
    for line in reasons.iter().rev() {
        let line: String = line.chars().take(LONGEST_LINE).collect();
        if told.len() < MOST_LINES && !told.contains(&line) {
            told.insert(0, line);
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_with_reasons(text: &str) -> Vec<String> {
        super::lines_with_reasons(&text.lines().map(str::to_owned).collect::<Vec<_>>())
    }

    /// A journal entry that a unit's process wrote.
    fn says(start: &str, message: &str) -> String {
        let entry = serde_json::json!({
            "MESSAGE": message, "_SYSTEMD_INVOCATION_ID": start, "_PID": "77", "PRIORITY": "6",
        });
        format!("{entry}\n")
    }

    /// systemd's journal entry about a unit whose main process failed.
    fn fails(start: &str) -> String {
        let entry = serde_json::json!({
            "MESSAGE": "kubelet.service: Main process exited, code=exited, status=1/FAILURE",
            "MESSAGE_ID": PROCESS_EXIT, "INVOCATION_ID": start, "_SYSTEMD_INVOCATION_ID": "of-systemd", "_PID": "1",
        });
        format!("{entry}\n")
    }

    #[test]
    fn the_failed_start_is_quoted_and_not_the_next_one() {
        let failed = [says("a", "E1 invalid configuration"), fails("a")].concat();
        let next = says("b", "W1 failed to find a node yet");
        assert_eq!(of_failed_start(&failed), ["E1 invalid configuration"]);
        assert_eq!(of_failed_start(&[&*failed, &next].concat()), ["E1 invalid configuration"]);
        // The start `c` fails before it writes a line. So the lines of the start `b` are quoted.
        assert_eq!(of_failed_start(&[&*next, &fails("c")].concat()), ["W1 failed to find a node yet"]);
    }

    #[test]
    fn a_failure_before_the_last_two_starts_is_not_quoted() {
        let journal = [says("a", "E1 old"), fails("a"), says("b", "good"), says("c", "hangs")].concat();
        assert_eq!(of_failed_start(&journal), ["hangs"]);
    }

    #[test]
    fn a_journal_without_starts_is_quoted_as_it_is() {
        let journal = "{\"MESSAGE\":\"one\"}\nno JSON\n{\"MESSAGE\":[255]}\n{\"MESSAGE\":\"two\\nthree\"}\n";
        assert_eq!(of_failed_start(journal), ["one", "two", "three"]);
    }

    #[test]
    fn lines_with_a_reason_are_preferred() {
        let go = "I1 starting\nE1 \"command failed\" err=\"unrecognized feature gate: X\"\npanic: no\n\ngoroutine 1:\n\tmain.go: fail\n";
        assert_eq!(
            lines_with_reasons(&go.repeat(3)),
            ["E1 \"command failed\" err=\"unrecognized feature gate: X\"", "panic: no"]
        );
        assert_eq!(lines_with_reasons("a\nb\nc\nd\n"), ["b", "c", "d"]);
    }
}
