//! Finds the origin of each value on a node: a field of a document in the store, a fact, or a constant.
//!
//! Deciding a node is pure and takes milliseconds. So `explain` changes each field in turn and decides the node again. The lines that
//! differ afterwards come from that field. No component has to record the origin of its values, and the answer is never stale.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use serde::Serialize;
use serde_json::Value;

use crate::resource::{Content, DesiredState, File, Resource, ResourceId, Unit};
use crate::shown;

/// A document from which the node's desired state is derived.
#[derive(Clone, Debug)]
pub struct Source {
    /// URL or name of the document, for display.
    pub name: String,
    pub value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// A whole resource: a file (by its path) or a unit (by its name).
    Resource(String),
    /// A command-line flag (`--max-pods`) or a setting. Matches every line that contains any of these texts.
    Setting(Vec<String>),
}

impl Question {
    /// Reads a question in the form that users type: `/etc/x`, `kubelet.service`, `--max-pods`. A flag also matches the configuration field
    /// with the same name in camel case, because most Kubernetes flags also exist as such a field.
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

/// A line in the description of a resource, with the origins of the line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    pub resource: ResourceId,
    pub text: String,
    /// The fields that decide the line, each as `document: path`. Empty if the line is a constant.
    pub origins: Vec<String>,
    /// The entries of a list in the line. Empty if the line has no list.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<Entry>,
}

/// One entry of a list that is in a line, with the origins of the entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    pub text: String,
    /// The fields that decide the entry, each as `document: path`. Empty if the entry is a constant.
    pub origins: Vec<String>,
}

/// The lines as text, each with its origins.
pub fn text(lines: &[Line]) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_text(&mut text, lines);
    text
}

fn write_text(text: &mut String, lines: &[Line]) -> fmt::Result {
    let mut resource = None;
    for line in lines {
        if resource != Some(&line.resource) {
            writeln!(text, "{}", line.resource)?;
            resource = Some(&line.resource);
        }
        // A line without an origin is a default: no field of a file and no fact changes it.
        writeln!(text, "    {}{}", line.text, if line.origins.is_empty() { "    (default)" } else { "" })?;
        if line.entries.is_empty() {
            line.origins.iter().try_for_each(|origin| writeln!(text, "        from {origin}"))?;
        }
        for entry in &line.entries {
            let of_default = if entry.origins.is_empty() { "    (default)" } else { "" };
            writeln!(text, "        {}{of_default}", entry.text)?;
            entry.origins.iter().try_for_each(|origin| writeln!(text, "            from {origin}"))?;
        }
    }
    Ok(())
}

/// The keys and indices that lead to a field of a document.
type Path = Vec<String>;

