//! Decides the nodes of each cluster and its groups, and finds the fields of the manifests that have caused the nodes' problems.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use kops_agent_node::decide;
use kops_agent_plan::resolve::{Problem, supported_kubernetes_version};
use kops_agent_plan::supposed::{self, Completed, Place, Places};
use kops_agent_source::{SupposedKeyset, suppose};
use kops_agent_spec::kops_release::KopsRelease;
use kops_agent_spec::manifests::{has_action, has_action_within};
use kops_agent_spec::{Cluster, InstanceGroup, InstanceGroupRole};

use super::files::Source;
use super::told::{Severity, Told};
use super::{CLUSTER_LABEL, Manifest, TEMPLATED, TEMPLATED_KEY, shown};
use crate::output::Finding;

/// The most groups whose nodes are decided. Groups of a cluster with the same settings count as one group.
const MOST_DECIDED: usize = 500;

/// Decides the nodes that a version of kOps configures.
pub(super) struct Nodes<'a> {
    kops: &'a str,
    release: KopsRelease,
    keyset: SupposedKeyset,
    /// How many more groups can be decided.
    left: usize,
    /// The number of groups that are not decided because there are too many.
    undecided: usize,
}

impl Nodes<'_> {
    pub(super) fn new(kops: &str, release: KopsRelease) -> Result<Nodes<'_>> {
        Ok(Nodes { kops, release, keyset: SupposedKeyset::new()?, left: MOST_DECIDED, undecided: 0 })
    }

    /// Checks a cluster and its groups.
    pub(super) fn check(
        &mut self,
        cluster: &Manifest<Cluster>,
        groups: &[&Manifest<InstanceGroup>],
        told: &mut Told,
    ) -> Result<()> {
        let source = &cluster.source;
        if cluster.read.cloud_provider().is_none() {
            tell_unknown_cloud(cluster, groups, told);
            return Ok(());
        }
        let written = with_possible_version(cluster, self.release, told);
        let Completed { clusters, mut fields } = supposed::completed(&written, self.release);
        fields.retain(|field| source.value_at(field).is_none());
        if !fields.is_empty() {
            let problem = format!(
                "checks that need the values of these fields, because kOps completes them: {}",
                fields.join(", ")
            );
            told.not_checked(source, "spec", problem);
        }
        let roles: BTreeSet<InstanceGroupRole> = groups.iter().map(|group| group.read.spec.role).collect();
        let missing = [InstanceGroupRole::ControlPlane, InstanceGroupRole::Node]
            .into_iter()
            .filter(|role| !roles.contains(role));
        let supposed_groups: Vec<InstanceGroup> = missing.map(group_of_role).collect();
        let of_manifests = groups.iter().map(|group| (&group.read, Some(&group.source)));
        let of_cluster = Fields::of(source);
        // The decided groups, each with the problems in the manifests of such groups.
        let mut decided: Vec<(InstanceGroup, Vec<(Severity, Problem)>)> = Vec::new();
        for (group, source) in of_manifests.chain(supposed_groups.iter().map(|group| (group, None))) {
            let decisive = supposed::decisive(group);
            let of_group = source.map(Fields::of);
            let is_there = |place: &Place| match place {
                Place::Cluster(field) => of_cluster.has(field),
                Place::Group(field) => of_group.as_ref().is_some_and(|fields| fields.has(field)),
            };
            let places = Places::new(&written, group, &is_there);
            let place_of = |problem: &Problem| {
                // Two resources of the node contradict each other.
                if problem.field.is_empty() {
                    return Some((of_group.as_ref()?, "spec".to_owned()));
                }
                match places.of(problem)? {
                    Place::Cluster(field) => Some((&of_cluster, field)),
                    Place::Group(field) => Some((of_group.as_ref()?, field)),
                }
            };
            // The problems in the cluster's manifest were told with the first of these groups.
            if let Some((_, in_group)) = decided.iter().find(|(known, _)| *known == decisive) {
                for (severity, problem) in in_group {
                    if let Some((fields, field)) = place_of(problem) {
                        fields.tell(*severity, &field, problem, told);
                    }
                }
                continue;
            }
            if self.left == 0 {
                self.undecided += 1;
                continue;
            }
            self.left -= 1;
            // The newest versions are first.
            let decisions = clusters.iter().rev().map(|completed| {
                match suppose(completed, group, &roles, self.kops, &self.keyset) {
                    Ok(spec) => decide::check_on_any_machine(spec),
                    Err(problems) => Ok(problems),
                }
            });
            let problems = supposed::common(decisions)?;
            let errors = problems.iter().map(|problem| (Severity::Error, problem));
            let warnings = problems.warnings().iter().map(|problem| (Severity::Warning, problem));
            let mut in_group = Vec::new();
            for (severity, problem) in errors.chain(warnings) {
                let Some((fields, field)) = place_of(problem) else { continue };
                fields.tell(severity, &field, problem, told);
                if !std::ptr::eq(fields, &of_cluster) {
                    in_group.push((severity, problem.clone()));
                }
            }
            decided.push((decisive, in_group));
        }
        Ok(())
    }

    /// The finding about groups that are not decided because there are too many.
    pub(super) fn undecided(&self) -> Option<Finding> {
        let problem = format!(
            "the nodes of {} more groups, because this check decides the nodes of 500 different groups at most (a role without a group \
             counts as a group); check fewer folders at once",
            self.undecided
        );
        (self.undecided > 0).then(|| Finding { problem, ..Finding::default() })
    }
}

