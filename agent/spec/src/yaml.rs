//! Reading a YAML file of kOps into a type, with errors that name the file and the field.
//!
//! All YAML is read here, because a store, a cloud or an add-on may deliver any text. A text that costs more to read than any file
//! of kOps is refused before it is parsed.

mod bounds;
mod go_document;
mod scanner;

use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;

use super::error::SpecError;
use super::go_value::{self, Misfit, kind};

/// The reason to reject a text: it is not YAML of the expected type, or reading it costs too much memory or time.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct YamlError(#[from] Problem);

#[derive(Debug, Error)]
enum Problem {
    #[error("{0}")]
    TooCostly(bounds::TooCostly),
    #[error(transparent)]
    Yaml(#[from] serde_yaml::Error),
}

/// Reads a YAML (or JSON) text with one document. Fails if the text costs too much to read.
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, YamlError> {
    from_slice(text.as_bytes())
}

fn from_slice<T: DeserializeOwned>(text: &[u8]) -> Result<T, YamlError> {
    bounds::check(text).map_err(Problem::TooCostly)?;
    Ok(serde_yaml::from_slice(text).map_err(Problem::Yaml)?)
}

/// Reads each document of a YAML text. If a document is not of type `T`, its item is an error. If the text costs too much to read, the only
/// item is an error.
pub fn documents<T: DeserializeOwned>(text: &str) -> impl Iterator<Item = Result<T, YamlError>> {
    let checked = bounds::check(text.as_bytes()).map_err(|problem| Problem::TooCostly(problem).into());
    let is_checked = checked.is_ok();
    let documents = serde_yaml::Deserializer::from_str(if is_checked { text } else { "" });
    let read =
        documents.map(|document| T::deserialize(document).map_err(|error| Problem::Yaml(error).into()));
    checked.err().map(Err).into_iter().chain(read.filter(move |_| is_checked))
}

/// Reads YAML (or JSON) into `T`. Ignores fields that `T` does not know, because a newer kOps may have written them.
///
/// Errors contain `source_file`, a URL or path.
pub fn parse_yaml<T: DeserializeOwned>(text: &[u8], source_file: &str) -> Result<T, SpecError> {
    let document = parse_document(text, source_file)?;
    from_document(&document, source_file)
}

/// Reads YAML whose top level must be a mapping.
pub fn parse_document(text: &[u8], source_file: &str) -> Result<Value, SpecError> {
    let document = from_slice(text).map_err(|YamlError(problem)| unreadable(problem, source_file))?;
    mapping(document, source_file)
}

/// A YAML document, with the values that Go's YAML reader would read.
#[derive(Clone, Debug, PartialEq)]
pub struct GoDocument {
    pub value: Value,
    pub duplicates: Duplicates,
    /// The number of keys and values in the document, after the expansion of its aliases.
    pub values: usize,
}

/// The reason why a document cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    pub error: SpecError,
    /// Whether the document costs too much to read. kOps may still be able to read it.
    pub is_too_costly: bool,
    /// The number of keys and values that were read before the error, after the expansion of aliases.
    pub values: usize,
}

/// The keys that occur more than once in a mapping of a document. The last value of each key is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Duplicates {
    /// The paths of the first ten duplicate keys. A path longer than 300 characters is cut.
    pub paths: Vec<String>,
    /// The number of duplicate keys that are not in `paths`.
    pub others: usize,
}

/// Reads YAML whose top level must be a mapping. Follows Go's YAML 1.1 reader, with which kOps reads manifests.
pub fn parse_go_document(text: &str, source_file: &str) -> Result<GoDocument, Unread> {
    let unread = |problem: Problem, values| Unread {
        is_too_costly: matches!(problem, Problem::TooCostly(_)),
        error: unreadable(problem, source_file),
        values,
    };
    let (checked, values) = bounds::counted(text.as_bytes());
    checked.map_err(|problem| unread(Problem::TooCostly(problem), values))?;
    let document = go_document::read(text, serde_yaml::Deserializer::from_str(text))
        .map_err(|(error, values)| unread(error.into(), values))?;
    let values = document.values;
    match mapping(document.value, source_file) {
        Ok(value) => Ok(GoDocument { value, ..document }),
        Err(error) => Err(Unread { error, is_too_costly: false, values }),
    }
}

fn unreadable(problem: Problem, source_file: &str) -> SpecError {
    let problem = match problem {
        Problem::TooCostly(problem) => format!("{problem}, unlike any file of kOps or Kubernetes"),
        Problem::Yaml(error) => format!("it is not YAML: {error}"),
    };
    SpecError::of_file(source_file, problem)
}

fn mapping(document: Value, source_file: &str) -> Result<Value, SpecError> {
    match document {
        Value::Object(_) => Ok(document),
        Value::Null => Err(SpecError::of_file(source_file, "it is empty, but should be a YAML mapping")),
        other => Err(SpecError::of_file(
            source_file,
            format!("it holds {}, but should be a YAML mapping", kind(&other)),
        )),
    }
}

