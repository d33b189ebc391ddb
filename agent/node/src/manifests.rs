//! `config check --manifests`: checks the manifests of clusters and instance groups that operators keep in files.
//!
//! kOps completes a cluster when it writes the state store. The check completes the cluster in each possible way, and decides the nodes
//! of each group as the check of a group in a store does. A problem counts only if it is about a value in the manifests, and if every
//! possible completion has this problem.

mod bytes;
mod files;
mod kinds;
mod nodes;
mod paths;
mod told;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_spec::kops_release::{KopsRelease, WrittenBy};
use kops_agent_spec::manifests::{clear_at, has_action};
use kops_agent_spec::terminal::shortened;
use kops_agent_spec::{Cluster, FieldWarning, InstanceGroup, SpecError};
use serde_json::Value;

use crate::findings::{Checked, Finding, Findings};
use files::{Contents, Source};
use kinds::Class;
use nodes::Nodes;
use told::{Severity, Told};

/// Maximum number of template values that are removed from a document, because they do not fit their fields. After each removal, the
/// document is read again.
const MOST_CLEARED: usize = 20;
/// Maximum number of names in a message.
const MOST_NAMES: usize = 10;
/// Maximum length of a name in a message, in characters. Kubernetes refuses longer names.
const LONGEST_NAME: usize = 253;
const TOO_LARGE: &str =
    "has more than 10,000 keys and values, unlike any manifest of kOps, so it is not checked";
const REST: &str = "all other values of this document, because it cannot be read";
const TEMPLATED: &str = "its value comes from a template";
const TEMPLATED_KEY: &str = "its key comes from a template, so this check does not know which field it is, or whether it occurs twice";
const MAY_BE_TEMPLATED_KEY: &str = "it is missing, unless a key from a template is this field";
/// The label of an instance group that names its cluster.
const CLUSTER_LABEL: &str = "kops.k8s.io/cluster";

struct Manifest<T> {
    source: Source,
    read: T,
}

#[derive(Default)]
struct Manifests {
    clusters: Vec<Manifest<Cluster>>,
    groups: Vec<Manifest<InstanceGroup>>,
    /// Whether the manifests may lack a cluster, because a template or an error kept a manifest from being read.
    may_lack_clusters: bool,
}

/// Checks the manifests of these files and folders for a version of kOps. Fails if there are no manifests of clusters and instance groups.
pub fn check(paths: &[PathBuf], kops: &str) -> Result<Findings> {
    let written_by = WrittenBy::of_store(Some(kops)).map_err(|_| {
        let supported: Vec<String> = KopsRelease::supported().map(|release| release.to_string()).collect();
        let problem =
            format!("--kops {kops}: this version of kOps is not supported; use {}", supported.join(", "));
        Failure::new(Kind::WrongUsage, problem)
    })?;
    let mut told = Told::default();
    let contents = files::read(paths, &mut told)?;
    if let Some(warning) = written_by.warning() {
        told.add(
            Severity::Warning,
            Finding { field: "--kops".into(), problem: warning, ..Finding::default() },
        );
    }
    let files = contents.files;
    let manifests = by_kind(contents, written_by.release, &mut told);
    let clusters = Clusters::new(&manifests);
    let mut groups_of: Vec<Vec<&Manifest<InstanceGroup>>> =
        manifests.clusters.iter().map(|_| Vec::new()).collect();
    for group in &manifests.groups {
        if let Some(index) = clusters.index_of(group, &mut told) {
            groups_of[index].push(group);
        }
    }
    let mut nodes = Nodes::new(kops, written_by.release)?;
    for (cluster, groups) in manifests.clusters.iter().zip(groups_of) {
        nodes.check(cluster, &groups, &mut told)?;
    }
    if let Some((severity, finding)) = nodes.undecided() {
        told.add(severity, finding);
    }
    Ok(told.findings(Checked {
        kops: kops.to_owned(),
        files,
        clusters: manifests.clusters.len(),
        instance_groups: manifests.groups.len(),
    }))
}

