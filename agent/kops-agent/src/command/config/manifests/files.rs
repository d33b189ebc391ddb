//! Reads the documents of manifests from files and folders.
//!
//! A folder of manifests may have files for other programs. If such a file cannot be read, it is not checked. It is an error only if its text
//! names kOps' API, or if the user named the file.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::Result;
use kops_agent_spec::SpecError;
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_spec::manifests::{
    Document, documents, has_action, has_action_within, has_control_line, value_at, with_words, without_words,
};
use kops_agent_spec::yaml::{GoDocument, parse_go_document};
use serde_json::Value;

use crate::output::Finding;

/// The maximum size of a manifest in bytes. People write manifests, so a larger file is no manifest.
const LARGEST: usize = 4 << 20;
/// Texts in the `apiVersion` of each manifest of kOps. `kops.k8s.io/` alone is also in labels that manifests of other programs name.
const APIS: [&str; 2] = ["kops.k8s.io/v1alpha", "kops/v1alpha"];
const TEMPLATE: &str =
    "is a template; render it, for example with `kops toolbox template`, and check the result";
const UNSPLIT: &str = "kOps does not read this document, because kOps splits a file only at lines that are exactly `---`; correct the line before it";
const TWICE: &str = "occurs twice in its mapping, and kOps uses the last value; remove one of them";

pub(super) struct Source {
    pub(super) file: String,
    text: String,
    lines_before: usize,
    pub(super) value: Value,
    /// Warnings about the text of the document. They are for manifests of kOps only.
    pub(super) warnings: Vec<Finding>,
}

#[derive(Default)]
pub(super) struct Contents {
    pub(super) sources: Vec<Source>,
    pub(super) errors: Vec<Finding>,
    pub(super) not_checked: Vec<Finding>,
    pub(super) files: usize,
    /// Whether a manifest of kOps could not be read.
    pub(super) lacks_manifests: bool,
}

impl Source {
    fn new(file: &str, document: Document<'_>, GoDocument { value, duplicates }: GoDocument) -> Source {
        let Document { text, lines_before } = document;
        let (file, text) = (file.to_owned(), text.to_owned());
        let mut source = Source { file, text, lines_before, value, warnings: Vec::new() };
        source.warnings = duplicates.into_iter().map(|field| source.finding(field, TWICE)).collect();
        source
    }

    fn document(&self) -> Document<'_> {
        Document { text: &self.text, lines_before: self.lines_before }
    }

    /// A finding about a field, or about the document if `field` is empty.
    pub(super) fn finding(&self, field: impl Into<String>, problem: impl Into<String>) -> Finding {
        let field = field.into();
        let line = self.document().line_of(&field);
        Finding { file: self.file.clone(), line: Some(line), field, problem: problem.into() }
    }

    pub(super) fn of_error(&self, SpecError { field, problem, .. }: SpecError) -> Finding {
        self.finding(field, problem)
    }

    /// The value of a field, if the manifest has it.
    pub(super) fn value_at(&self, field: &str) -> Option<&Value> {
        value_at(&self.value, field)
    }

    /// Whether a template decides the field, or a part of it.
    pub(super) fn is_template(&self, field: &str) -> bool {
        self.value_at(field).is_some_and(has_action_within)
    }

    pub(super) fn text_at(&self, field: &str) -> &str {
        self.value_at(field).and_then(Value::as_str).unwrap_or_default()
    }

    /// The file and line of the document, for a message about a different document.
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.file, self.document().line())
    }
}

/// Reads all manifests of these files and folders.
///
/// # Errors
/// A path does not exist, or is neither a file nor a folder. The folders have no manifests.
pub(super) fn read(paths: &[PathBuf]) -> Result<Contents> {
    let mut contents = Contents::default();
    // The value is true if the user named the file itself, and false if the file is in a named folder.
    let mut files = BTreeMap::new();
    for path in paths {
        let refused = |problem: &str| {
            Failure::new(Kind::WrongUsage, format!("--manifests {}: {problem}", path.display()))
        };
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => add_files(path, &mut files, &mut contents),
            Ok(metadata) if !metadata.is_file() => {
                return Err(refused("is neither a file nor a folder; write the manifests into a file").into());
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(refused("no such file or folder").into());
            }
            // An error is reported when the file is read.
            _ => drop(files.insert(path.clone(), true)),
        }
    }
    if files.is_empty() && contents.errors.is_empty() {
        let folders: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        return Err(Failure::new(
            Kind::WrongSetting,
            format!(
                "{} has no files of manifests; their names end with .yaml, .yml or .json",
                folders.join(", ")
            ),
        )
        .into());
    }
    contents.files = files.len();
    for (path, is_named) in files {
        add_documents(&path, is_named, &mut contents);
    }
    Ok(contents)
}

