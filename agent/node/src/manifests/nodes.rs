//! Decides the nodes of each cluster and its groups, and finds the fields of the manifests that have caused the nodes' problems.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use kops_agent_plan::resolve::{Problem, Problems, supported_kubernetes_version};
use kops_agent_plan::supposed::{self, Completed, Place, Places};
use kops_agent_source::{SupposedKeyset, suppose};
use kops_agent_spec::kops_release::KopsRelease;
use kops_agent_spec::manifests::{has_action, has_action_within};
use kops_agent_spec::{Cluster, InstanceGroup, InstanceGroupRole};

use super::files::Source;
use super::told::{Severity, Told};
use super::{CLUSTER_LABEL, Manifest, TEMPLATED, TEMPLATED_KEY, shown};
use crate::decide;
use crate::findings::Finding;

/// Maximum number of groups whose nodes are checked. If groups of one cluster have the same settings, they count as one group.
const MOST_DECIDED: usize = 500;
/// Maximum number of possible machines that are checked in all groups. A machine counts once for each possible version of its cluster.
const MOST_MACHINES: usize = 60_000;
/// A machine with large manifests counts as several machines: one more for every 2,048 bytes of its Cluster and InstanceGroup as JSON.
const PART: usize = 2_048;
/// The number of certificate authorities of an etcd cluster. Each authority makes a control-plane machine count as one more machine.
const AUTHORITIES_OF_ETCD: usize = 3;

/// Checks the nodes that a version of kOps configures.
pub(super) struct Nodes<'a> {
    kops: &'a str,
    release: KopsRelease,
    keyset: SupposedKeyset,
    /// How many more groups can be checked.
    left: usize,
    /// How many more machines can be checked.
    machines_left: usize,
    /// The number of groups that are not checked because there are too many groups or machines.
    undecided: usize,
    has_too_many_machines: bool,
}

