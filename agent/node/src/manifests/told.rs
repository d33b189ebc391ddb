//! Collects findings about manifests within limits, because a pull request may have any number of mistakes of any length.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::rc::Rc;

use kops_agent_spec::SpecError;
use kops_agent_spec::terminal::shortened;

use super::files::Source;
use crate::findings::{Checked, Counts, Finding, Findings};

/// Maximum number of listed findings of one severity about one document.
const MOST_OF_DOCUMENT: usize = 100;
/// Maximum number of listed findings of one severity.
const MOST: usize = 10_000;
/// Maximum length of a listed field, in characters.
const LONGEST_FIELD: usize = 300;
/// Maximum length of a listed problem, in characters.
const LONGEST_PROBLEM: usize = 2_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Severity {
    Error,
    Warning,
    NotChecked,
}

/// The findings so far. Each finding is either listed or only counted.
#[derive(Default)]
pub(super) struct Told {
    /// One list for each severity.
    lists: [List; 3],
    /// The findings about each document, one part for each severity. The key of a document is its file, and the line at which the content
    /// of the document begins.
    documents: BTreeMap<(Rc<str>, usize), [OfDocument; 3]>,
}

#[derive(Default)]
struct List {
    /// The listed findings that are not about a document.
    found: BTreeSet<Finding>,
    /// The number of listed findings, including findings about documents.
    listed: usize,
    /// Lines that say how many findings about a document are not listed.
    counts: BTreeSet<Finding>,
    /// The number of unlisted findings that the lines in `counts` report.
    counted: usize,
    /// Hashes of the unlisted findings that are not about a document.
    unlisted: BTreeSet<u64>,
    /// The number of findings about documents, without the listed findings and the findings that `counts` reports.
    others: usize,
}

/// The findings of one severity about a document.
#[derive(Default)]
struct OfDocument {
    /// Hashes of all findings.
    seen: BTreeSet<u64>,
    listed: Vec<(u64, Finding)>,
    /// Hashes of the findings that are not listed.
    unlisted: Vec<u64>,
    /// The number of findings whose texts are unknown, because only their number was added.
    others: usize,
}

impl Told {
    /// Adds a finding that belongs to no readable document.
    pub(super) fn add(&mut self, severity: Severity, finding: Finding) {
        let list = &mut self.lists[severity as usize];
        let finding = short(finding);
        if list.found.contains(&finding) {
            return;
        }
        if list.listed < MOST {
            list.listed += 1;
            list.found.insert(finding);
        } else {
            list.unlisted.insert(hash(&finding));
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
        let hash = hash(&(field, &problem));
        let list = &mut self.lists[severity as usize];
        let document = document(&mut self.documents, severity, source);
        if !document.seen.insert(hash) {
            return;
        }
        if list.listed < MOST && document.listed.len() < MOST_OF_DOCUMENT {
            list.listed += 1;
            document.listed.push((hash, short(source.finding(field, problem))));
        } else {
            document.unlisted.push(hash);
        }
    }

    /// Adds `count` findings about a document that are counted, but not listed.
    pub(super) fn unlisted(&mut self, severity: Severity, source: &Source, count: usize) {
        document(&mut self.documents, severity, source).others += count;
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
        self.lists.iter().all(|list| list.listed == 0)
    }

    /// All findings. A warning is left out if the same finding is also an error.
    pub(super) fn findings(self, checked: Checked) -> Findings {
        let Told { lists: [mut errors, mut warnings, mut not_checked], documents } = self;
        for ((file, line), [of_errors, mut of_warnings, of_not_checked]) in documents {
            let is_error = |hash: &u64| of_errors.seen.contains(hash);
            of_warnings.unlisted.retain(|hash| !is_error(hash));
            let before = of_warnings.listed.len();
            of_warnings.listed.retain(|(hash, _)| !is_error(hash));
            warnings.listed -= before - of_warnings.listed.len();
            errors.add_document(Severity::Error, &file, line, of_errors);
            warnings.add_document(Severity::Warning, &file, line, of_warnings);
            not_checked.add_document(Severity::NotChecked, &file, line, of_not_checked);
        }
        let (errors, error_count) = errors.findings(Severity::Error);
        let (warnings, warning_count) = warnings.findings(Severity::Warning);
        Findings {
            checked: Some(checked),
            errors,
            warnings,
            not_checked: not_checked.findings(Severity::NotChecked).0,
            counts: Some(Counts { errors: error_count, warnings: warning_count }),
            ..Findings::default()
        }
    }
}

impl List {
    /// Adds the findings about a document. If some of these findings are not listed, adds a line with their number, unless the list is
    /// full.
    fn add_document(&mut self, severity: Severity, file: &str, line: usize, of: OfDocument) {
        self.found.extend(of.listed.into_iter().map(|(_, finding)| finding));
        let unlisted = of.unlisted.len() + of.others;
        if unlisted == 0 {
            return;
        }
        if self.listed == MOST {
            self.others += unlisted;
            return;
        }
        self.listed += 1;
        self.counted += unlisted;
        let problem = format!("{unlisted} more {} of this document are not listed", severity.plural());
        self.counts.insert(Finding {
            file: file.to_owned(),
            line: Some(line),
            field: String::new(),
            problem,
        });
    }

