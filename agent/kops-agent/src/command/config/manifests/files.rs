//! Reads the documents of manifests from files and folders.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use kops_agent_process::exit::{WrongConfiguration, WrongUsage};
use kops_agent_spec::manifests::{Document, documents, has_action, has_action_within, value_at};
use kops_agent_spec::{SpecError, parse_document};
use serde_json::Value;

use crate::output::Finding;

/// A manifest is a text that people write. A larger file is something else.
const LARGEST: u64 = 4 << 20;
const TEMPLATE: &str =
    "is a template; render it, for example with `kops toolbox template`, and check the result";

/// A document of a file.
pub(super) struct Source {
    pub(super) file: String,
    text: String,
    lines_before: usize,
    pub(super) value: Value,
}

/// Everything that the files contain.
#[derive(Default)]
pub(super) struct Contents {
    pub(super) sources: Vec<Source>,
    pub(super) errors: Vec<Finding>,
    pub(super) not_checked: Vec<Finding>,
    pub(super) files: usize,
}

impl Source {
    fn document(&self) -> Document<'_> {
        Document { text: &self.text, lines_before: self.lines_before }
    }

    pub(super) fn text(&self) -> &[u8] {
        self.text.as_bytes()
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

    /// Whether a template decides the field.
    pub(super) fn is_template(&self, field: &str) -> bool {
        self.value_at(field).is_some_and(has_action_within)
    }

    pub(super) fn text_at(&self, field: &str) -> &str {
        self.value_at(field).and_then(Value::as_str).unwrap_or_default()
    }

    /// The place of the document, for a message about another one.
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.file, self.document().line())
    }
}

/// Reads all manifests of these files and folders.
///
/// # Errors
/// A path does not exist or cannot be read, or the folders have no manifests.
pub(super) fn read(paths: &[PathBuf]) -> Result<Contents> {
    let mut files = Vec::new();
    for path in paths {
        let metadata = fs::metadata(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                WrongUsage(format!("--manifests {}: no such file or folder", path.display())).into()
            }
            _ => anyhow::Error::new(error).context(format!("reading {}", path.display())),
        })?;
        if metadata.is_dir() {
            add_files(path, &mut files)?;
        } else {
            files.push(path.clone());
        }
    }
    files.sort();
    files.dedup();
    if files.is_empty() {
        let folders: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        return Err(WrongConfiguration(format!(
            "{} has no files of manifests; their names end with .yaml, .yml or .json",
            folders.join(", ")
        ))
        .into());
    }
    let mut contents = Contents { files: files.len(), ..Contents::default() };
    for file in files {
        add_documents(&file, &mut contents)?;
    }
    Ok(contents)
}

/// Adds the manifests of a folder and its subfolders. Hidden folders, such as `.git`, and links to folders are left out.
fn add_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let reading = || format!("reading the folder {}", folder.display());
    for entry in fs::read_dir(folder).with_context(reading)? {
        let entry = entry.with_context(reading)?;
        let path = entry.path();
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        if entry.file_type().with_context(reading)?.is_dir() {
            add_files(&path, files)?;
        } else if path
            .extension()
            .is_some_and(|name| ["yaml", "yml", "json"].iter().any(|known| name == *known))
            && path.is_file()
        {
            files.push(path);
        }
    }
    Ok(())
}

fn add_documents(path: &Path, contents: &mut Contents) -> Result<()> {
    let file = path.display().to_string();
    let of_file =
        |problem: &str| Finding { file: file.clone(), problem: problem.to_owned(), ..Finding::default() };
    let reading = || format!("reading {file}");
    if fs::metadata(path).with_context(reading)?.len() > LARGEST {
        contents.errors.push(of_file("is larger than 4 MiB, so it is no manifest"));
        return Ok(());
    }
    let Ok(text) = String::from_utf8(fs::read(path).with_context(reading)?) else {
        contents.errors.push(of_file("is not text in UTF-8"));
        return Ok(());
    };
    let (mut sources, mut errors) = (Vec::new(), Vec::new());
    for Document { text, lines_before } in documents(&text) {
        // The lines before the document give the parser's messages the line in the file.
        let placed = format!("{}{text}", "\n".repeat(lines_before));
        match parse_document(placed.as_bytes(), &file) {
            Ok(value) => {
                sources.push(Source { file: file.clone(), text: text.to_owned(), lines_before, value });
            }
            Err(SpecError { problem, .. }) => {
                let line = line_in(&problem).unwrap_or_else(|| Document { text, lines_before }.line());
                errors.push(Finding { line: Some(line), ..of_file(&problem) });
            }
        }
    }
    // The documents of a template depend on each other.
    if !errors.is_empty() && has_action(&text) {
        contents.not_checked.push(of_file(TEMPLATE));
    } else {
        contents.sources.append(&mut sources);
        contents.errors.append(&mut errors);
    }
    Ok(())
}

/// The line in a message of the parser: `… at line 3 column 1`.
fn line_in(problem: &str) -> Option<usize> {
    let (_, rest) = problem.rsplit_once(" at line ")?;
    rest.split(' ').next()?.parse().ok()
}