/// Sorts documents by their kind, and checks each document alone.
fn by_kind(contents: Contents, release: KopsRelease, told: &mut Told) -> Manifests {
    let mut manifests = Manifests { may_lack_clusters: contents.lacks_manifests, ..Manifests::default() };
    let mut seen: BTreeMap<[String; 3], String> = BTreeMap::new();
    let has_manifests = !contents.sources.is_empty();
    for source in contents.sources {
        let kind = source.text_at("kind").to_owned();
        if source.class == Class::Unknown {
            let problem = match kind.as_str() {
                "" => "is missing".to_owned(),
                kind => format!("kOps has no kind {:?}", shown(kind)),
            };
            told.error(&source, "kind", format!("{problem}; write Cluster, InstanceGroup or SSHCredential"));
            continue;
        }
        if source.is_too_large {
            manifests.may_lack_clusters |= kind == "Cluster";
            told.error(&source, "", TOO_LARGE);
            continue;
        }
        source.warn_of_text(told);
        let name = source.text_at("metadata.name").to_owned();
        let cluster = if kind == "Cluster" { "" } else { label_of(&source) };
        if !name.is_empty() && !has_action(&name) && !has_action(cluster) {
            match seen.get(&[kind.clone(), cluster.to_owned(), name.clone()]) {
                Some(first) => {
                    let problem =
                        format!("the {kind} {} is also in {first}; remove one of them", shown(&name));
                    told.error(&source, "metadata.name", problem);
                    continue;
                }
                None => {
                    seen.insert([kind.clone(), cluster.to_owned(), name], source.place());
                }
            }
        }
        match kind.as_str() {
            "Cluster" => {
                warn(&source, Cluster::warnings_of(&source.value, &source.file, release), told);
                match read(&source, Cluster::from_manifest, told) {
                    Some(read) => manifests.clusters.push(Manifest { source, read }),
                    None => manifests.may_lack_clusters = true,
                }
            }
            "InstanceGroup" => {
                warn(&source, InstanceGroup::warnings_of(&source.value, &source.file), told);
                if let Some(read) = read(&source, InstanceGroup::from_manifest, told) {
                    manifests.groups.push(Manifest { source, read });
                }
            }
            _ => {
                let key = source.value_at("spec.publicKey");
                if key.is_some_and(|key| !key.is_string()) {
                    told.error(&source, "spec.publicKey", "must be a string: the public key in one line");
                }
            }
        }
    }
    if let Some(finding) = contents.others.finding() {
        told.add(Severity::NotChecked, finding);
    }
    if !has_manifests && !manifests.may_lack_clusters {
        let problem = "no file has a Cluster, an InstanceGroup or an SSHCredential of kOps, so nothing is checked; correct --manifests";
        told.add(Severity::Error, Finding { problem: problem.to_owned(), ..Finding::default() });
    }
    manifests
}

fn shown(name: &str) -> String {
    shortened(name, LONGEST_NAME)
}

/// The value of the label that names the group's cluster. If the label is missing, returns the key of a label whose key contains a template
/// action, because the rendered key may be the missing one.
fn label_of(source: &Source) -> &str {
    let Some(Value::Object(labels)) = source.value_at("metadata.labels") else { return "" };
    match labels.get(CLUSTER_LABEL) {
        Some(name) => name.as_str().unwrap_or_default(),
        None => labels.keys().find(|key| has_action(key)).map_or("", String::as_str),
    }
}

fn warn(source: &Source, warnings: Result<Vec<FieldWarning>, SpecError>, told: &mut Told) {
    // Errors are ignored here, because reading the document reports them.
    for FieldWarning { field, problem } in warnings.unwrap_or_default() {
        match has_action(&field) {
            true => told.not_checked(source, &field, TEMPLATED_KEY),
            false => told.warning(source, &field, problem),
        }
    }
}