/// The fields of a manifest. Each of many groups may have thousands of problems in its cluster's fields, so each field is looked up once.
struct Fields<'a> {
    source: &'a Source,
    /// Whether a template decides the field, by a key or a value. `None` if the manifest does not have the field.
    is_template: RefCell<BTreeMap<String, Option<bool>>>,
}

impl Fields<'_> {
    fn of(source: &Source) -> Fields<'_> {
        Fields { source, is_template: RefCell::default() }
    }

    fn is_template(&self, field: &str) -> Option<bool> {
        let mut known = self.is_template.borrow_mut();
        if let Some(known) = known.get(field) {
            return *known;
        }
        let is_template =
            self.source.value_at(field).map(|value| has_action(field) || has_action_within(value));
        known.insert(field.to_owned(), is_template);
        is_template
    }

    fn has(&self, field: &str) -> bool {
        self.is_template(field).is_some()
    }

    fn tell(&self, severity: Severity, field: &str, problem: &Problem, told: &mut Told) {
        match self.is_template(field) {
            Some(true) if has_action(field) => told.not_checked(self.source, field, TEMPLATED_KEY),
            Some(true) => told.not_checked(self.source, field, TEMPLATED),
            _ => told.about(severity, self.source, field, problem.problem.as_str()),
        }
    }
}

fn tell_unknown_cloud(cluster: &Manifest<Cluster>, groups: &[&Manifest<InstanceGroup>], told: &mut Told) {
    let problem = |of: &str, cluster: &str| {
        format!(
            "only the names and types of this {of}'s fields are checked, because {cluster} names no known cloud"
        )
    };
    told.not_checked(&cluster.source, "spec.cloudProvider", problem("cluster", "it"));
    let name = shown(&cluster.read.metadata.name);
    let field = format!("metadata.labels.{CLUSTER_LABEL}");
    for group in groups {
        told.not_checked(&group.source, &field, problem("group", &format!("its cluster {name}")));
    }
}

/// The cluster without its Kubernetes version, if a template gives the version or the kOps release refuses it. Then
/// each possible version is checked.
fn with_possible_version(
    Manifest { source, read }: &Manifest<Cluster>,
    release: KopsRelease,
    told: &mut Told,
) -> Cluster {
    const FIELD: &str = "spec.kubernetesVersion";
    let mut cluster = read.clone();
    let version = &mut cluster.spec.kubernetes_version;
    if has_action(version) {
        told.not_checked(source, FIELD, TEMPLATED);
        version.clear();
    } else if !version.is_empty()
        && let Err(problem) = supported_kubernetes_version(version, release)
    {
        told.error(source, FIELD, problem);
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

#[cfg(test)]
mod tests {
    use super::super::{by_kind, files};
    use super::*;
    use crate::output::{Checked, Findings};

    const CLUSTER: &str =
        "{kind: Cluster, metadata: {name: c}, spec: {cloudProvider: aws, kubernetesVersion: 1.34.2}}\n";

    /// Checks a cluster in the first line, and groups with these settings in lines 3, 5, and so on. Decides `most` groups at most.
    fn checked(settings: &[&str], most: usize) -> (Findings, Option<String>) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.yaml");
        let groups = settings.iter().enumerate().map(|(index, settings)| {
            format!(
                "---\n{{kind: InstanceGroup, metadata: {{name: g{index}}}, spec: {{role: Node, {settings}}}}}\n"
            )
        });
        std::fs::write(&file, format!("{CLUSTER}{}", groups.collect::<String>())).unwrap();
        let mut told = Told::default();
        let contents = files::read(&[file], &mut told).unwrap();
        let manifests = by_kind(contents, KopsRelease::NEWEST, &mut told);
        let mut nodes = Nodes { left: most, ..Nodes::new("1.37", KopsRelease::NEWEST).unwrap() };
        let groups: Vec<&Manifest<InstanceGroup>> = manifests.groups.iter().collect();
        nodes.check(&manifests.clusters[0], &groups, &mut told).unwrap();
        (told.findings(Checked::default()), nodes.undecided().map(|finding| finding.problem))
    }

    fn lines(findings: &Findings) -> Vec<usize> {
        findings.errors.iter().filter_map(|finding| finding.line).collect()
    }

    #[test]
    fn few_different_groups_are_decided() {
        let settings = ["-5", "-6", "-5", "-7", "-7"].map(|pods| format!("kubelet: {{maxPods: {pods}}}"));
        let settings = settings.each_ref().map(String::as_str);
        let (findings, undecided) = checked(&settings, 2);
        // The first two groups, and the one with the settings of the first.
        assert_eq!(lines(&findings), [3, 5, 7]);
        // The last two groups, and the control plane that the cluster will have.
        let undecided = undecided.unwrap();
        assert!(undecided.starts_with("the nodes of 3 more groups, because "), "{undecided}");
        assert!(undecided.contains(&format!(" {MOST_DECIDED} different groups at most")), "{undecided}");
        let (findings, undecided) = checked(&settings, 4);
        assert_eq!((lines(&findings), undecided), (vec![3, 5, 7, 9, 11], None));
    }

    #[test]
    fn groups_with_the_same_settings_have_their_problems_in_their_own_manifests() {
        let (findings, _) = checked(&["taints: [a=b:No], maxSize: 1", "taints: [a=b:No], minSize: 1"], 2);
        assert_eq!(lines(&findings), [3, 5]);
        assert!(findings.errors.iter().all(|error| error.field == "spec.taints[0]"), "{findings:?}");
    }
}
