//! Collects findings about manifests within limits, because a pull request may have any number of mistakes of any length.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::rc::Rc;

use kops_agent_spec::SpecError;
use kops_agent_spec::terminal::shortened;

use super::files::Source;
use crate::output::{Checked, Finding, Findings};

/// The most findings of one severity that are listed for one document.
const MOST_OF_DOCUMENT: usize = 100;
/// The most findings of one severity that are listed.
const MOST: usize = 10_000;
/// The longest listed field, in characters.
const LONGEST_FIELD: usize = 300;
/// The longest listed problem, in characters.
const LONGEST_PROBLEM: usize = 2_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    Error,
    Warning,
    NotChecked,
}

/// The findings so far. Each finding is listed once.
#[derive(Default)]
pub(super) struct Told {
    errors: List,
    warnings: List,
    not_checked: List,
    /// Hashes of the findings about a document: its file, and the line at which its content begins.
    of_documents: BTreeMap<(Severity, Rc<str>, usize), BTreeSet<u64>>,
}

#[derive(Default)]
struct List {
    listed: BTreeSet<Finding>,
    /// The number of findings that are not listed.
    others: usize,
}

impl Told {
    /// Adds a finding that is not about a document that could be read.
    pub(super) fn add(&mut self, severity: Severity, finding: Finding) {
        let finding = Finding {
            field: shortened(&finding.field, LONGEST_FIELD),
            problem: shortened(&finding.problem, LONGEST_PROBLEM),
            ..finding
        };
        let list = self.list(severity);
        if list.listed.len() < MOST {
            list.listed.insert(finding);
        } else if !list.listed.contains(&finding) {
            list.others += 1;
        }
    }

    /// Adds a finding about a field of a document, or about the document if `field` is empty.
    pub(super) fn about(
        &mut self,
        severity: Severity,
        source: &Source,
        field: &str,
        problem: impl Into<String>,
    ) {
        let problem = problem.into();
        let mut hasher = DefaultHasher::new();
        (field, &problem).hash(&mut hasher);
        let seen = self.of_documents.entry((severity, Rc::clone(&source.file), source.line)).or_default();
        if seen.insert(hasher.finish()) && seen.len() <= MOST_OF_DOCUMENT {
            self.add(severity, source.finding(field, problem));
        }
    }

    pub(super) fn error(&mut self, source: &Source, field: &str, problem: impl Into<String>) {
        self.about(Severity::Error, source, field, problem);
    }

    pub(super) fn warning(&mut self, source: &Source, field: &str, problem: impl Into<String>) {
        self.about(Severity::Warning, source, field, problem);
    }

    pub(super) fn not_checked(&mut self, source: &Source, field: &str, problem: impl Into<String>) {
        self.about(Severity::NotChecked, source, field, problem);
    }

    pub(super) fn spec_error(&mut self, source: &Source, SpecError { field, problem, .. }: SpecError) {
        self.error(source, &field, problem);
    }

    pub(super) fn is_empty(&self) -> bool {
        [&self.errors, &self.warnings, &self.not_checked].iter().all(|list| list.listed.is_empty())
    }

    /// All findings. A warning that is an error, too, is left out.
    pub(super) fn findings(mut self, checked: Checked) -> Findings {
        for ((severity, file, line), seen) in std::mem::take(&mut self.of_documents) {
            if let Some(others) = seen.len().checked_sub(MOST_OF_DOCUMENT).filter(|others| *others > 0) {
                let problem = format!("{others} more {} of this document are not listed", severity.plural());
                self.add(
                    severity,
                    Finding { file: file.to_string(), line: Some(line), field: String::new(), problem },
                );
            }
        }
        self.warnings.listed.retain(|warning| !self.errors.listed.contains(warning));
        Findings {
            checked: Some(checked),
            errors: self.errors.findings(Severity::Error),
            warnings: self.warnings.findings(Severity::Warning),
            not_checked: self.not_checked.findings(Severity::NotChecked),
            ..Findings::default()
        }
    }

    fn list(&mut self, severity: Severity) -> &mut List {
        match severity {
            Severity::Error => &mut self.errors,
            Severity::Warning => &mut self.warnings,
            Severity::NotChecked => &mut self.not_checked,
        }
    }
}

impl List {
    fn findings(self, severity: Severity) -> Vec<Finding> {
        let others = (self.others > 0).then(|| Finding {
            problem: format!("{} more {} are not listed", self.others, severity.plural()),
            ..Finding::default()
        });
        self.listed.into_iter().chain(others).collect()
    }
}

impl Severity {
    fn plural(self) -> &'static str {
        match self {
            Severity::Error => "errors",
            Severity::Warning => "warnings",
            Severity::NotChecked => "unchecked parts",
        }
    }
}