impl Nodes<'_> {
    pub(super) fn new(kops: &str, release: KopsRelease) -> Result<Nodes<'_>> {
        Ok(Nodes {
            kops,
            release,
            keyset: SupposedKeyset::new()?,
            left: MOST_DECIDED,
            machines_left: MOST_MACHINES,
            undecided: 0,
            has_too_many_machines: false,
        })
    }

    pub(super) fn check(
        &mut self,
        cluster: &Manifest<Cluster>,
        groups: &[&Manifest<InstanceGroup>],
        told: &mut Told,
    ) -> Result<()> {
        let source = &cluster.source;
        let Some(cloud) = cluster.read.cloud_provider() else {
            tell_unknown_cloud(cluster, groups, told);
            return Ok(());
        };
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
        let of_cluster = Fields::new(source);
        let size_of_cluster = source.size();
        // The checked groups, each with the problems in its own manifest. A later group with equal settings gets the same problems.
        let mut decided: Vec<(InstanceGroup, Vec<(Severity, Problem)>)> = Vec::new();
        for (group, source) in of_manifests.chain(supposed_groups.iter().map(|group| (group, None))) {
            let decisive = supposed::decisive(group);
            let of_group = source.map(Fields::new);
            let is_there = |place: &Place| match place {
                Place::Cluster(field) => of_cluster.has(field),
                Place::Group(field) => of_group.as_ref().is_some_and(|fields| fields.has(field)),
            };
            let places = Places::new(&written, group, &is_there);
            let place_of = |problem: &Problem| {
                // A problem without a field means that two resources of the node contradict each other.
                if problem.field.is_empty() {
                    return Some((of_group.as_ref()?, "spec".to_owned()));
                }
                match places.find(problem)? {
                    Place::Cluster(field) => Some((&of_cluster, field)),
                    Place::Group(field) => Some((of_group.as_ref()?, field)),
                }
            };
            // Groups with equal settings have the same problems in the cluster's manifest. These problems are reported only once, with the
            // first group.
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
            let authorities = match group.spec.role {
                InstanceGroupRole::ControlPlane => AUTHORITIES_OF_ETCD * written.spec.etcd_clusters.len(),
                _ => 0,
            };
            let parts = (size_of_cluster + source.map_or(0, Source::size)) / PART + authorities;
            let machines = supposed::machines(cloud, self.release, &group.spec).len() * (1 + parts);
            // Checks the newest Kubernetes version first.
            let decisions = clusters.iter().rev().map(|completed| {
                let Some(left) = self.machines_left.checked_sub(machines) else {
                    self.has_too_many_machines = true;
                    return Ok(Problems::default());
                };
                self.machines_left = left;
                match suppose(completed, group, &roles, self.kops, &self.keyset) {
                    Ok(spec) => decide::check_on_any_machine(spec),
                    Err(problems) => Ok(problems),
                }
            });
            let problems = supposed::common(decisions)?;
            if self.has_too_many_machines {
                // Skips all later groups.
                self.left = 0;
                self.undecided += 1;
                continue;
            }
            let errors = problems.iter().map(|problem| (Severity::Error, problem));
            let warnings = problems.warnings().iter().map(|problem| (Severity::Warning, problem));
            let mut found: Vec<(Severity, &Problem)> = errors.chain(warnings).collect();
            // Findings without a field come first, because only the first findings about a document are listed. A finding without a field
            // may say that there are more problems.
            found.sort_by_key(|(_, problem)| !problem.field.is_empty());
            let mut in_group = Vec::new();
            for (severity, problem) in found {
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

    /// The finding that some groups are not checked, because there are too many groups or machines. If there are too many machines, the
    /// finding is an error, because a pull request must not hide its mistakes behind large manifests.
    pub(super) fn undecided(&self) -> Option<(Severity, Finding)> {
        if self.has_too_many_machines {
            let problem = format!(
                "the nodes of {} groups are not checked, because this check covers 60,000 possible machines at most, and a machine with \
                 large manifests counts as several machines. Set spec.kubernetesVersion of the clusters and spec.image of the groups, \
                 or check fewer folders at once",
                self.undecided
            );
            return Some((Severity::Error, Finding { problem, ..Finding::default() }));
        }
        let problem = format!(
            "the nodes of {} more groups, because this check covers at most 500 groups with different settings (a role \
             without a group counts as a group); check fewer folders at once",
            self.undecided
        );
        (self.undecided > 0).then(|| (Severity::NotChecked, Finding { problem, ..Finding::default() }))
    }
}

/// The fields of a manifest. Looks up each field only once, because many groups may each have thousands of problems in the fields of their
/// cluster.
struct Fields<'a> {
    source: &'a Source,
    /// For each field, by its path: whether its value or a key in its path comes from a template. `None` if the manifest does not have the
    /// field.
    is_template: RefCell<BTreeMap<String, Option<bool>>>,
}

impl Fields<'_> {
    fn new(source: &Source) -> Fields<'_> {
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

/// Returns the cluster. Removes its Kubernetes version if a template gives this version, or if the kOps release refuses it. The check then
/// tries each possible version.
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

/// Makes a group of a role for which the manifests have no group, so that the cluster's settings for this role are checked.
fn group_of_role(role: InstanceGroupRole) -> InstanceGroup {
    let mut group = InstanceGroup::default();
    group.metadata.name = "supposed".to_owned();
    group.spec.role = role;
    group
}

#[cfg(test)]
mod tests {
    use kops_agent_spec::{CloudProvider, InstanceGroupSpec};

    use super::super::{by_kind, files};
    use super::*;
    use crate::findings::{Checked, Findings};

    const CLUSTER: &str =
        "{kind: Cluster, metadata: {name: c}, spec: {cloudProvider: aws, kubernetesVersion: 1.34.2}}\n";

    /// Checks a cluster in line 1, and groups with these settings in lines 3, 5, and so on. Checks the nodes of at most `most` groups.
    /// Groups with equal settings count as one group.
    fn checked(settings: &[&str], most: usize) -> (Findings, Option<String>) {
        let (findings, undecided) = checked_within(settings, most, MOST_MACHINES);
        (
            findings,
            undecided.map(|(severity, finding)| {
                assert_eq!(severity, Severity::NotChecked);
                finding.problem
            }),
        )
    }

    fn checked_within(
        settings: &[&str],
        most: usize,
        machines: usize,
    ) -> (Findings, Option<(Severity, Finding)>) {
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
        let mut nodes =
            Nodes { left: most, machines_left: machines, ..Nodes::new("1.37", KopsRelease::NEWEST).unwrap() };
        let groups: Vec<&Manifest<InstanceGroup>> = manifests.groups.iter().collect();
        nodes.check(&manifests.clusters[0], &groups, &mut told).unwrap();
        (told.findings(Checked::default()), nodes.undecided())
    }

    fn lines(findings: &Findings) -> Vec<usize> {
        findings.errors.iter().filter_map(|finding| finding.line).collect()
    }

    #[test]
    fn few_different_groups_are_decided() {
        let settings = ["-5", "-6", "-5", "-7", "-7"].map(|pods| format!("kubelet: {{maxPods: {pods}}}"));
        let settings = settings.each_ref().map(String::as_str);
        let (findings, undecided) = checked(&settings, 2);
        // The findings are about the first two groups, and about the third group, which has the same settings as the first.
        assert_eq!(lines(&findings), [3, 5, 7]);
        // Three groups are not checked: the last two, and the control plane, which is not among the manifests.
        let undecided = undecided.unwrap();
        assert!(undecided.starts_with("the nodes of 3 more groups, because "), "{undecided}");
        assert!(
            undecided.contains(&format!(" at most {MOST_DECIDED} groups with different settings")),
            "{undecided}"
        );
        let (findings, undecided) = checked(&settings, 4);
        assert_eq!((lines(&findings), undecided), (vec![3, 5, 7, 9, 11], None));
    }

    #[test]
    fn few_machines_are_decided() {
        const SETTINGS: [&str; 3] =
            ["kubelet: {maxPods: -5}", "kubelet: {maxPods: -6}", "kubelet: {maxPods: -7}"];
        let of_group =
            supposed::machines(CloudProvider::Aws, KopsRelease::NEWEST, &InstanceGroupSpec::default());
        let (findings, undecided) = checked_within(&SETTINGS, MOST_DECIDED, of_group.len());
        assert_eq!(lines(&findings), [3]);
        let (severity, finding) = undecided.unwrap();
        // The remaining two groups, and the control plane that the manifests lack, are not checked.
        assert!(finding.problem.starts_with("the nodes of 3 groups are not checked, "), "{finding:?}");
        assert!(finding.problem.contains(" 60,000 possible machines at most"), "{finding:?}");
        assert_eq!((severity, MOST_MACHINES), (Severity::Error, 60_000));
        // With a large group, each machine counts as several machines.
        let large = format!("nodeLabels: {{a: {}}}", "b".repeat(10 * PART));
        assert!(checked_within(&[large.as_str()], MOST_DECIDED, 10 * of_group.len()).1.is_some());
        assert!(checked_within(&[large.as_str()], MOST_DECIDED, 13 * of_group.len()).1.is_none());
    }

    #[test]
    fn groups_with_the_same_settings_have_their_problems_in_their_own_manifests() {
        let (findings, _) = checked(&["taints: [a=b:No], maxSize: 1", "taints: [a=b:No], minSize: 1"], 2);
        assert_eq!(lines(&findings), [3, 5]);
        assert!(findings.errors.iter().all(|error| error.field == "spec.taints[0]"), "{findings:?}");
    }
}
