//! Where a value on a node comes from: which field of which file in the store, which fact, or neither.
//!
//! Deciding is pure and takes milliseconds, so the question is put to the decision itself: each field
//! is changed in turn, the node is decided again, and what then differs came from that field. No
//! component has to carry the origin of its values along, and the answer cannot be out of date.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use crate::redaction::MARK;
use crate::resource::{Content, DesiredState, Resource, ResourceId};
use crate::shown;

/// One document that a decision was made from.
#[derive(Clone, Debug)]
pub struct Source {
    /// URL or name of the document, for people.
    pub name: String,
    /// Its fields.
    pub value: Value,
}

/// What is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// A whole resource: a file by its path, a unit by its name.
    Resource(String),
    /// A command-line flag (`--max-pods`) or a setting, wherever it stands: any of these texts.
    Setting(Vec<String>),
}

impl Question {
    /// Reads a question as people put it: `/etc/x`, `kubelet.service`, `--max-pods`. Most flags of Kubernetes are
    /// fields of a configuration file as well, by the same name in camel case.
    pub fn read(text: &str) -> Question {
        let is_unit = text.rsplit_once('.').is_some_and(|(_, suffix)| {
            ["service", "timer", "mount", "slice", "socket", "path", "target"].contains(&suffix)
        });
        if text.starts_with('/') || is_unit {
            Question::Resource(text.to_owned())
        } else {
            let field = text.strip_prefix("--").map(|flag| format!("{}:", camel_case(flag)));
            Question::Setting(std::iter::once(text.to_owned()).chain(field).collect())
        }
    }
}

fn camel_case(flag: &str) -> String {
    let mut words = flag.split('-');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let (initial, rest) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
        name + &initial.to_uppercase() + rest
    })
}

/// One line of a resource, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// The resource that the line is in.
    pub resource: ResourceId,
    /// The line.
    pub text: String,
    /// The fields that decide it, each `document: path`; empty where it is always so.
    pub origins: Vec<String>,
}

/// A field of a document, by the keys and indices that lead to it.
type Path = Vec<String>;

/// What decides each line that the question is about, in the order of the lines.
///
/// `decide` makes the node from the documents, or says `None` where it would refuse them.
pub fn explain<F>(sources: &[Source], question: &Question, decide: F) -> Vec<Line>
where
    F: Fn(&[Value]) -> Option<DesiredState>,
{
    let mut values: Vec<Value> = sources.iter().map(|source| source.value.clone()).collect();
    let Some(state) = decide(&values) else { return Vec::new() };
    let mut texts = Texts::new();
    let usual = lines(&state, question, &mut texts);
    let mut origins: BTreeMap<(ResourceId, String), BTreeSet<String>> = BTreeMap::new();

    for (index, source) in sources.iter().enumerate() {
        for path in leaves(&source.value) {
            let original = values[index].clone();
            for changed in changes(&original, &path) {
                values[index] = changed;
                if let Some(state) = decide(&values) {
                    let other: BTreeSet<_> = lines(&state, question, &mut texts).into_iter().collect();
                    for line in usual.iter().filter(|line| !other.contains(*line)) {
                        let field = format!("{}: {}", source.name, path.join("."));
                        origins.entry(line.clone()).or_default().insert(field);
                    }
                    break;
                }
            }
            values[index] = original;
        }
    }
    let mut shown: BTreeMap<ResourceId, BTreeMap<String, String>> = BTreeMap::new();
    usual
        .into_iter()
        .map(|key| {
            let origins = origins.get(&key).into_iter().flatten().cloned().collect();
            let (resource, line) = key;
            let shown = shown
                .entry(resource.clone())
                .or_insert_with(|| state.get(&resource).map(shown_lines).unwrap_or_default());
            let text = shown.get(&line).map_or(MARK, String::as_str).to_owned();
            Line { text, resource, origins }
        })
        .collect()
}

/// What [`shown::comparable`] has made of each text at its place: most changes of a field leave most texts as they are.
type Texts = BTreeMap<(String, String), String>;

/// The lines that the question is about, each once, in order.
fn lines(state: &DesiredState, question: &Question, texts: &mut Texts) -> Vec<(ResourceId, String)> {
    let mut seen = BTreeSet::new();
    state
        .iter()
        .filter(|(id, _)| match question {
            Question::Resource(name) => id.name == *name,
            Question::Setting(_) => true,
        })
        .flat_map(|(id, resource)| resource_lines(resource, texts).into_iter().map(|line| (id.clone(), line)))
        .filter(|(_, line)| match question {
            Question::Resource(_) => true,
            Question::Setting(texts) => texts.iter().any(|text| line.contains(text.as_str())),
        })
        .filter(|line| seen.insert(line.clone()))
        .collect()
}

