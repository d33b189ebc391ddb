//! Reads the documents of manifests from files and folders.
//!
//! A folder of manifests may have files for other programs. If such a file cannot be read, it is not checked. It is an error only if its
//! text names kOps' API, or if the user named the file. In CI, a pull request may have any files, so their number and their size have
//! limits.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::Result;
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_spec::manifests::{
    Document, Lines, documents, has_action, has_control_line, value_at, with_words,
};
use kops_agent_spec::yaml::{Duplicates, GoDocument, Unread, parse_go_document};
use serde_json::Value;

use super::bytes::{Bytes, names_kops};
use super::kinds::{Class, OtherDocuments, class, kind, text_at};
use super::paths::{self, unreadable};
use super::told::{Severity, Told};
use crate::findings::Finding;

/// Maximum number of bytes that are read from all files together.
const MOST_BYTES: usize = 1 << 30;
/// Maximum size of the parsed text of all files together, in bytes. A file that is too large to be parsed does not
/// count.
const MOST_TEXT: usize = 64 << 20;
/// Maximum number of documents in a file.
const MOST_DOCUMENTS: usize = 1_000;
/// Maximum number of keys and values in all documents together, after the expansion of aliases.
const MOST_VALUES: usize = 6_000_000;
/// Maximum number of kOps manifests in all files together.
const MOST_MANIFESTS: usize = 5_000;
/// Maximum number of keys and values in a kOps manifest. A large cluster has a few thousand.
const MOST_VALUES_OF_MANIFEST: usize = 10_000;
const TEMPLATE: &str =
    "is a template; render it, for example with `kops toolbox template`, and check the result";
const UNSPLIT: &str = "kOps does not read this document, because kOps splits a file only at lines that are exactly `---`; correct the line before it";
const TWICE: &str = "occurs twice in its mapping, and kOps uses the last value; remove one of them";

/// A document that is a kOps manifest.
pub(super) struct Source {
    pub(super) file: Rc<str>,
    /// The line at which the content of the document begins.
    pub(super) line: usize,
    pub(super) value: Value,
    pub(super) class: Class,
    /// Whether the document has too many keys and values for a manifest of kOps.
    pub(super) is_too_large: bool,
    text: String,
    lines_before: usize,
    lines: OnceCell<Lines>,
    duplicates: Duplicates,
    is_unsplit: bool,
}

#[derive(Default)]
pub(super) struct Contents {
    pub(super) sources: Vec<Source>,
    pub(super) others: OtherDocuments,
    pub(super) files: usize,
    /// Whether a manifest of kOps could not be read.
    pub(super) lacks_manifests: bool,
    bytes: usize,
    text: usize,
    values: usize,
}

impl Source {
    fn new(file: &Rc<str>, document: Document<'_>, read: GoDocument, class: Class, is_later: bool) -> Source {
        Source {
            file: Rc::clone(file),
            line: document.line(),
            class,
            is_too_large: read.values > MOST_VALUES_OF_MANIFEST,
            value: read.value,
            text: document.text.to_owned(),
            lines_before: document.lines_before,
            lines: OnceCell::new(),
            duplicates: read.duplicates,
            is_unsplit: is_later && document.begins_unlike_kops(),
        }
    }

    /// A finding about a field, or about the document if `field` is empty.
    pub(super) fn finding(&self, field: &str, problem: String) -> Finding {
        let lines = self.lines.get_or_init(|| Lines::parse(&self.text));
        let line = lines.line_of(&self.text, field).map_or(self.line, |line| self.lines_before + line);
        Finding { file: self.file.to_string(), line: Some(line), field: field.to_owned(), problem }
    }

    /// Warns about text that kOps reads differently than a user expects.
    pub(super) fn warn_of_text(&self, told: &mut Told) {
        let Duplicates { paths, others } = &self.duplicates;
        paths.iter().for_each(|field| told.warning(self, field, TWICE));
        told.unlisted(Severity::Warning, self, *others);
        if self.is_unsplit {
            told.warning(self, "", UNSPLIT);
        }
    }

