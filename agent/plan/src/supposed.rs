//! Hypothetical machines to check a group that has no machine yet: one for each supported distribution and architecture that the group can
//! have. A problem that all these machines have is a problem of the configuration.
//!
//! A cluster that only its user wrote is completed first, in each possible way.

mod completed;
mod of_group;
mod places;

pub use completed::{Completed, completed};
pub(crate) use of_group::instance_types;
pub use places::{Place, Places};

use std::collections::BTreeSet;

use kops_agent_spec::facts::{
    Architecture, AwsFacts, AzureFacts, CloudFacts, DigitalOceanFacts, Distro, Facts, GceFacts, HetznerFacts,
    Interface, LinodeFacts, NetworkInterfaceLimits, OpenstackFacts, ScalewayFacts,
};
use kops_agent_spec::{CloudProvider, InstanceGroup, InstanceGroupRole, InstanceGroupSpec};

use crate::resolve::{Distribution, Problem, Problems};
use kops_agent_spec::kops_release::KopsRelease;

/// An address from the ranges that RFC 5737 reserves for documentation.
const ADDRESS: &str = "192.0.2.10";
const MAC: &str = "02:00:00:00:00:01";
const NAME: &str = "supposed";

/// The facts of each kind of machine that a group may have in this cloud with this kOps release. Omits machines that do not fit the group's
/// image and machine types.
pub fn machines(cloud: CloudProvider, release: KopsRelease, group: &InstanceGroupSpec) -> Vec<Facts> {
    of_group::narrowed(all_machines(cloud, release), cloud, group)
}

fn all_machines(cloud: CloudProvider, release: KopsRelease) -> Vec<Facts> {
    let architectures = [Architecture::Amd64, Architecture::Arm64];
    let machine = |distro: Distro, arch| Facts {
        arch,
        distro,
        hostname: NAME.into(),
        hostname_addresses: vec![ADDRESS.into()],
        interfaces: vec![Interface {
            name: "eth0".into(),
            mac: Some(MAC.into()),
            addresses: vec![format!("{ADDRESS}/24"), "2001:db8::10/64".into()],
            ..Interface::default()
        }],
        cloud: cloud_facts(cloud),
        ..Facts::default()
    };
    Distribution::supported(release)
        .flat_map(|distro| architectures.map(|arch| machine(distro.clone(), arch)))
        .collect()
}

fn cloud_facts(cloud: CloudProvider) -> CloudFacts {
    let mut facts = CloudFacts::default();
    let (address, name) = (ADDRESS.to_owned(), NAME.to_owned());
    match cloud {
        CloudProvider::Aws => {
            facts.aws = Some(AwsFacts {
                instance_id: "i-0123456789abcdef0".into(),
                region: "us-east-1".into(),
                availability_zone: "us-east-1a".into(),
                local_ipv4: address,
                local_hostname: "ip-192-0-2-10.ec2.internal".into(),
                mac: MAC.into(),
                network_interfaces: Some(NetworkInterfaceLimits { max: 3, ipv4_per_interface: 10 }),
                gpu: Some(true),
                ..AwsFacts::default()
            });
        }
        CloudProvider::Gce => facts.gce = Some(GceFacts { hostname: name, ..GceFacts::default() }),
        CloudProvider::Hetzner => {
            facts.hetzner = Some(HetznerFacts { instance_id: "1".into(), private_ipv4: address });
        }
        CloudProvider::Openstack => {
            facts.openstack = Some(OpenstackFacts { server_id: name, local_ipv4: address });
        }
        CloudProvider::Azure => facts.azure = Some(AzureFacts { resource_id: "/supposed".into() }),
        CloudProvider::DigitalOcean => {
            facts.digital_ocean = Some(DigitalOceanFacts { droplet_id: "1".into(), private_ipv4: address });
        }
        CloudProvider::Linode => facts.linode = Some(LinodeFacts { label: name, id: "1".into() }),
        CloudProvider::Scaleway => {
            facts.scaleway = Some(ScalewayFacts { server_id: name, ..ScalewayFacts::default() });
        }
        CloudProvider::Metal => {}
    }
    facts
}

