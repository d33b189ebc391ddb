//! Prints the findings of `config check`.

use std::fmt::Write as _;

use anyhow::Result;
use kops_agent_node::findings::{Counts, Finding, Findings};

use super::{print_json, print_text};
use crate::cli::CheckOutput;

#[derive(Clone, Copy)]
enum Severity {
    Error,
    Warning,
    NotChecked,
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::NotChecked => "not checked",
        }
    }

    /// The workflow command of GitHub Actions that makes an annotation.
    fn command(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::NotChecked => "notice",
        }
    }
}

pub fn print_findings(findings: &Findings, output: CheckOutput) -> Result<u8> {
    let mut text = String::new();
    if output == CheckOutput::Json {
        return print_json(findings);
    }
    if let Some(written_by) = &findings.written_by {
        writeln!(text, "written by {written_by}")?;
    }
    if let Some(checked) = &findings.checked {
        writeln!(text, "{checked}")?;
    }
    for (severity, finding) in each(findings) {
        match output {
            CheckOutput::Github => writeln!(text, "{}", annotation(severity, finding))?,
            CheckOutput::Text | CheckOutput::Json => writeln!(text, "{}: {finding}", severity.name())?,
        }
    }
    let Counts { errors, warnings } = findings.counts();
    writeln!(text, "{errors} errors, {warnings} warnings")?;
    print_text(&text)
}

fn each(findings: &Findings) -> impl Iterator<Item = (Severity, &Finding)> {
    let of = |severity, findings| std::iter::repeat(severity).zip(findings);
    of(Severity::Error, &findings.errors)
        .chain(of(Severity::Warning, &findings.warnings))
        .chain(of(Severity::NotChecked, &findings.not_checked))
}

/// A finding as a workflow command (docs.github.com/actions/reference/workflow-commands-for-github-actions; actions/toolkit,
/// packages/core/src/command.ts).
fn annotation(severity: Severity, Finding { file, line, field, problem }: &Finding) -> String {
    let line = line.map(|line| line.to_string()).unwrap_or_default();
    // GitHub shows an annotation only if its path equals the path in the repository.
    let file = file.strip_prefix("./").unwrap_or(file);
    let properties: Vec<String> = [("file", file), ("line", &line), ("title", field)]
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{name}={}", escaped_property(value)))
        .collect();
    let command = severity.command();
    let properties = properties.join(",");
    let space = if properties.is_empty() { "" } else { " " };
    let shown = if field.is_empty() { problem.clone() } else { format!("{field}: {problem}") };
    format!("::{command}{space}{properties}::{}", escaped(&shown))
}

fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn escaped_property(text: &str) -> String {
    escaped(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_annotation_stays_one_command() {
        let finding = Finding {
            file: "a,b:c.yaml".to_owned(),
            line: Some(3),
            field: "spec.x".to_owned(),
            problem: "is 50%\r\n::error::forged".to_owned(),
        };
        assert_eq!(
            annotation(Severity::Error, &Finding { file: format!("./{}", finding.file), ..finding.clone() }),
            "::error file=a%2Cb%3Ac.yaml,line=3,title=spec.x::spec.x: is 50%25%0D%0A::error::forged"
        );
        let finding = Finding { problem: "nothing".to_owned(), ..Finding::default() };
        assert_eq!(annotation(Severity::NotChecked, &finding), "::notice::nothing");
    }
}