    pub(super) fn value_at(&self, field: &str) -> Option<&Value> {
        value_at(&self.value, field)
    }

    pub(super) fn text_at(&self, field: &str) -> &str {
        text_at(&self.value, field)
    }

    /// The size of the document after the expansion of its aliases, in bytes of JSON.
    pub(super) fn size(&self) -> usize {
        self.value.to_string().len()
    }

    /// The file and line of the document, for a message about a different document.
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.file, self.line)
    }
}

/// Reads all manifests of these files and folders. Fails if the folders have no manifests, or the files exceed a limit.
pub(super) fn read(paths: &[PathBuf], told: &mut Told) -> Result<Contents> {
    let files = paths::files(paths, told)?;
    if files.is_named.is_empty() && told.is_empty() {
        let folders: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        return Err(Failure::new(
            Kind::WrongSetting,
            format!(
                "{} has no manifests; the names of manifest files end with .yaml, .yml or .json",
                folders.join(", ")
            ),
        )
        .into());
    }
    let mut contents =
        Contents { files: files.is_named.len(), lacks_manifests: files.lacks_files, ..Contents::default() };
    for (path, is_named) in files.is_named {
        contents.add_file(&path, is_named, told)?;
    }
    Ok(contents)
}

impl Contents {
    /// Adds the manifests of a file. Fails if all files together exceed a limit.
    fn add_file(&mut self, path: &Path, is_named: bool, told: &mut Told) -> Result<()> {
        let left = MOST_BYTES.saturating_sub(self.bytes);
        let bytes = match Bytes::from_file(path, left, !is_named) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.add_unreadable(unreadable(path, &error), true, told);
                return Ok(());
            }
        };
        let file: Rc<str> = path.display().to_string().into();
        let of_file = |problem: String| Finding { file: file.to_string(), problem, ..Finding::default() };
        self.bytes += bytes.read;
        within(self.bytes, MOST_BYTES, "1 GiB")?;
        if !bytes.is_too_large() {
            self.text += bytes.read;
            within(self.text, MOST_TEXT, "64 MiB of text")?;
        }
        let is_error = is_named || bytes.names_kops;
        let (text, documents) = match documents_of(&bytes) {
            Ok(read) => read,
            Err(problem) => {
                self.add_unreadable(of_file(problem), is_error, told);
                return Ok(());
            }
        };
        let (mut manifests, mut other_kinds, mut wrong) = (Vec::new(), Vec::new(), Vec::new());
        for (index, document) in documents.into_iter().enumerate() {
            let (read, values) = parsed(document, &file);
            self.values += values;
            within(self.values, MOST_VALUES, "6,000,000 keys and values")?;
            let read = match read {
                Ok(read) => read,
                Err(Unread { error, is_too_costly, .. }) => {
                    let problem = in_file(&error.problem, document.lines_before);
                    let line = line_in(&problem).unwrap_or_else(|| document.line());
                    let finding = Finding { line: Some(line), ..of_file(problem) };
                    let is_error = is_named || is_too_costly || names_kops(document.text.as_bytes());
                    wrong.push(Wrong { finding, is_error, is_too_costly });
                    continue;
                }
            };
            match class(&read.value) {
                Class::Other => other_kinds.push(kind(&read.value).to_owned()),
                class => manifests.push(Source::new(&file, document, read, class, index > 0)),
            }
        }
        // If a template has lines with only an action, such as `{{ if }}`, its documents depend on each other. So one unreadable document
        // excludes the whole file.
        if !wrong.is_empty() && has_control_line(text) {
            for Wrong { finding, .. } in wrong.into_iter().filter(|document| document.is_too_costly) {
                self.add_unreadable(finding, true, told);
            }
            self.lacks_manifests |= is_error;
            told.add(Severity::NotChecked, of_file(TEMPLATE.to_owned()));
            return Ok(());
        }
        self.sources.append(&mut manifests);
        within(self.sources.len(), MOST_MANIFESTS, "5,000 manifests of kOps")?;
        other_kinds.iter().for_each(|kind| self.others.add(kind));
        for Wrong { finding, is_error, .. } in wrong {
            self.add_unreadable(finding, is_error, told);
        }
        Ok(())
    }

    fn add_unreadable(&mut self, finding: Finding, is_error: bool, told: &mut Told) {
        self.lacks_manifests |= is_error;
        told.add(if is_error { Severity::Error } else { Severity::NotChecked }, finding);
    }
}