/// Merges the problems and warnings of all machines, and removes duplicates.
///
/// A problem that all machines have stays a problem. A partial problem, which only some machines have, becomes a warning that names these
/// machines. But if every machine has a partial problem, no machine works, so all partial problems stay problems. If only some machines
/// have a warning, the warning names them. If a machine's list of problems is cut, the machine counts as if it had every problem.
pub fn merged(told: &[(Facts, Problems)]) -> Problems {
    let mut merged = Problems::default();
    let mut of_some = Vec::new();
    for problem in once(told.iter().flat_map(|(_, problems)| problems.iter())) {
        if told.iter().all(|(_, problems)| problems.may_have(problem)) {
            merged.add(problem.field.clone(), problem.problem.clone());
        } else {
            of_some.push(problem);
        }
    }
    let is_of_some: BTreeSet<&Problem> = of_some.iter().copied().collect();
    let is_any_fine =
        told.iter().any(|(_, problems)| !problems.iter().any(|problem| is_of_some.contains(problem)));
    for problem in of_some {
        let has = |problems: &Problems| problems.may_have(problem);
        let text = with_names(problem, told.iter(), has);
        match is_any_fine {
            true => merged.warn(problem.field.clone(), text),
            false => merged.add(problem.field.clone(), text),
        }
    }
    for warning in once(told.iter().flat_map(|(_, problems)| problems.warnings())) {
        let has = |problems: &Problems| problems.may_have_warning(warning);
        // A machine with problems may have an incomplete list of warnings. If such a machine lacks this warning, it is unknown whether the
        // machine would have the warning. So the warning's text ignores this machine.
        let decided = told.iter().filter(|(_, problems)| problems.is_empty() || has(problems));
        merged.warn(warning.field.clone(), with_names(warning, decided, has));
    }
    merged
}

/// A copy of the group with only the settings that can cause problems on its machines. The copy lacks sizes, subnets, metadata and, for
/// most groups, the name. If two groups of a cluster have equal copies, the groups have equal problems.
pub fn decisive(group: &InstanceGroup) -> InstanceGroup {
    let InstanceGroup { metadata, spec } = group;
    let mut decisive = InstanceGroup { spec: spec.clone(), ..InstanceGroup::default() };
    (decisive.spec.min_size, decisive.spec.max_size) = (None, None);
    decisive.spec.subnets.clear();
    let is_valid = |name: &str| {
        const LONGEST_LABEL: usize = 63;
        name.len() <= LONGEST_LABEL
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    // The copy keeps the name of a control-plane group, because etcd's members refer to the group by name. The copy also keeps an invalid
    // name, because the name can itself be a problem.
    if spec.role == InstanceGroupRole::ControlPlane || !is_valid(&metadata.name) {
        decisive.metadata.name.clone_from(&metadata.name);
    }
    decisive
}

/// Returns the problems that all completed forms of a cluster share. A completed form is the cluster with the fields that kOps would add.
/// `told` has the problems of each form.
///
/// The forms are compared by field. If every form has a problem for a field, the result has a problem for this field. If every form has a
/// problem or a warning for a field, but some forms have only a warning, the result has a warning. All other fields are left out. If a
/// form's list of problems is cut, the form counts as if it had a problem for every field. The function stops early if the result can only
/// be empty.
pub fn common<E>(told: impl IntoIterator<Item = Result<Problems, E>>) -> Result<Problems, E> {
    let mut told = told.into_iter();
    let mut common = told.next().transpose()?.unwrap_or_default();
    while !common.is_empty() || !common.warnings().is_empty() {
        let Some(other) = told.next() else { break };
        common = of_both(&common, &other?);
    }
    Ok(common)
}

fn of_both(one: &Problems, other: &Problems) -> Problems {
    // The result has only entries of `one`. If exactly one list is complete, this list becomes `one`, because a cut list may lack problems.
    let (one, other) = if one.has_more() && !other.has_more() { (other, one) } else { (one, other) };
    let fields: BTreeSet<&str> = other.iter().map(|problem| problem.field.as_str()).collect();
    let warned: BTreeSet<&str> = other.warnings().iter().map(|warning| warning.field.as_str()).collect();
    let is_problem = |field: &str| other.has_more() || fields.contains(field);
    let is_warning = |field: &str| other.has_more_warnings() || warned.contains(field);
    let mut both = Problems::default();
    for Problem { field, problem } in one.iter() {
        if is_problem(field) {
            both.add(field, problem);
        } else if is_warning(field) {
            both.warn(field, problem);
        }
    }
    for Problem { field, problem } in one.warnings() {
        if is_problem(field) || is_warning(field) {
            both.warn(field, problem);
        }
    }
    both
}

/// The words for a machine's distribution in the texts of problems.
const DISTRIBUTION: &str = "this distribution";

/// The text of a problem or warning, followed by the machines that have the problem. If all machines have it, adds only their
/// distributions, after the words `this distribution` in the text.
fn with_names<'a>(
    problem: &Problem,
    told: impl Iterator<Item = &'a (Facts, Problems)>,
    has: impl Fn(&Problems) -> bool,
) -> String {
    let (all, whose): (Vec<&Facts>, Vec<Option<&Facts>>) =
        told.map(|(facts, problems)| (facts, has(problems).then_some(facts))).unzip();
    let whose: Vec<&Facts> = whose.into_iter().flatten().collect();
    match whose.len() == all.len() {
        true => {
            let distributions: BTreeSet<&Distro> = all.iter().map(|facts| &facts.distro).collect();
            let named: Vec<String> = distributions.iter().map(|distro| full_name(distro)).collect();
            problem.problem.replacen(DISTRIBUTION, &format!("{DISTRIBUTION} ({})", named.join(", ")), 1)
        }
        false => format!("{} (on {})", problem.problem, names(&whose, &all)),
    }
}

