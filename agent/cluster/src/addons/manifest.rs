//! Reads the objects of a manifest and sorts them for applying.

use std::fmt;

use kops_agent_spec::{SpecError, parse_document};
use serde_json::Value;

use kops_agent_spec::digest::sha256_hex;

/// The group and kind of CustomResourceDefinitions.
pub const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "CustomResourceDefinition");

#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// The object as the manifest has it.
    pub value: Value,
    pub kind: ObjectKind,
    /// The object's namespace. Empty if the manifest names none.
    pub namespace: String,
    pub name: String,
}

/// A kind in a version of an API group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectKind {
    /// The API group. Empty for the core group.
    pub group: String,
    pub version: String,
    pub kind: String,
}

/// The stage in which an object is applied. Each object is applied after the objects that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ApplyStage {
    /// Namespaces, which contain other objects.
    Namespace,
    /// CustomResourceDefinitions, which define the kinds of other objects.
    Definition,
    Other,
}

impl Object {
    pub fn stage(&self) -> ApplyStage {
        match (self.kind.group.as_str(), self.kind.kind.as_str()) {
            ("", "Namespace") => ApplyStage::Namespace,
            DEFINITIONS => ApplyStage::Definition,
            _ => ApplyStage::Other,
        }
    }

    /// The group and kind that this object defines, if it is a CustomResourceDefinition.
    pub fn defines(&self) -> Option<(&str, &str)> {
        let text = |pointer: &str| self.value.pointer(pointer).and_then(Value::as_str);
        match self.stage() {
            ApplyStage::Definition => Some((text("/spec/group")?, text("/spec/names/kind")?)),
            _ => None,
        }
    }

    /// The kinds that the API server serves because of this CustomResourceDefinition: `apiVersion` and kind. Empty for other objects.
    pub fn serves(&self) -> Vec<(String, String)> {
        let Some((group, kind)) = self.defines() else { return Vec::new() };
        let versions = self.value.pointer("/spec/versions").and_then(Value::as_array);
        let served = versions
            .into_iter()
            .flatten()
            .filter(|version| version.get("served") == Some(&Value::Bool(true)));
        let name = served.filter_map(|version| version.get("name")?.as_str());
        name.map(|version| (format!("{group}/{version}"), kind.to_owned())).collect()
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&named(&self.kind.group, &self.kind.kind, &self.namespace, &self.name))
    }
}

/// The name of an object in messages: `Deployment.apps kube-system/coredns`.
pub fn named(group: &str, kind: &str, namespace: &str, name: &str) -> String {
    let kind = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
    if namespace.is_empty() { format!("{kind} {name}") } else { format!("{kind} {namespace}/{name}") }
}

impl ObjectKind {
    /// Reads `apiVersion` and `kind`. Returns `None` if one of them is empty or malformed.
    pub fn parse(api_version: &str, kind: &str) -> Option<ObjectKind> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let is_one = !version.is_empty() && !version.contains('/') && !kind.is_empty();
        let of = |text: &str| text.to_owned();
        is_one.then(|| ObjectKind { group: of(group), version: of(version), kind: of(kind) })
    }

    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }
}

/// Reads the objects of a manifest in apply order: namespaces, then CustomResourceDefinitions, then the remaining objects. Within a stage,
/// the order is the manifest's. An error names the document by its index from 0.
pub fn objects(manifest: &[u8], url: &str) -> Result<Vec<Object>, SpecError> {
    let text = std::str::from_utf8(manifest)
        .map_err(|error| SpecError::of_file(url, format!("it is not UTF-8: {error}")))?;
    let mut objects = Vec::new();
    for (index, section) in documents(text).iter().enumerate() {
        let field = format!("documents[{index}]");
        let value = parse_document(section.as_bytes(), url)
            .map_err(|error| SpecError::of_field(url, &field, error.problem))?;
        expand(value, &field, url, &mut objects)?;
    }
    objects.sort_by_key(Object::stage);
    Ok(objects)
}

/// Adds an object, or the items of a list. A list has the kind `List`, or a kind such as `PodList`, whose items may omit their kind.
fn expand(mut value: Value, field: &str, url: &str, objects: &mut Vec<Object>) -> Result<(), SpecError> {
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let items = kind.strip_suffix("List").zip(value.get_mut("items").and_then(Value::as_array_mut));
    let Some((kind, items)) = items else {
        objects.push(object(value, field, url)?);
        return Ok(());
    };
    for (index, mut item) in std::mem::take(items).into_iter().enumerate() {
        if let Some(item) = item.as_object_mut().filter(|item| !kind.is_empty() && !item.contains_key("kind"))
        {
            item.insert("kind".to_owned(), Value::from(kind));
            item.entry("apiVersion").or_insert_with(|| Value::from(api_version.as_str()));
        }
        expand(item, &format!("{field}.items[{index}]"), url, objects)?;
    }
    Ok(())
}

/// Whether a manifest contains the CustomResourceDefinition of a kind.
pub fn defines(manifest: &[Object], group: &str, kind: &str) -> bool {
    manifest.iter().any(|object| object.defines() == Some((group, kind)))
}

fn object(value: Value, field: &str, url: &str) -> Result<Object, SpecError> {
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let wrong = |name: &str, problem: &str| SpecError::of_field(url, &format!("{field}.{name}"), problem);
    let kind = text("/kind");
    if kind.is_empty() {
        return Err(wrong("kind", "it is missing, but every object needs a kind"));
    }
    let kind = ObjectKind::parse(&text("/apiVersion"), &kind)
        .ok_or_else(|| wrong("apiVersion", "it should be VERSION or GROUP/VERSION"))?;
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    match name.is_empty() {
        true => Err(wrong("metadata.name", "it is missing, but every object needs a name")),
        false => Ok(Object { value, kind, namespace, name }),
    }
}

/// Splits a text into its documents and drops empty ones. kOps splits only at lines that are exactly `---` (upstream:
/// `SplitContentToSections` in `util/pkg/text`). YAML allows spaces and a comment after `---`, so this function allows both, too.
pub(super) fn documents(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in text.lines() {
        match (is_separator(line), documents.last_mut()) {
            (false, Some(document)) => {
                document.push_str(line);
                document.push('\n');
            }
            _ => documents.push(String::new()),
        }
    }
    documents.retain(|document| has_content(document));
    documents
}

fn is_separator(line: &str) -> bool {
    line.strip_prefix("---").is_some_and(|after| {
        let comment = after.trim_start();
        comment.is_empty() || comment.starts_with('#') && comment.len() < after.len()
    })
}

fn has_content(document: &str) -> bool {
    document.lines().map(str::trim).any(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The hexadecimal SHA-256 of a text without surrounding white space. kOps uses it as the hash of a manifest.
pub(super) fn sha256_of_trimmed(text: &[u8]) -> String {
    sha256_hex(std::str::from_utf8(text).map_or(text, |text| text.trim().as_bytes()))
}