/// Adds the manifests of a folder and its subfolders. Hidden folders, such as `.git`, and links to folders are left out.
fn add_files(folder: &Path, files: &mut BTreeMap<PathBuf, bool>, contents: &mut Contents) {
    let entries: io::Result<Vec<fs::DirEntry>> = fs::read_dir(folder).and_then(Iterator::collect);
    let entries = entries.unwrap_or_else(|error| {
        contents.add_unreadable(folder, &error);
        Vec::new()
    });
    for entry in entries {
        let path = entry.path();
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        if entry.file_type().is_ok_and(|entry| entry.is_dir()) {
            add_files(&path, files, contents);
        } else if path
            .extension()
            .is_some_and(|name| ["yaml", "yml", "json"].iter().any(|known| name == *known))
            // A link that leads nowhere is reported when it is read.
            && fs::metadata(&path).map_or(true, |metadata| metadata.is_file())
        {
            files.entry(path).or_insert(false);
        }
    }
}

fn add_documents(path: &Path, is_named: bool, contents: &mut Contents) {
    let bytes = match first_bytes(path) {
        Ok(bytes) => bytes,
        Err(error) => return contents.add_unreadable(path, &error),
    };
    let file = path.display().to_string();
    let of_file =
        |problem: &str| Finding { file: file.clone(), problem: problem.to_owned(), ..Finding::default() };
    let is_error = |text: &[u8]| is_named || names_kops(text);
    if bytes.len() > LARGEST {
        return contents.add(of_file("is larger than 4 MiB, so it is no manifest"), is_error(&bytes));
    }
    let Ok(text) = std::str::from_utf8(&bytes) else {
        return contents.add(of_file("is not text in UTF-8"), is_error(&bytes));
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (mut sources, mut wrong) = (Vec::new(), Vec::new());
    for (index, document) in documents(text).into_iter().enumerate() {
        match parsed(document, &file) {
            Ok(read) => {
                let mut source = Source::new(&file, document, read);
                if index > 0 && document.begins_unlike_kops() {
                    source.warnings.push(source.finding("", UNSPLIT));
                }
                sources.push(source);
            }
            Err(problem) => {
                let line = line_in(&problem).unwrap_or_else(|| document.line());
                let finding = Finding { line: Some(line), ..of_file(&problem) };
                wrong.push((finding, is_error(document.text.as_bytes())));
            }
        }
    }
    // The documents of a template depend on each other. So if one of them is wrong, the whole file is not checked.
    if !wrong.is_empty() && has_control_line(text) {
        contents.lacks_manifests |= is_error(&bytes);
        contents.not_checked.push(of_file(TEMPLATE));
        return;
    }
    contents.sources.append(&mut sources);
    wrong.into_iter().for_each(|(finding, is_error)| contents.add(finding, is_error));
}

impl Contents {
    /// Adds a file, or a document, that cannot be read.
    fn add(&mut self, finding: Finding, is_error: bool) {
        self.lacks_manifests |= is_error;
        if is_error { self.errors.push(finding) } else { self.not_checked.push(finding) }
    }

    /// Adds a path that the system does not let us read. Nobody knows whether it has manifests of kOps.
    fn add_unreadable(&mut self, path: &Path, error: &io::Error) {
        let file = path.display().to_string();
        let problem = format!("cannot be read: {error}; correct its permissions, or where it leads");
        self.add(Finding { file, problem, ..Finding::default() }, true);
    }
}

/// The content of a file, or the beginning of a file that is too large.
fn first_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LARGEST as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn names_kops(text: &[u8]) -> bool {
    APIS.iter().any(|api| text.windows(api.len()).any(|part| part == api.as_bytes()))
}

/// Parses a document. If the document is invalid YAML only because of its template actions, each action is treated as a
/// word.
///
/// # Errors
/// The problem of the text, with its line in the file.
fn parsed(document: Document<'_>, file: &str) -> Result<GoDocument, String> {
    // Empty lines replace the lines before the document, so that the parser's messages contain the line in the file.
    let placed = "\n".repeat(document.lines_before) + document.text;
    let parse = |text: &str| parse_go_document(text, file).map_err(|SpecError { problem, .. }| problem);
    match parse(&placed) {
        Err(_) if has_action(&placed) => {
            let read = parse(&with_words(&placed))?;
            Ok(GoDocument { value: without_words(read.value), ..read })
        }
        read => read,
    }
}

/// The line in a message of the parser: `… at line 3 column 1, while parsing … at line 2 column 1`.
fn line_in(problem: &str) -> Option<usize> {
    let (_, rest) = problem.split_once(" at line ")?;
    rest.split(' ').next()?.parse().ok()
}
