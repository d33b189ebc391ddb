//! `config check --manifests`: checks the manifests of clusters and instance groups that operators keep in files.
//!
//! kOps completes a cluster when it writes the state store. The check completes it in each possible way, and decides the nodes of each group
//! as the check of a group in a store does. A problem counts only if it is about a value in the manifests, and if all possible completions
//! have it.

mod files;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::Result;
use kops_agent_node::decide;
use kops_agent_plan::resolve::{Problem, Problems, supported_kubernetes_version};
use kops_agent_plan::supposed::{self, Completed, Place, places};
use kops_agent_source::{SupposedKeyset, suppose};
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_spec::kops_release::{KopsRelease, WrittenBy};
use kops_agent_spec::manifests::{clear_at, has_action};
use kops_agent_spec::{Cluster, InstanceGroup, InstanceGroupRole, SpecError};
use serde_json::Value;

use super::add_error;
use crate::output::{Checked, Finding, Findings};
use files::{Contents, Source};

/// The kinds that are checked.
const CHECKED: [&str; 3] = ["Cluster", "InstanceGroup", "SSHCredential"];
/// Other kinds of kOps' API (`addKnownTypes` in pkg/apis/kops/v1alpha2/register.go).
const OTHERS: [&str; 7] =
    ["ClusterList", "Host", "HostList", "InstanceGroupList", "Keyset", "KeysetList", "SSHCredentialList"];
const REST: &str = "all other values of this document, because it cannot be read";
/// The label of an instance group that names its cluster.
const CLUSTER_LABEL: &str = "kops.k8s.io/cluster";

struct Manifest<T> {
    source: Source,
    read: T,
}

/// The manifests by kind.
#[derive(Default)]
struct Manifests {
    clusters: Vec<Manifest<Cluster>>,
    groups: Vec<Manifest<InstanceGroup>>,
    /// Whether a manifest of a cluster is missing, because its file is a template or has an error.
    may_lack_clusters: bool,
}

/// Checks the manifests of these files and folders for a version of kOps.
///
/// # Errors
/// The version is not supported, a path does not exist, or there are no manifests of clusters and instance groups.
pub(super) fn check(paths: &[PathBuf], kops: &str) -> Result<Findings> {
    let written_by = WrittenBy::of_store(Some(kops)).map_err(|_| {
        let supported: Vec<String> = KopsRelease::supported().map(|release| release.to_string()).collect();
        let problem = format!("--kops {kops}: is no supported version of kOps; use {}", supported.join(", "));
        Failure::new(Kind::WrongUsage, problem)
    })?;
    let contents = files::read(paths)?;
    let mut findings = Findings::default();
    if let Some(warning) = written_by.warning() {
        findings.warnings.push(Finding { field: "--kops".into(), problem: warning, ..Finding::default() });
    }
    let files = contents.files;
    let manifests = by_kind(contents, written_by.release, &mut findings);
    findings.checked = Some(Checked {
        kops: kops.to_owned(),
        files,
        clusters: manifests.clusters.len(),
        instance_groups: manifests.groups.len(),
    });
    let keyset = SupposedKeyset::new()?;
    let mut groups_of: Vec<Vec<&Manifest<InstanceGroup>>> =
        manifests.clusters.iter().map(|_| Vec::new()).collect();
    for group in &manifests.groups {
        if let Some(index) = cluster_of(group, &manifests, &mut findings) {
            groups_of[index].push(group);
        }
    }
    for (cluster, groups) in manifests.clusters.iter().zip(groups_of) {
        check_cluster(cluster, &groups, kops, written_by.release, &keyset, &mut findings)?;
    }
    for list in [&mut findings.errors, &mut findings.warnings, &mut findings.not_checked] {
        list.sort();
        list.dedup();
    }
    findings.warnings.retain(|warning| !findings.errors.contains(warning));
    Ok(findings)
}

