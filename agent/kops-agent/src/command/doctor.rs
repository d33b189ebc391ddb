//! `kops-agent doctor`: shows what stops this machine from becoming a node, and what to do about it.

use std::fmt::Write as _;

use anyhow::Result;
use kops_agent_plan::doctor::{self, Finding, Verdict};
use kops_agent_process::exit;
use kops_agent_process::output::one_line;
use kops_agent_spec::kops_release::WrittenBy;
use serde::Serialize;

use crate::cli::{DoctorArgs, Output};
use crate::output;

/// Maximum length of a line of a finding, in characters.
const LONGEST: usize = 2000;

/// Prints the findings. The exit code says whether a finding prevents this machine from becoming a node.
pub(super) async fn run(args: &DoctorArgs) -> Result<u8> {
    let observed = kops_agent_node::doctor::examine(&args.machine.options().settled()).await?;
    let findings = doctor::findings(&observed);
    let stops = doctor::stops(&findings);
    match args.output {
        Output::Json => {
            let written_by = observed.written_by.as_ref();
            output::print_json(&Diagnosis { stops, written_by, findings: &findings })?
        }
        Output::Text => output::print_text(&text(&findings))?,
    };
    Ok(if stops { exit::DIFFERENT } else { exit::CONVERGED })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Diagnosis<'a> {
    /// Whether a finding prevents this machine from becoming a node.
    stops: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    written_by: Option<&'a WrittenBy>,
    findings: &'a [Finding],
}

fn text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for Finding { check, verdict, what, to_do } in findings {
        let word = match verdict {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Unknown => "unknown",
            Verdict::Problem => "PROBLEM",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{word:<8} {check:<15} {}", indented(what));
        if !to_do.is_empty() {
            let _ = writeln!(text, "{:24} to do: {}", "", indented(to_do));
        }
    }
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let (problems, unknown) = (count(Verdict::Problem), count(Verdict::Unknown));
    let end = match (problems, unknown) {
        (0, 0) => "Nothing stops this machine from becoming a node.".to_owned(),
        (0, unknown) => format!(
            "No known problem stops this machine from becoming a node; {unknown} results are unknown."
        ),
        (1, _) => "One problem stops this machine from becoming a node.".to_owned(),
        (problems, _) => format!("{problems} problems stop this machine from becoming a node."),
    };
    let _ = writeln!(text, "{end}");
    text
}

/// Aligns the lines of a finding. A finding may quote servers and processes, so control characters are removed.
fn indented(lines: &str) -> String {
    let lines: Vec<String> = lines.lines().map(|line| one_line(line, LONGEST)).collect();
    lines.join("\n                         ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_others_said_steers_the_terminal() {
        let indented = indented("a\u{1b}[2J\rb\n\u{9b}c\u{202e}d");
        let lines: Vec<&str> = indented.lines().map(str::trim_start).collect();
        assert_eq!(lines, ["a [2J b", "c d"]);
    }
}