/// A document that cannot be read.
struct Wrong {
    finding: Finding,
    is_error: bool,
    /// Whether reading the document takes too much time or memory. This is always an error, even if the document does not name kOps' API,
    /// because a kOps manifest may write its `apiVersion` with escapes.
    is_too_costly: bool,
}

/// Refuses files that exceed a limit, because a pull request must not decide how long the check takes, or how much memory it needs.
fn within(count: usize, most: usize, shown: &str) -> Result<()> {
    if count <= most {
        return Ok(());
    }
    let problem = format!("--manifests: the files have more than {shown}; check fewer folders at once");
    Err(Failure::new(Kind::WrongSetting, problem).into())
}

/// The text of a file, and its documents. Fails if the file is too large, is not UTF-8 or has too many documents.
fn documents_of(bytes: &Bytes) -> Result<(&str, Vec<Document<'_>>), String> {
    if bytes.is_too_large() {
        return Err("is larger than 4 MiB, so this check does not read it".to_owned());
    }
    let text = std::str::from_utf8(&bytes.beginning).map_err(|_| "is not text in UTF-8".to_owned())?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let documents = documents(text);
    match documents.len() <= MOST_DOCUMENTS {
        true => Ok((text, documents)),
        false => Err("has more than 1,000 documents; split it into several files".to_owned()),
    }
}

/// Parses a document. If the document is invalid YAML only because of its template actions, each action is treated as a
/// word. Also returns the number of keys and values that were read, even if the document cannot be read as a whole.
fn parsed(document: Document<'_>, file: &str) -> (Result<GoDocument, Unread>, usize) {
    let mut read = parse_go_document(document.text, file);
    let mut values = values_of(&read);
    if read.is_err() && has_action(document.text) {
        let was_too_costly = read.is_err_and(|unread| unread.is_too_costly);
        let (words, actions) = with_words(document.text);
        read = match parse_go_document(&words, file) {
            Ok(GoDocument { value, duplicates, values }) => Ok(GoDocument {
                value: actions.in_value(value),
                duplicates: Duplicates {
                    paths: duplicates.paths.iter().map(|path| actions.in_text(path)).collect(),
                    ..duplicates
                },
                values,
            }),
            Err(unread) => Err(Unread { is_too_costly: was_too_costly || unread.is_too_costly, ..unread }),
        };
        values += values_of(&read);
    }
    (read, values)
}

fn values_of(read: &Result<GoDocument, Unread>) -> usize {
    read.as_ref().map_or_else(|unread| unread.values, |read| read.values)
}

const AT_LINE: &str = " at line ";

/// A parser message about a document, with line numbers of the file: `… at line 3 column 1, while parsing … at line 2 column 1`.
fn in_file(problem: &str, lines_before: usize) -> String {
    let mut parts = problem.split(AT_LINE);
    let mut moved = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        let (line, rest) = part.split_at(digits);
        let line =
            line.parse().map_or(line.to_owned(), |line: usize| line.saturating_add(lines_before).to_string());
        moved += &[AT_LINE, &line, rest].concat();
    }
    moved
}