/// Returns the lines that the question matches, in the order of the desired state, each with its origins.
///
/// `decide` derives the desired state from the documents. It returns `None` if it rejects the documents.
pub fn explain<F>(sources: &[Source], question: &Question, decide: F) -> Vec<Line>
where
    F: Fn(&[Value]) -> Option<DesiredState>,
{
    let mut values: Vec<Value> = sources.iter().map(|source| source.value.clone()).collect();
    let Some(state) = decide(&values) else { return Vec::new() };
    let mut texts = Texts::new();
    let usual = lines(&state, question, &mut texts);
    let mut origins: BTreeMap<(ResourceId, String), BTreeSet<String>> = BTreeMap::new();
    let mut of_entries: BTreeMap<(ResourceId, String), BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();

    for (index, source) in sources.iter().enumerate() {
        for path in leaves(&source.value) {
            let original = values[index].clone();
            for changed in changes(&original, &path) {
                values[index] = changed;
                if let Some(state) = decide(&values) {
                    let other: BTreeSet<_> = lines(&state, question, &mut texts).into_iter().collect();
                    for line in usual.iter().filter(|line| !other.contains(*line)) {
                        let field = format!("{}: {}", source.name, path.join("."));
                        for entry in gone_entries(line, &other) {
                            let of_line = of_entries.entry(line.clone()).or_default();
                            of_line.entry(entry.to_owned()).or_default().insert(field.clone());
                        }
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
            let (resource, line) = &key;
            let fields = shown
                .entry(resource.clone())
                .or_insert_with(|| state.get(resource).map(shown_fields).unwrap_or_default());
            let sorted =
                |origins: Option<&BTreeSet<String>>| origins.into_iter().flatten().cloned().collect();
            let of_entries = |entry: &str| Entry {
                text: shown::line(entry),
                origins: sorted(of_entries.get(&key).and_then(|of_line| of_line.get(entry))),
            };
            // A JSON field is not split into entries, because it may be a text that must stay hidden.
            let (text, entries) = match fields.get(line) {
                Some(field) => (field.clone(), Vec::new()),
                None => (
                    shown::line(line),
                    entries(line).into_iter().flat_map(|(_, entries)| entries).map(of_entries).collect(),
                ),
            };
            let origins = sorted(origins.get(&key));
            Line { resource: resource.clone(), text, origins, entries }
        })
        .collect()
}

/// Splits a line into the part before its list and the entries of the list: `--admission=A,B`, `NO_PROXY=a,b`, `modes: [a, b]`.
fn entries(line: &str) -> Option<(&str, Vec<&str>)> {
    let at = line.find(['=', ':'])? + 1;
    let (name, list) = line.split_at(at);
    let is_frame = |c: char| c.is_whitespace() || matches!(c, '[' | ']' | '"' | '\'');
    let entries: Vec<&str> = list.split(',').map(|entry| entry.trim_matches(is_frame)).collect();
    (entries.len() > 1 && entries.iter().all(|entry| !entry.is_empty())).then_some((name, entries))
}

/// The list entries of a line that no line in `others` has. Compares only with lines of the same resource that have the same text before
/// their lists.
fn gone_entries<'a>(
    (resource, line): &'a (ResourceId, String),
    others: &BTreeSet<(ResourceId, String)>,
) -> Vec<&'a str> {
    let Some((name, mut gone)) = entries(line) else { return Vec::new() };
    for (_, line) in others.iter().filter(|(other, _)| other == resource) {
        if let Some(list) = line.strip_prefix(name) {
            let left = entries(line).map_or_else(|| vec![list.trim()], |(_, entries)| entries);
            gone.retain(|entry| !left.contains(entry));
        }
    }
    gone
}

/// A cache of the results of [`shown::comparable_text`], by resource and text. Most changes of a field leave most texts unchanged.
type Texts = BTreeMap<(String, String), Option<String>>;

/// The lines that the question matches, without duplicates, in the order of the desired state.
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

/// Splits a resource into lines. A file or unit is split into the lines of its text, with each flag on its own line. Any other resource, or
/// a completely hidden text, is split into its JSON fields. The lines may contain secrets, so they must not be displayed.
fn resource_lines(resource: &Resource, texts: &mut Texts) -> Vec<String> {
    let (text, free_text) = match resource {
        Resource::File(File { content: Content::Text(text), free_text, .. }) => (text, free_text),
        Resource::Unit(Unit { text: Some(text), free_text, .. }) => (text, free_text),
        _ => return fields(&serde_json::to_value(resource).unwrap_or_default()),
    };
    let place = (resource.id().name, text.clone());
    let comparable =
        texts.entry(place).or_insert_with_key(|(_, text)| shown::comparable_text(text, free_text.as_ref()));
    match comparable {
        Some(text) => text.lines().flat_map(split_flags).filter(|line| decides_something(line)).collect(),
        None => fields(&serde_json::to_value(resource).unwrap_or_default()),
    }
}

/// The JSON fields of a resource, each with its form for display. A resource with a completely hidden text is shown by these fields.
fn shown_fields(resource: &Resource) -> BTreeMap<String, String> {
    let lines = fields(&serde_json::to_value(resource).unwrap_or_default());
    lines.into_iter().zip(fields(&shown::resource(resource))).collect()
}

fn fields(value: &Value) -> Vec<String> {
    value.as_object().into_iter().flatten().map(|(field, value)| format!("{field}: {value}")).collect()
}

/// Whether a line is neither blank nor a comment.
fn decides_something(line: &str) -> bool {
    let line = line.trim_start();
    !line.is_empty() && !line.starts_with(['#', ';'])
}

/// Splits a line with several flags into one line for each flag. Returns any other line unchanged.
fn split_flags(line: &str) -> Vec<String> {
    if line.matches(" --").count() == 0 || line.trim_start().starts_with("- --") {
        return vec![line.to_owned()];
    }
    let mut parts = line.split(" --");
    let first = parts.next().unwrap_or_default().to_owned();
    std::iter::once(first).chain(parts.map(|flag| format!("--{}", flag.trim_end_matches('"')))).collect()
}

/// The paths of all scalars in a document.
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

/// Copies of the document, each with a different value in the field at `path`. `decide` may reject some of these values, because a value
/// may have to be a version, an address or one of a few words.
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
    use crate::resource::FreeText;
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
    fn a_flag_is_found_in_every_resource() {
        assert_eq!(origins("--port"), [("--port=99".into(), vec!["spec: port".into()])]);
        assert_eq!(origins("--host"), [("--host=\"h".into(), vec!["facts: host".into()])]);
    }

    #[test]
    fn a_flag_is_also_found_as_a_configuration_field() {
        assert_eq!(origins("--max-ports"), [("maxPorts: 99".into(), vec!["spec: port".into()])]);
    }

    #[test]
    fn free_text_is_hidden_but_its_origin_is_shown() {
        let decide = |values: &[Value]| {
            let secret = values[0]["secret"].as_str()?;
            let mut state = DesiredState::default();
            state.add(File {
                free_text: Some(FreeText::Whole),
                ..File::text("/etc/free", format!("{secret}\n"))
            });
            let lines = File::text("/etc/lines", format!("a: b\nauth: {secret}\n"));
            state.add(File { free_text: Some(FreeText::Lines([1].into())), ..lines });
            state.add(Unit {
                free_text: Some(FreeText::Whole),
                ..Unit::new("x.service", format!("Environment=A={secret}\n"))
            });
            Some(state)
        };
        let sources = [Source { name: "spec".into(), value: json!({"secret": "hunter2"}) }];
        let explained = |question| explain(&sources, &Question::read(question), decide);
        let find = |question, text: &str| {
            let line = explained(question).into_iter().find(|line| line.text == text);
            line.unwrap_or_else(|| panic!("{:?}", explained(question))).origins
        };
        assert_eq!(find("/etc/free", "content: {\"text\":\"[***]\"}"), ["spec: secret"]);
        assert_eq!(find("/etc/lines", "[***]"), ["spec: secret"]);
        assert!(find("/etc/lines", "a: b").is_empty());
        assert_eq!(find("x.service", "text: \"[***]\""), ["spec: secret"]);
    }

    #[test]
    fn each_entry_of_a_list_names_the_fields_that_decide_it() {
        let decide = |values: &[Value]| {
            let own: Vec<&str> = values[0]["plugins"].as_array()?.iter().filter_map(Value::as_str).collect();
            let mut state = DesiredState::default();
            state.add(File::text("/m", format!("    - --plugins=Always,{}\n", own.join(","))));
            Some(state)
        };
        let sources = [Source { name: "spec".into(), value: json!({"plugins": ["A", "B"]}) }];
        let lines = explain(&sources, &Question::read("--plugins"), decide);
        let [line] = lines.as_slice() else { panic!("{lines:?}") };
        assert_eq!(line.origins, ["spec: plugins.0", "spec: plugins.1"]);
        let entries: Vec<(&str, &[String])> =
            line.entries.iter().map(|entry| (entry.text.as_str(), entry.origins.as_slice())).collect();
        let (first, second) = ("spec: plugins.0".to_owned(), "spec: plugins.1".to_owned());
        assert_eq!(entries, [("Always", &[][..]), ("A", &[first][..]), ("B", &[second][..])]);
    }

    #[test]
    fn comments_have_no_lines() {
        assert!(origins("x.service").iter().all(|(text, _)| !text.starts_with('#')));
    }

    #[test]
    fn a_path_that_nothing_writes_has_no_lines() {
        assert_eq!(origins("/etc/z"), []);
    }
}