/// The text of a file or unit, where it may be looked into.
fn text_of(resource: &Resource) -> Option<&str> {
    match resource {
        Resource::File(file) if shown::is_hidden(file) => None,
        Resource::File(file) => match &file.content {
            Content::Text(text) => Some(text),
            _ => None,
        },
        Resource::Unit(unit) => unit.text.as_deref(),
        _ => None,
    }
}

/// A resource as lines: the text of a file or unit, with flags one a line, and the other fields as JSON. They are not to be shown.
fn resource_lines(resource: &Resource, texts: &mut Texts) -> Vec<String> {
    if let Some(text) = text_of(resource) {
        let place = (resource.id().name, text.to_owned());
        let text = texts.entry(place).or_insert_with_key(|(id, text)| shown::comparable(id, text));
        return text.lines().flat_map(split_flags).filter(|line| decides_something(line)).collect();
    }
    fields(&serde_json::to_value(resource).unwrap_or_default())
}

/// What may be shown of each of its lines.
fn shown_lines(resource: &Resource) -> BTreeMap<String, String> {
    let mut shown = BTreeMap::new();
    let mut add = |line: String, text: String| {
        // What is secret in one place is in all.
        shown
            .entry(line)
            .and_modify(|shown: &mut String| {
                if text.contains(MARK) {
                    shown.clone_from(&text);
                }
            })
            .or_insert(text);
    };
    match text_of(resource) {
        Some(text) => {
            for (line, text) in shown::lines(&resource.id().name, text) {
                // Where the end of a line is hidden its last flags are.
                let parts = split_flags(&text).into_iter().chain(std::iter::repeat(MARK.to_owned()));
                split_flags(&line).into_iter().zip(parts).for_each(|(line, text)| add(line, text));
            }
        }
        None => {
            let lines = fields(&serde_json::to_value(resource).unwrap_or_default());
            lines
                .into_iter()
                .zip(fields(&shown::resource(resource)))
                .for_each(|(line, text)| add(line, text));
        }
    }
    shown
}

fn fields(value: &Value) -> Vec<String> {
    value.as_object().into_iter().flatten().map(|(field, value)| format!("{field}: {value}")).collect()
}

/// Whether it is more than a comment or a gap.
fn decides_something(line: &str) -> bool {
    let line = line.trim_start();
    !line.is_empty() && !line.starts_with(['#', ';'])
}

/// A line that holds several flags, as one line for each.
fn split_flags(line: &str) -> Vec<String> {
    if line.matches(" --").count() == 0 || line.trim_start().starts_with("- --") {
        return vec![line.to_owned()];
    }
    let mut parts = line.split(" --");
    let first = parts.next().unwrap_or_default().to_owned();
    std::iter::once(first).chain(parts.map(|flag| format!("--{}", flag.trim_end_matches('"')))).collect()
}

/// Every scalar in a document.
fn leaves(value: &Value) -> Vec<Path> {
    fn walk(value: &Value, path: &mut Path, found: &mut Vec<Path>) {
        match value {
            Value::Object(fields) => {
                for (key, field) in fields {
                    path.push(key.clone());
                    walk(field, path, found);
                    path.pop();
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    path.push(index.to_string());
                    walk(item, path, found);
                    path.pop();
                }
            }
            Value::Null => {}
            _ => found.push(path.clone()),
        }
    }
    let mut found = Vec::new();
    walk(value, &mut Vec::new(), &mut found);
    found
}

/// The document with this field changed, in several ways: a value that must be a version, an address or
/// one of a few words is refused after some changes and not after others.
fn changes(document: &Value, path: &Path) -> Vec<Value> {
    let Some(old) = at(document, path) else { return Vec::new() };
    let others: Vec<Value> = match old {
        Value::Bool(value) => vec![Value::Bool(!value)],
        Value::Number(number) => match number.as_i64() {
            Some(number) => vec![(number + 1).into(), (number - 1).into()],
            None => vec![1.into()],
        },
        Value::String(text) => {
            let digit = with_last_digit_changed(text);
            digit.into_iter().chain([format!("{text}x"), format!("x{text}")]).map(Value::String).collect()
        }
        _ => Vec::new(),
    };
    let mut changed: Vec<Value> = others
        .into_iter()
        .filter_map(|other| {
            let mut document = document.clone();
            *at_mut(&mut document, path)? = other;
            Some(document)
        })
        .collect();
    let mut without = document.clone();
    if remove(&mut without, path) {
        changed.push(without);
    }
    changed
}