/// The line number in a parser message.
fn line_in(problem: &str) -> Option<usize> {
    let (_, rest) = problem.split_once(AT_LINE)?;
    rest.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::bytes::LARGEST;
    use super::*;

    fn refused(mut contents: Contents, text: &str) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.yaml");
        std::fs::write(&file, text).unwrap();
        let added = contents.add_file(&file, false, &mut Told::default());
        added.err().map(|error| error.to_string())
    }

    #[test]
    fn all_files_together_have_limits() {
        const TEXT: &str = "a: 1\nb: 2\n";
        const MANIFEST: &str = "kind: Cluster\n";
        let beyond = |limit: &str| {
            Some(format!("--manifests: the files have more than {limit}; check fewer folders at once"))
        };
        let of_text = |text: usize| Contents { text, ..Contents::default() };
        assert_eq!(refused(of_text(MOST_TEXT - TEXT.len()), TEXT), None);
        assert_eq!(refused(of_text(MOST_TEXT - TEXT.len() + 1), TEXT), beyond("64 MiB of text"));
        // A file that is too large to be parsed does not count toward `MOST_TEXT`.
        let large = "#".repeat(LARGEST + 1);
        assert_eq!(refused(of_text(MOST_TEXT), &large), None);
        let of_bytes = |bytes: usize| Contents { bytes, ..Contents::default() };
        for text in [TEXT, &large] {
            assert_eq!(refused(of_bytes(MOST_BYTES - text.len()), text), None);
            assert_eq!(refused(of_bytes(MOST_BYTES - text.len() + 1), text), beyond("1 GiB"));
        }
        // TEXT counts as five: the mapping, two keys and two values.
        let of_values = |values: usize| Contents { values, ..Contents::default() };
        assert_eq!(refused(of_values(MOST_VALUES - 5), TEXT), None);
        assert_eq!(refused(of_values(MOST_VALUES - 4), TEXT), beyond("6,000,000 keys and values"));
        // LIST is an unreadable document, but counts as three values: the list and its two items.
        const LIST: &str = "- a\n- b\n";
        assert_eq!(refused(of_values(MOST_VALUES - 3), LIST), None);
        assert_eq!(refused(of_values(MOST_VALUES - 2), LIST), beyond("6,000,000 keys and values"));
        let of_manifests = |count: usize| {
            let parse = || parsed(documents(MANIFEST)[0], "").0.unwrap();
            let source = || Source::new(&"".into(), documents(MANIFEST)[0], parse(), Class::Checked, false);
            Contents { sources: std::iter::repeat_with(source).take(count).collect(), ..Contents::default() }
        };
        assert_eq!(refused(of_manifests(MOST_MANIFESTS - 1), MANIFEST), None);
        assert_eq!(refused(of_manifests(MOST_MANIFESTS), MANIFEST), beyond("5,000 manifests of kOps"));
        assert_eq!(refused(of_manifests(MOST_MANIFESTS), TEXT), None);
    }

    #[test]
    fn both_readings_of_a_document_with_an_action_count() {
        let values = |text: &str| parsed(documents(text)[0], "").1;
        // The first reading parses `{{ a }}` as YAML: a mapping whose key is a mapping. This reading counts five values: the list, both
        // mappings, and the inner key and value. The second reading counts two: the list and the placeholder.
        assert_eq!(values("- {{ a }}\n"), 5 + 2);
        let deep = format!("a: {{{{ b }}}}\nc: {}\n", "[".repeat(200));
        let (read, _) = parsed(documents(&deep)[0], "");
        assert!(read.unwrap_err().is_too_costly);
    }

    #[test]
    fn documents_of_other_programs_are_counted_and_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.yaml");
        std::fs::write(&file, "kind: Secret\n---\nkind: Cluster\n---\na: 1\n").unwrap();
        let mut contents = Contents::default();
        contents.add_file(&file, false, &mut Told::default()).unwrap();
        assert_eq!(contents.sources.len(), 1);
        let counted = contents.others.finding().unwrap().problem;
        assert!(counted.ends_with(": Secret (1), without kind (1)"), "{counted}");
    }

    #[test]
    fn a_message_of_the_parser_has_the_lines_of_the_file() {
        let problem = "it is not YAML: x at line 3 column 1, while parsing y at line 2 column 4";
        let moved = in_file(problem, 10);
        assert_eq!(moved, "it is not YAML: x at line 13 column 1, while parsing y at line 12 column 4");
        assert_eq!(line_in(&moved), Some(13));
        for other in ["", "no line", "x at line", "x at line y", "x at line 99999999999999999999999 z"] {
            assert_eq!(in_file(other, 10), other);
        }
    }
}