/// Sorts documents by their kind, and checks each one by itself.
fn by_kind(contents: Contents, release: KopsRelease, findings: &mut Findings) -> Manifests {
    let mut manifests = Manifests { may_lack_clusters: contents.lacks_manifests, ..Manifests::default() };
    findings.errors.extend(contents.errors);
    findings.not_checked.extend(contents.not_checked);
    let mut seen: BTreeMap<[String; 3], String> = BTreeMap::new();
    let mut others = BTreeMap::new();
    let mut of_kops = 0;
    for source in contents.sources {
        let kind = source.text_at("kind").to_owned();
        let api = source.text_at("apiVersion");
        let is_of_kops = api.starts_with("kops.k8s.io/") || api.starts_with("kops/");
        if is_of_kops && !CHECKED.contains(&kind.as_str()) && !OTHERS.contains(&kind.as_str()) {
            of_kops += 1;
            let problem = match kind.as_str() {
                "" => "is missing".to_owned(),
                kind => format!("kOps has no kind {kind:?}"),
            };
            let problem = format!("{problem}; write Cluster, InstanceGroup or SSHCredential");
            findings.errors.push(source.finding("kind", problem));
            continue;
        }
        // Old manifests have no `apiVersion`.
        if !(is_of_kops || api.is_empty()) || !CHECKED.contains(&kind.as_str()) {
            let name = if kind.is_empty() { "without kind".to_owned() } else { kind };
            *others.entry(name).or_insert(0_usize) += 1;
            continue;
        }
        of_kops += 1;
        findings.warnings.extend(source.warnings.iter().cloned());
        let name = source.text_at("metadata.name").to_owned();
        let cluster = if kind == "Cluster" { "" } else { label_of(&source) };
        if !name.is_empty() && !has_action(&name) && !has_action(cluster) {
            match seen.get(&[kind.clone(), cluster.to_owned(), name.clone()]) {
                Some(first) => {
                    let problem = format!("the {kind} {name} is also in {first}; remove one of them");
                    findings.errors.push(source.finding("metadata.name", problem));
                    continue;
                }
                None => {
                    seen.insert([kind.clone(), cluster.to_owned(), name], source.place());
                }
            }
        }
        match kind.as_str() {
            "Cluster" => {
                warn(&source, Cluster::warnings_of(&source.value, &source.file, release), findings);
                match read(&source, Cluster::from_manifest, findings) {
                    Some(read) => manifests.clusters.push(Manifest { source, read }),
                    None => manifests.may_lack_clusters = true,
                }
            }
            "InstanceGroup" => {
                warn(&source, InstanceGroup::warnings_of(&source.value, &source.file), findings);
                if let Some(read) = read(&source, InstanceGroup::from_manifest, findings) {
                    manifests.groups.push(Manifest { source, read });
                }
            }
            _ => {
                let key = source.value_at("spec.publicKey");
                if key.is_some_and(|key| !key.is_string()) {
                    findings.errors.push(
                        source.finding("spec.publicKey", "must be a string: the public key in one line"),
                    );
                }
            }
        }
    }
    if !others.is_empty() {
        let counts: Vec<String> = others.iter().map(|(kind, count)| format!("{kind} ({count})")).collect();
        let problem = format!(
            "documents that are no Cluster, InstanceGroup or SSHCredential of kOps: {}",
            counts.join(", ")
        );
        findings.not_checked.push(Finding { problem, ..Finding::default() });
    }
    if of_kops == 0 && !manifests.may_lack_clusters {
        let problem = "no file has a Cluster, an InstanceGroup or an SSHCredential of kOps, so nothing is checked; correct --manifests";
        findings.errors.push(Finding { problem: problem.to_owned(), ..Finding::default() });
    }
    manifests
}

fn label_of(source: &Source) -> &str {
    let labels = source.value_at("metadata.labels");
    labels.and_then(|labels| labels.get(CLUSTER_LABEL)).and_then(Value::as_str).unwrap_or_default()
}

fn warn(
    source: &Source,
    warnings: Result<Vec<kops_agent_spec::FieldWarning>, SpecError>,
    findings: &mut Findings,
) {
    // An error is ignored here, because `read` reports it for the same document.
    let warnings = warnings.unwrap_or_default();
    findings
        .warnings
        .extend(warnings.into_iter().map(|warning| source.finding(warning.field, warning.problem)));
}