pub(crate) fn from_document<T: DeserializeOwned>(
    document: &Value,
    source_file: &str,
) -> Result<T, SpecError> {
    let (read, _) = go_value::read(document).map_err(|misfit| of_misfit(misfit, source_file))?;
    Ok(read)
}

/// Like [`from_document`], for a document that a user wrote. Like kOps, rejects a number or a boolean in place of a string.
pub(crate) fn from_manifest<T: DeserializeOwned>(
    document: &Value,
    source_file: &str,
) -> Result<T, SpecError> {
    go_value::read_manifest(document).map_err(|misfit| of_misfit(misfit, source_file))
}

fn of_misfit(Misfit { field, problem }: Misfit, source_file: &str) -> SpecError {
    SpecError::of_field(source_file, &field, problem)
}

/// The paths of the fields in a document that `T` does not know. Empty if the document does not fit `T`: in this case, reading the document
/// reports the error.
pub(crate) fn ignored_fields<T: DeserializeOwned>(document: &Value) -> Vec<String> {
    go_value::read::<T>(document).map(|(_, unknown)| unknown).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    const URL: &str = "s3://bucket/cluster/file";

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Outer {
        inner: Inner,
        list: Vec<Inner>,
        gates: BTreeMap<String, String>,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Inner {
        count: i32,
        on: Option<bool>,
        name: String,
    }

    fn problem(text: &str) -> String {
        parse_yaml::<Outer>(text.as_bytes(), URL).unwrap_err().to_string()
    }

    #[test]
    fn a_wrong_type_names_the_field_and_the_file() {
        assert_eq!(
            problem("inner: {count: many}"),
            "cannot read field inner.count of s3://bucket/cluster/file: it is a string, but should be a whole number"
        );
        assert_eq!(
            problem("list: [{}, {on: maybe}]"),
            "cannot read field list[1].on of s3://bucket/cluster/file: it is a string, but should be true or false"
        );
        assert_eq!(
            problem("inner: text"),
            "cannot read field inner of s3://bucket/cluster/file: it is a string, but should be a mapping"
        );
        assert_eq!(
            problem("inner: {name: [x]}"),
            "cannot read field inner.name of s3://bucket/cluster/file: it is a list, but should be a string"
        );
        assert_eq!(
            problem("inner: {count: 3000000000}"),
            "cannot read field inner.count of s3://bucket/cluster/file: invalid value: integer `3000000000`, expected i32"
        );
    }

    #[test]
    fn an_error_in_yaml_has_its_line() {
        let problem = problem("inner: {count: 1\nlist: [");
        assert!(problem.starts_with("cannot read s3://bucket/cluster/file: it is not YAML: "), "{problem}");
        assert!(problem.contains("line 2 column"), "{problem}");
    }

    #[test]
    fn a_text_that_costs_too_much_to_read_is_rejected() {
        let deep = "{a: ".repeat(20_000);
        assert_eq!(
            problem(&deep),
            "cannot read s3://bucket/cluster/file: its lists and mappings nest deeper than 100 levels, unlike any file of \
            kOps or Kubernetes"
        );
        let documents = |text: &str| documents::<Value>(text).collect::<Result<Vec<_>, _>>();
        assert_eq!(documents("a: 1\n---\nb: 2\n").unwrap().len(), 2);
        assert!(documents(&deep).unwrap_err().to_string().contains("nest deeper"));
        assert!(from_str::<Value>("a: [").is_err());
    }

    #[test]
    fn an_error_names_the_type_of_a_document_that_is_not_a_mapping() {
        assert_eq!(
            problem(""),
            "cannot read s3://bucket/cluster/file: it is empty, but should be a YAML mapping"
        );
        assert_eq!(
            problem("[1]"),
            "cannot read s3://bucket/cluster/file: it holds a list, but should be a YAML mapping"
        );
    }

    #[test]
    fn unknown_fields_are_named_by_their_path() {
        let document = parse_document(
            b"list: [{count: 1}, {counts: 2, on: true}]\ninner: {more: {count: 1}}\ngates: {any: x}\nnew: 1",
            URL,
        )
        .unwrap();
        assert_eq!(ignored_fields::<Outer>(&document), ["inner.more", "list[1].counts", "new"]);
        let misfit = parse_document(b"{inner: [], new: 1}", URL).unwrap();
        assert!(ignored_fields::<Outer>(&misfit).is_empty());
    }

    #[test]
    fn unknown_fields_are_ignored_and_null_means_unset() {
        let parsed: Outer =
            parse_yaml(b"new: {a: 1}\ninner: null\nlist: [null, {name: null, count: null}]", URL).unwrap();
        assert_eq!(parsed, Outer { list: vec![Inner::default(), Inner::default()], ..Outer::default() });
    }

    #[test]
    fn scalars_are_accepted_as_strings() {
        let parsed: Outer = parse_yaml(b"gates: {A: true, B: 7, C: x, D: null, E: 1.5}", URL).unwrap();
        let values: Vec<&str> = parsed.gates.values().map(String::as_str).collect();
        assert_eq!(values, ["true", "7", "x", "", "1.5"]);
    }
}
