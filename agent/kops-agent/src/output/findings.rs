//! Prints the findings of `config check`.

use std::fmt::{self, Write as _};

use anyhow::Result;
use kops_agent_spec::kops_release::WrittenBy;
use serde::Serialize;

use super::{print_json, print_text};
use crate::cli::CheckOutput;

/// A finding of `config check`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Finding {
    /// URL or path of the file with the problem; empty if no single file has it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// The line of the file; `None` if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// Path of the field with the problem; empty if no single field has it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
    /// The problem, and what to do about it.
    pub problem: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { file, line, field, problem } = self;
        let place = match line {
            Some(line) => format!("{file}:{line}"),
            None => file.clone(),
        };
        for place in [&place, field].into_iter().filter(|place| !place.is_empty()) {
            write!(f, "{place}: ")?;
        }
        f.write_str(problem)
    }
}

/// The manifests that a check has read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Checked {
    /// The version of kOps that the manifests are for.
    pub kops: String,
    pub files: usize,
    pub clusters: usize,
    pub instance_groups: usize,
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Checked { kops, files, clusters, instance_groups } = self;
        write!(
            f,
            "checked for kOps {kops}: {files} files, {clusters} clusters, {instance_groups} instance groups"
        )
    }
}

/// The numbers of all errors and warnings, also of those that are not listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub errors: usize,
    pub warnings: usize,
}

/// All findings of `config check`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Findings {
    /// The kOps release that wrote the configuration; `None` if it cannot be determined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written_by: Option<WrittenBy>,
    /// The checked manifests; `None` if the check is not of manifests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checked: Option<Checked>,
    /// Problems that keep the node from being decided.
    pub errors: Vec<Finding>,
    /// Problems that do not keep the node from being decided.
    pub warnings: Vec<Finding>,
    /// Parts of the manifests that are not checked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_checked: Vec<Finding>,
    /// `None` if all errors and warnings are listed.
    #[serde(skip)]
    pub counts: Option<Counts>,
}

impl Findings {
    fn counts(&self) -> Counts {
        let listed = Counts { errors: self.errors.len(), warnings: self.warnings.len() };
        self.counts.unwrap_or(listed)
    }

    /// Each finding with its severity.
    fn each(&self) -> impl Iterator<Item = (Severity, &Finding)> {
        let of = |severity, findings| std::iter::repeat(severity).zip(findings);
        of(Severity::Error, &self.errors)
            .chain(of(Severity::Warning, &self.warnings))
            .chain(of(Severity::NotChecked, &self.not_checked))
    }
}

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
    for (severity, finding) in findings.each() {
        match output {
            CheckOutput::Github => writeln!(text, "{}", annotation(severity, finding))?,
            CheckOutput::Text | CheckOutput::Json => writeln!(text, "{}: {finding}", severity.name())?,
        }
    }
    let Counts { errors, warnings } = findings.counts();
    writeln!(text, "{errors} errors, {warnings} warnings")?;
    print_text(&text)
}

/// A finding as a workflow command (docs.github.com/actions/reference/workflow-commands-for-github-actions; actions/toolkit,
/// packages/core/src/command.ts).
fn annotation(severity: Severity, Finding { file, line, field, problem }: &Finding) -> String {
    let line = line.map(|line| line.to_string()).unwrap_or_default();
    // GitHub shows an annotation only at the path that the repository has.
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

    #[test]
    fn a_finding_names_its_place() {
        let mut finding = Finding {
            file: "a.yaml".into(),
            line: Some(3),
            field: "spec.x".into(),
            problem: "is wrong".into(),
        };
        assert_eq!(finding.to_string(), "a.yaml:3: spec.x: is wrong");
        finding.line = None;
        assert_eq!(finding.to_string(), "a.yaml: spec.x: is wrong");
    }
}