/// Reads a document. A value from a template counts as missing if it does not fit its field. `None` if the document has an error, requires
/// a value that counts as missing, or has too many of these values.
fn read<T>(
    source: &Source,
    read: impl Fn(Value, &str) -> Result<T, SpecError>,
    told: &mut Told,
) -> Option<T> {
    let mut document = Cow::Borrowed(&source.value);
    for cleared in 0..=MOST_CLEARED {
        let error = match read(document.clone().into_owned(), &source.file) {
            Ok(read) => return Some(read),
            Err(error) => error,
        };
        if may_be_templated_key(source, &error.field) {
            told.not_checked(source, &error.field, MAY_BE_TEMPLATED_KEY);
            break;
        }
        if !has_action(source.text_at(&error.field)) {
            told.spec_error(source, error);
            break;
        }
        told.not_checked(source, &error.field, TEMPLATED);
        if cleared == MOST_CLEARED || !clear_at(document.to_mut(), &error.field) {
            break;
        }
    }
    told.not_checked(source, "", REST);
    None
}

/// Whether a template may supply a missing field. This is possible if the mapping that lacks the field has a key from a template.
fn may_be_templated_key(source: &Source, field: &str) -> bool {
    let mapping = field.rsplit_once('.').and_then(|(mapping, _)| source.value_at(mapping)?.as_object());
    source.value_at(field).is_none() && mapping.is_some_and(|fields| fields.keys().any(|key| has_action(key)))
}

struct Clusters<'a> {
    names: Vec<&'a str>,
    /// The index of the first cluster with each name. Names from a template are left out.
    by_name: BTreeMap<&'a str, usize>,
    has_template: bool,
    may_lack_clusters: bool,
}

impl<'a> Clusters<'a> {
    fn new(manifests: &'a Manifests) -> Clusters<'a> {
        let names: Vec<&str> =
            manifests.clusters.iter().map(|cluster| cluster.read.metadata.name.as_str()).collect();
        let mut by_name = BTreeMap::new();
        for (index, name) in names.iter().enumerate().filter(|(_, name)| !has_action(name)) {
            by_name.entry(*name).or_insert(index);
        }
        let has_template = names.iter().any(|name| has_action(name));
        Clusters { names, by_name, has_template, may_lack_clusters: manifests.may_lack_clusters }
    }

    /// The index of a group's cluster. `None` if the manifests lack this cluster, or do not show to which cluster the group belongs.
    fn index_of(&self, group: &Manifest<InstanceGroup>, told: &mut Told) -> Option<usize> {
        const ALONE: &str = "only the names and types of this group's fields are checked, because";
        let source = &group.source;
        let name = label_of(source);
        let field = format!("metadata.labels.{CLUSTER_LABEL}");
        if let Some(index) = self.by_name.get(name) {
            return Some(*index);
        }
        let is_template = has_action(name) || self.has_template;
        match (name, self.names.as_slice()) {
            ("", [only]) => {
                told.warning(
                    source,
                    &field,
                    format!(
                        "is not set, so this check uses the cluster {}; kOps needs the label to create the group",
                        shown(only)
                    ),
                );
                return Some(0);
            }
            ("", []) => told.not_checked(source, &field, format!("{ALONE} the manifests have no Cluster")),
            ("", _) => told.not_checked(
                source,
                &field,
                format!(
                    "{ALONE} it has no label {CLUSTER_LABEL}, and the manifests have several clusters: {}",
                    self.some_names()
                ),
            ),
            (_, [_]) if is_template => return Some(0),
            _ if is_template => {
                told.not_checked(
                    source,
                    &field,
                    format!("{ALONE} a template sets this label or the name of a cluster"),
                );
            }
            (_, [_, ..]) if !self.may_lack_clusters => told.error(
                source,
                &field,
                format!(
                    "names the cluster {}, which is not among the manifests; they have {}",
                    shown(name),
                    self.some_names()
                ),
            ),
            _ => told.not_checked(
                source,
                &field,
                format!("{ALONE} its cluster {} is not among the checked manifests", shown(name)),
            ),
        }
        None
    }

    fn some_names(&self) -> String {
        let some: Vec<String> = self.names.iter().take(MOST_NAMES).map(|name| shown(name)).collect();
        match self.names.len() - some.len() {
            0 => some.join(", "),
            others => format!("{}, and {others} more", some.join(", ")),
        }
    }
}
