//! A manifest: which objects are in it, and in which order they are applied.

use std::fmt;

use kops_agent_spec::{SpecError, parse_document};
use serde_json::Value;

use crate::digest::sha256_hex;

/// The group and kind of definitions of kinds.
const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "CustomResourceDefinition");

/// An object of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// The object as the manifest has it.
    pub value: Value,
    /// What kind it is of.
    pub kind: ObjectKind,
    /// Its namespace; empty where the manifest names none.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A kind of a version of an API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectKind {
    /// The group; empty for the core's.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
}

/// When an object is applied: what others need comes before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Turn {
    /// Namespaces, which objects are in.
    Namespace,
    /// Definitions of kinds, which objects are of.
    Definition,
    /// All others.
    Other,
}

impl Object {
    /// When it is applied.
    pub fn turn(&self) -> Turn {
        match (self.kind.group.as_str(), self.kind.kind.as_str()) {
            ("", "Namespace") => Turn::Namespace,
            DEFINITIONS => Turn::Definition,
            _ => Turn::Other,
        }
    }

    /// The group and kind that it defines, where it is a definition.
    pub fn defines(&self) -> Option<(&str, &str)> {
        let text = |pointer: &str| self.value.pointer(pointer).and_then(Value::as_str);
        match self.turn() {
            Turn::Definition => Some((text("/spec/group")?, text("/spec/names/kind")?)),
            _ => None,
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&named(&self.kind.group, &self.kind.kind, &self.namespace, &self.name))
    }
}

/// An object in words, as in `Deployment.apps kube-system/coredns`.
pub fn named(group: &str, kind: &str, namespace: &str, name: &str) -> String {
    let kind = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
    if namespace.is_empty() { format!("{kind} {name}") } else { format!("{kind} {namespace}/{name}") }
}

impl ObjectKind {
    /// Reads `apiVersion` and `kind`; `None` where either is none.
    pub fn parse(api_version: &str, kind: &str) -> Option<ObjectKind> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let is_one = !version.is_empty() && !version.contains('/') && !kind.is_empty();
        let of = |text: &str| text.to_owned();
        is_one.then(|| ObjectKind { group: of(group), version: of(version), kind: of(kind) })
    }

    /// The `apiVersion`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }
}

/// The objects of a manifest, in the order in which they are applied: namespaces, then definitions of kinds, then the rest, each
/// as the manifest has them.
///
/// # Errors
/// If a document is no YAML, or no object: it has no version, no kind or no name. The error names the document, from 0.
pub fn objects(manifest: &[u8], url: &str) -> Result<Vec<Object>, SpecError> {
    let text = std::str::from_utf8(manifest)
        .map_err(|error| SpecError::of_file(url, format!("it is no UTF-8: {error}")))?;
    let sections = documents(text);
    let read = |(index, section): (usize, &String)| object(section, index, url);
    let mut objects = sections.iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
    objects.sort_by_key(Object::turn);
    Ok(objects)
}

/// Whether a manifest has the definition of a kind.
pub fn defines(manifest: &[Object], group: &str, kind: &str) -> bool {
    manifest.iter().any(|object| object.defines() == Some((group, kind)))
}

fn object(section: &str, index: usize, url: &str) -> Result<Object, SpecError> {
    let value = parse_document(section.as_bytes(), url)
        .map_err(|error| SpecError::of_field(url, &format!("documents[{index}]"), error.problem))?;
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let wrong = |field: &str, problem: &str| {
        SpecError::of_field(url, &format!("documents[{index}].{field}"), problem)
    };
    let kind = text("/kind");
    if kind.is_empty() {
        return Err(wrong("kind", "it is not there, but every object has one"));
    }
    let kind = ObjectKind::parse(&text("/apiVersion"), &kind)
        .ok_or_else(|| wrong("apiVersion", "it should be VERSION or GROUP/VERSION"))?;
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    match name.is_empty() {
        true => Err(wrong("metadata.name", "it is not there, but an object is applied by its name")),
        false => Ok(Object { value, kind, namespace, name }),
    }
}

/// The documents of a text that have content, split where kOps splits them (upstream: `SplitContentToSections` in
/// `util/pkg/text`).
pub(super) fn documents(text: &str) -> Vec<String> {
    let text = text.replace("\r\n", "\n");
    text.split("\n---\n").filter(|section| has_content(section)).map(str::to_owned).collect()
}

fn has_content(section: &str) -> bool {
    section.lines().map(str::trim).any(|line| !line.is_empty() && line != "---" && !line.starts_with('#'))
}

/// The SHA-256 of a text without the white space around it, in hexadecimal: what kOps has as the hash of a manifest.
pub(super) fn sha256_of_trimmed(text: &[u8]) -> String {
    sha256_hex(std::str::from_utf8(text).map_or(text, |text| text.trim().as_bytes()))
}