/// Reads a document. A field whose value comes from a template is left out if the value has an error. Returns `None` if
/// another field has an error, or if the document cannot be read without the left-out field.
fn read<T>(
    source: &Source,
    read: impl Fn(Value, &str) -> Result<T, SpecError>,
    findings: &mut Findings,
) -> Option<T> {
    let mut document = source.value.clone();
    loop {
        let error = match read(document.clone(), &source.file) {
            Ok(read) => return Some(read),
            Err(error) => error,
        };
        if has_action(source.text_at(&error.field)) {
            findings.not_checked.push(templated(source, &error.field));
            if clear_at(&mut document, &error.field) {
                continue;
            }
        } else {
            findings.errors.push(source.of_error(error));
        }
        findings.not_checked.push(source.finding("", REST));
        return None;
    }
}

fn templated(source: &Source, field: &str) -> Finding {
    source.finding(field, "its value comes from a template")
}

/// The index of a group's cluster. If the group does not name its cluster, the only cluster of the manifests is used.
/// `None` if the manifests do not contain the cluster, or if it is ambiguous.
fn cluster_of(
    group: &Manifest<InstanceGroup>,
    manifests: &Manifests,
    findings: &mut Findings,
) -> Option<usize> {
    let source = &group.source;
    let name = label_of(source);
    let field = format!("metadata.labels.{CLUSTER_LABEL}");
    let of_cluster = |problem: &str| source.finding(&field, problem);
    const ALONE: &str = "only the names and types of this group's fields are checked, because";
    let names: Vec<&str> =
        manifests.clusters.iter().map(|cluster| cluster.read.metadata.name.as_str()).collect();
    if let Some(index) = names.iter().position(|known| *known == name && !has_action(name)) {
        return Some(index);
    }
    let is_template = has_action(name) || names.iter().any(|known| has_action(known));
    match (name, names.as_slice()) {
        ("", [only]) => {
            let problem = format!(
                "is not set, so this check uses the cluster {only}; kOps needs the label to create the group"
            );
            findings.warnings.push(of_cluster(&problem));
            return Some(0);
        }
        ("", []) => findings.not_checked.push(of_cluster(&format!("{ALONE} the manifests have no Cluster"))),
        ("", _) => findings.not_checked.push(of_cluster(&format!(
            "{ALONE} it has no label {CLUSTER_LABEL}, and the manifests have several clusters: {}",
            names.join(", ")
        ))),
        (_, [_]) if is_template => return Some(0),
        _ if is_template => {
            findings.not_checked.push(of_cluster(&format!("{ALONE} a template gives the name of a cluster")))
        }
        (_, [_, ..]) if !manifests.may_lack_clusters => findings.errors.push(of_cluster(&format!(
            "names the cluster {name}, which is not among the manifests; they have {}",
            names.join(", ")
        ))),
        _ => findings
            .not_checked
            .push(of_cluster(&format!("{ALONE} its cluster {name} is not among the checked manifests"))),
    }
    None
}

