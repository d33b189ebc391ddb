//! The findings as text, which `kops-agent doctor` prints.

use std::fmt::Write as _;

use kops_agent_spec::terminal::one_line;

use super::{Finding, Verdict};

/// Maximum length of a line of a finding, in characters.
const LONGEST: usize = 2000;

/// The findings with their remedies, and whether the machine can become a node.
pub fn text(findings: &[Finding]) -> String {
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