fn with_last_digit_changed(text: &str) -> Option<String> {
    let at = text.rfind(|c: char| c.is_ascii_digit())?;
    let digit = text[at..=at].parse::<u8>().ok()?;
    Some(format!("{}{}{}", &text[..at], (digit + 1) % 10, &text[at + 1..]))
}

fn at<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, key| match value {
        Value::Array(items) => items.get(key.parse::<usize>().ok()?),
        _ => value.get(key),
    })
}

fn at_mut<'a>(value: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    path.iter().try_fold(value, |value, key| match value {
        Value::Array(items) => items.get_mut(key.parse::<usize>().ok()?),
        _ => value.get_mut(key),
    })
}

fn remove(value: &mut Value, path: &[String]) -> bool {
    let Some((key, parent)) = path.split_last() else { return false };
    match at_mut(value, parent) {
        Some(Value::Object(fields)) => fields.remove(key).is_some(),
        Some(Value::Array(items)) => match key.parse::<usize>() {
            Ok(index) if index < items.len() => {
                items.remove(index);
                true
            }
            _ => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::{File, Mode, Unit};
    use serde_json::json;

    fn decide(values: &[Value]) -> Option<DesiredState> {
        let name = values[0]["name"].as_str()?;
        let port = values[0]["port"].as_i64().filter(|port| *port < 100)?;
        let mut state = DesiredState::default();
        state.add(File::text("/etc/x", format!("name: {name}\nalways: true\n")));
        state.add(Unit::new(
            "x.service",
            format!("# About x.\nExecStart=/bin/x --port={port} --host={}\n", values[1]["host"]),
        ));
        state.add(File::text("/etc/y", format!("maxPorts: {port}\n")));
        Some(state)
    }

    fn sources() -> [Source; 2] {
        [
            Source { name: "spec".into(), value: json!({"name": "a", "port": 99, "unused": 1}) },
            Source { name: "facts".into(), value: json!({"host": "h"}) },
        ]
    }

    fn origins(question: &str) -> Vec<(String, Vec<String>)> {
        explain(&sources(), &Question::read(question), decide)
            .into_iter()
            .map(|line| (line.text, line.origins))
            .collect()
    }

    #[test]
    fn each_line_of_a_file_names_the_fields_that_decide_it() {
        assert_eq!(
            origins("/etc/x"),
            [("name: a".into(), vec!["spec: name".into()]), ("always: true".into(), vec![])]
        );
    }

    #[test]
    fn a_flag_is_found_wherever_it_stands_even_if_one_change_of_its_field_is_refused() {
        assert_eq!(origins("--port"), [("--port=99".into(), vec!["spec: port".into()])]);
        assert_eq!(origins("--host"), [("--host=\"h".into(), vec!["facts: host".into()])]);
    }

    #[test]
    fn a_flag_is_found_as_a_field_too() {
        assert_eq!(origins("--max-ports"), [("maxPorts: 99".into(), vec!["spec: port".into()])]);
    }

    #[test]
    fn what_is_secret_is_not_shown_with_its_origin() {
        let decide = |values: &[Value]| {
            let secret = values[0]["secret"].as_str()?;
            let mut state = DesiredState::default();
            state.add(File::text("/etc/private", format!("{secret}\n")).mode(Mode(0o400)));
            state.add(File::text(
                "/etc/x",
                format!("a: b\ntls_key: |\n  {secret}\npassword: |\n  {secret}\n"),
            ));
            state.add(Unit::new(
                "x.service",
                format!("ExecStart=/bin/mysql --v=1 -p{secret} --b --password {secret} --c\n"),
            ));
            Some(state)
        };
        let sources = [Source { name: "spec".into(), value: json!({"secret": "hunter2"}) }];
        let explained = |question| explain(&sources, &Question::read(question), decide);
        let texts =
            |question| -> Vec<String> { explained(question).into_iter().map(|line| line.text).collect() };
        assert!(texts("/etc/private").contains(&"content: {\"text\":\"[***]\"}".to_owned()));
        assert_eq!(texts("/etc/x"), ["a: b", "tls_key: |", "  [***]", "password: |"]);
        assert_eq!(
            texts("x.service"),
            ["ExecStart=/bin/mysql", "--v=1 -p[***]", "--b", "--password [***]", MARK]
        );
        let origins: Vec<_> = explained("/etc/x").into_iter().map(|line| line.origins.len()).collect();
        assert_eq!(origins, [0, 0, 1, 0]);
    }

    #[test]
    fn comments_need_no_explanation() {
        assert!(origins("x.service").iter().all(|(text, _)| !text.starts_with('#')));
    }

    #[test]
    fn a_path_that_nothing_writes_has_no_lines() {
        assert_eq!(origins("/etc/z"), []);
    }
}