/// Checks a cluster and its groups.
fn check_cluster(
    cluster: &Manifest<Cluster>,
    groups: &[&Manifest<InstanceGroup>],
    kops: &str,
    release: KopsRelease,
    keyset: &SupposedKeyset,
    findings: &mut Findings,
) -> Result<()> {
    let source = &cluster.source;
    if cluster.read.cloud_provider().is_none() {
        let name = &cluster.read.metadata.name;
        let problem = |of: &str, cluster: &str| {
            format!(
                "only the names and types of this {of}'s fields are checked, because {cluster} names no known cloud"
            )
        };
        findings.not_checked.push(source.finding("spec.cloudProvider", problem("cluster", "it")));
        let of_groups = groups.iter().map(|group| {
            let field = format!("metadata.labels.{CLUSTER_LABEL}");
            group.source.finding(field, problem("group", &format!("its cluster {name}")))
        });
        findings.not_checked.extend(of_groups);
        return Ok(());
    }
    let written = with_possible_version(cluster, release, findings);
    let Completed { clusters, mut fields } = supposed::completed(&written, release);
    fields.retain(|field| source.value_at(field).is_none());
    if !fields.is_empty() {
        let problem = format!(
            "checks that need the values of these fields, because kOps completes them: {}",
            fields.join(", ")
        );
        findings.not_checked.push(source.finding("spec", problem));
    }
    let roles: BTreeSet<InstanceGroupRole> = groups.iter().map(|group| group.read.spec.role).collect();
    let missing = [InstanceGroupRole::ControlPlane, InstanceGroupRole::Node]
        .into_iter()
        .filter(|role| !roles.contains(role));
    let supposed_groups: Vec<InstanceGroup> = missing.map(group_of_role).collect();
    let of_manifests = groups.iter().map(|group| (&group.read, Some(&group.source)));
    let mut decided: Vec<(InstanceGroup, Problems)> = Vec::new();
    for (group, of_group) in of_manifests.chain(supposed_groups.iter().map(|group| (group, None))) {
        let decisive = supposed::decisive(group);
        let problems = match decided.iter().find(|(known, _)| *known == decisive) {
            Some((_, problems)) => problems.clone(),
            None => {
                // The newest version comes first, because `common` uses the words of the first result.
                let told = clusters.iter().rev().map(|completed| {
                    match suppose(completed, group, &roles, kops, keyset) {
                        Ok(spec) => of_spec(decide::check_on_any_machine(spec)),
                        Err(problems) => Ok(problems),
                    }
                });
                let problems = supposed::common(told)?;
                decided.push((decisive, problems.clone()));
                problems
            }
        };
        let place = |problem: &Problem| placed(problem, &written, source, group, of_group);
        for (found, list) in [
            (problems.iter().filter_map(place).collect::<Vec<_>>(), &mut findings.errors),
            (problems.warnings().iter().filter_map(place).collect(), &mut findings.warnings),
        ] {
            for finding in found {
                match finding {
                    Placed::There(finding) => list.push(finding),
                    Placed::Templated(finding) => findings.not_checked.push(finding),
                }
            }
        }
    }
    Ok(())
}

/// The cluster without its Kubernetes version, if a template gives the version or the kOps release refuses it. Then
/// each possible version is checked.
fn with_possible_version(
    Manifest { source, read }: &Manifest<Cluster>,
    release: KopsRelease,
    findings: &mut Findings,
) -> Cluster {
    const FIELD: &str = "spec.kubernetesVersion";
    let mut cluster = read.clone();
    let version = &mut cluster.spec.kubernetes_version;
    if has_action(version) {
        findings.not_checked.push(templated(source, FIELD));
        version.clear();
    } else if !version.is_empty()
        && let Err(problem) = supported_kubernetes_version(version, release)
    {
        findings.errors.push(source.finding(FIELD, problem));
        version.clear();
    }
    cluster
}

/// A group that is checked with the cluster's settings for a role, if the manifests have no group of that role.
fn group_of_role(role: InstanceGroupRole) -> InstanceGroup {
    let mut group = InstanceGroup::default();
    group.metadata.name = "supposed".to_owned();
    group.spec.role = role;
    group
}

/// The problems of a decision. A configuration error is a problem; any other error is returned.
fn of_spec(decided: Result<Problems>) -> Result<Problems> {
    decided.or_else(|error| {
        let mut findings = Findings::default();
        add_error(error, &mut findings)?;
        let mut problems = Problems::default();
        findings.errors.into_iter().for_each(|Finding { field, problem, .. }| problems.add(field, problem));
        Ok(problems)
    })
}

enum Placed {
    There(Finding),
    Templated(Finding),
}

/// The finding for a wrong value in the manifests. `None` if kOps completed the value, so that the manifests do not
/// have it.
fn placed(
    told: &Problem,
    cluster: &Cluster,
    of_cluster: &Source,
    group: &InstanceGroup,
    of_group: Option<&Source>,
) -> Option<Placed> {
    let Problem { field, problem } = told;
    // A problem without a field means that two resources of the node contradict each other.
    if field.is_empty() {
        return Some(Placed::There(of_group?.finding("spec", problem)));
    }
    let there = places(told, cluster, group).into_iter().find_map(|place| {
        let (source, field) = match place {
            Place::Cluster(field) => (of_cluster, field),
            Place::Group(field) => (of_group?, field),
        };
        source.value_at(&field).is_some().then_some((source, field))
    });
    let (source, field) = there?;
    Some(match source.is_template(&field) {
        true => Placed::Templated(templated(source, &field)),
        false => Placed::There(source.finding(field, problem)),
    })
}