    /// The lines of this list, and the number of findings.
    fn findings(mut self, severity: Severity) -> (Vec<Finding>, usize) {
        let others = self.unlisted.len() + self.others;
        let count = self.found.len() + self.counted + others;
        self.found.append(&mut self.counts);
        let last = (others > 0).then(|| Finding {
            problem: format!("{others} more {} are not listed", severity.plural()),
            ..Finding::default()
        });
        (self.found.into_iter().chain(last).collect(), count)
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

fn short(finding: Finding) -> Finding {
    Finding {
        field: shortened(&finding.field, LONGEST_FIELD),
        problem: shortened(&finding.problem, LONGEST_PROBLEM),
        ..finding
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn document<'a>(
    documents: &'a mut BTreeMap<(Rc<str>, usize), [OfDocument; 3]>,
    severity: Severity,
    source: &Source,
) -> &'a mut OfDocument {
    &mut documents.entry((Rc::clone(&source.file), source.line)).or_default()[severity as usize]
}

#[cfg(test)]
mod tests {
    use super::super::files;
    use super::*;

    /// Two documents of one file.
    fn sources() -> Vec<Source> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.yaml");
        std::fs::write(&file, "kind: Cluster\n---\nkind: Cluster\n").unwrap();
        files::read(&[file], &mut Told::default()).unwrap().sources
    }

    fn of_path(number: usize) -> Finding {
        Finding { problem: format!("is wrong {number}"), ..Finding::default() }
    }

    /// The lines that count unlisted errors and warnings, and the numbers of all errors and warnings.
    fn counted(told: Told) -> (Vec<String>, [usize; 2]) {
        let Findings { errors, warnings, counts, .. } = told.findings(Checked::default());
        let lines = errors.into_iter().chain(warnings).map(|finding| finding.problem);
        let counts = counts.unwrap();
        (lines.filter(|line| line.ends_with("not listed")).collect(), [counts.errors, counts.warnings])
    }

    #[test]
    fn findings_above_the_limit_of_a_document_are_counted_once() {
        let (sources, mut told) = (sources(), Told::default());
        for number in (0..150).chain(0..150) {
            told.error(&sources[0], "a", number.to_string());
            told.warning(&sources[1], "a", number.to_string());
        }
        told.unlisted(Severity::Warning, &sources[1], 20);
        let lines = [
            "50 more errors of this document are not listed",
            "70 more warnings of this document are not listed",
        ];
        assert_eq!(counted(told), (lines.map(str::to_owned).into(), [150, 170]));
    }

    #[test]
    fn a_warning_that_is_an_error_is_not_counted() {
        let (sources, mut told) = (sources(), Told::default());
        for number in 0..150 {
            told.warning(&sources[0], "a", number.to_string());
        }
        // The warnings 90 to 149 are also added as errors.
        for number in 90..300 {
            told.error(&sources[0], "a", number.to_string());
        }
        let lines = ["110 more errors of this document are not listed"];
        assert_eq!(counted(told), (lines.map(str::to_owned).into(), [210, 90]));
    }

    #[test]
    fn findings_above_the_limit_of_a_check_are_counted_once() {
        let (sources, mut told) = (sources(), Told::default());
        for number in 0..50 {
            told.error(&sources[0], "a", number.to_string());
        }
        for number in (0..MOST).chain(0..MOST) {
            told.add(Severity::Error, of_path(number));
        }
        for number in 0..150 {
            told.error(&sources[0], "a", number.to_string());
            told.error(&sources[1], "a", number.to_string());
        }
        // The list contains 50 errors about the first document. 50 errors about paths, 100 about the first document and
        // 150 about the second are not listed.
        let lines = ["300 more errors are not listed"];
        assert_eq!(counted(told), (lines.map(str::to_owned).into(), [MOST + 300, 0]));
    }

    #[test]
    fn a_full_list_has_no_line_for_each_document() {
        let (sources, mut told) = (sources(), Told::default());
        for number in 0..150 {
            told.error(&sources[0], "a", number.to_string());
        }
        for number in 0..MOST - 101 {
            told.add(Severity::Error, of_path(number));
        }
        for number in 0..150 {
            told.error(&sources[1], "a", number.to_string());
        }
        // The last free line lists an error. So no line is left for the number of unlisted errors of the first document.
        let (lines, counts) = counted(told);
        assert_eq!(lines, ["199 more errors are not listed"]);
        assert_eq!(counts, [300 + MOST - 101, 0]);
    }
}