fn full_name(distro: &Distro) -> String {
    format!("{} {}", distro.id, distro.version_id)
}

fn once<'a>(problems: impl Iterator<Item = &'a Problem>) -> Vec<&'a Problem> {
    let mut seen = BTreeSet::new();
    problems.filter(|problem| seen.insert(*problem)).collect()
}

/// Lists the distributions and architectures of these machines: `debian, rocky 8; arm64`. Omits a distribution's version if `machines` has
/// every version of the distribution that `all` has.
fn names(machines: &[&Facts], all: &[&Facts]) -> String {
    let distributions = |of: &[&Facts]| of.iter().map(|facts| facts.distro.clone()).collect::<BTreeSet<_>>();
    let (named, known) = (distributions(machines), distributions(all));
    let is_whole =
        |id: &str| known.iter().filter(|distro| distro.id == id).all(|distro| named.contains(distro));
    let name = |distro: &Distro| match is_whole(&distro.id) {
        true => distro.id.clone(),
        false => full_name(distro),
    };
    let mut distributions: Vec<String> = named.iter().map(name).collect();
    distributions.dedup();
    let architectures: BTreeSet<&str> = machines.iter().map(|facts| facts.arch.name()).collect();
    format!("{}; {}", distributions.join(", "), architectures.into_iter().collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn told(of: impl Fn(&Facts, &mut Problems)) -> Problems {
        let tell = |facts: Facts| {
            let mut problems = Problems::default();
            of(&facts, &mut problems);
            (facts, problems)
        };
        let machines = all_machines(CloudProvider::Aws, KopsRelease::NEWEST);
        merged(&machines.into_iter().map(tell).collect::<Vec<_>>())
    }

    #[test]
    fn a_problem_of_all_machines_is_reported_once() {
        let problems = told(|_, problems| {
            problems.add("a", "is wrong");
            problems.warn("b", "does nothing");
        });
        assert_eq!(problems.to_string(), "a: is wrong");
        assert_eq!(problems.warnings().len(), 1);
    }

    #[test]
    fn a_problem_of_some_machines_is_a_warning_that_names_them() {
        let problems = told(|facts, problems| {
            problems.add("a", "is wrong");
            if facts.arch == Architecture::Arm64 && facts.distro.id == "debian" {
                problems.add("b", "is missing");
            }
        });
        assert_eq!(problems.to_string(), "a: is wrong");
        assert_eq!(problems.warnings()[0].to_string(), "b: is missing (on debian; arm64)");
    }

    #[test]
    fn a_warning_of_some_machines_names_them() {
        let problems = told(|facts, problems| match facts.distro.id.as_str() {
            "amzn" => problems.add("a", "is wrong"),
            "debian" if facts.distro.version_id == "11" => problems.warn("b", "is old"),
            _ => {}
        });
        let warnings: Vec<String> = problems.warnings().iter().map(ToString::to_string).collect();
        assert_eq!(
            warnings,
            ["a: is wrong (on amzn; amd64, arm64)", "b: is old (on debian 11; amd64, arm64)"]
        );
        let problems = told(|facts, problems| match facts.distro.id.as_str() {
            "amzn" => problems.add("a", "is wrong"),
            _ => problems.warn("b", "is old"),
        });
        assert_eq!(
            problems.warnings()[1].to_string(),
            "b: is old",
            "machines that are not decided have none"
        );
    }

    #[test]
    fn different_problems_of_all_machines_stay_problems() {
        let problems = told(|facts, problems| problems.add("a", format!("is wrong on {}", facts.arch)));
        assert!(problems.to_string().starts_with("a: is wrong on amd64 (on amzn, centos,"), "{problems}");
        assert!(problems.warnings().is_empty());
    }

    #[test]
    fn a_problem_of_some_completed_clusters_is_left_out() {
        let of = |version: &str, fields: &[&str], warned: &[&str]| {
            let mut problems = Problems::default();
            fields.iter().for_each(|field| problems.add(*field, format!("is wrong in {version}")));
            warned.iter().for_each(|field| problems.warn(*field, format!("is old in {version}")));
            problems
        };
        let newest = of("1.36", &["a", "b"], &["c", "d", "e"]);
        let common = common::<String>([Ok(newest), Ok(of("1.35", &["a", "b", "c"], &["d"]))]).unwrap();
        assert_eq!(common.to_string(), "a: is wrong in 1.36\nb: is wrong in 1.36");
        let warnings: Vec<String> = common.warnings().iter().map(ToString::to_string).collect();
        assert_eq!(warnings, ["c: is old in 1.36", "d: is old in 1.36"]);
    }

    #[test]
    fn a_problem_is_not_lost_beside_more_problems_than_are_listed() {
        let of = |count: usize, more: &str| {
            let mut problems = Problems::default();
            (0..count).for_each(|number| problems.add(format!("a[{number}]"), "is wrong"));
            problems.add(more, "is wrong");
            problems
        };
        let (many, one) = (of(2000, "b"), of(0, "b"));
        assert!(many.has_more() && !many.iter().any(|problem| problem.field == "b"));
        for told in [[many.clone(), one.clone()], [one.clone(), many.clone()]] {
            assert_eq!(common(told.map(Ok::<_, String>)).unwrap().to_string(), "b: is wrong");
        }
        let both = common([Ok::<_, String>(many.clone()), Ok(many.clone())]).unwrap();
        assert!(both.has_more() && both == many);
        // The first machine's list of problems is cut, so the machine counts as if it also had the problem "b".
        let machines = all_machines(CloudProvider::Aws, KopsRelease::NEWEST);
        let told: Vec<(Facts, Problems)> = machines.into_iter().zip([many, one]).collect();
        assert!(merged(&told).iter().any(|problem| problem.field == "b"));
    }

    #[test]
    fn groups_that_differ_only_in_size_name_and_place_are_alike() {
        let group = |name: &str, spec: &str| {
            let text = format!("{{metadata: {{name: {name}, labels: {{a: {name}}}}}, spec: {{{spec}}}}}");
            decisive(&InstanceGroup::parse(text.as_bytes(), "").unwrap())
        };
        let one = group("a", "role: Node, minSize: 1, maxSize: 2, subnets: [x]");
        assert_eq!(one, group("b", "role: Node, minSize: 3, subnets: [y]"));
        for other in [
            group("a", "role: Node, machineType: m5.large"),
            group("a", "role: Node, cloudLabels: {a: b}"),
            group("a", "role: ControlPlane"),
            group("B_", "role: Node"),
        ] {
            assert_ne!(one, other);
        }
        assert_ne!(group("a", "role: ControlPlane"), group("b", "role: ControlPlane"));
    }

    #[test]
    fn a_cluster_that_cannot_change_the_result_is_not_decided() {
        let mut warned = Problems::default();
        warned.warn("a", "is old");
        for (newest, decided) in [(Problems::default(), 1), (warned, 2)] {
            let mut count = 0;
            let told = [newest, Problems::default(), Problems::default()].into_iter().map(|problems| {
                count += 1;
                Ok::<_, String>(problems)
            });
            assert_eq!(common(told).unwrap(), Problems::default());
            assert_eq!(count, decided);
        }
        assert_eq!(common([Err("no"), Ok(Problems::default())]), Err("no"));
    }

    #[test]
    fn a_machine_of_each_cloud_has_a_name() {
        for cloud in CloudProvider::ALL {
            assert!(
                all_machines(cloud, KopsRelease::NEWEST).iter().all(|facts| !facts.machine().is_empty()),
                "{cloud}"
            );
        }
    }
}
