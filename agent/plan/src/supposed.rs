//! Hypothetical machines to check a group that has no machine yet: one for each supported distribution and architecture. A problem that all
//! these machines have is a problem of the configuration.

use std::collections::BTreeSet;

use kops_agent_spec::CloudProvider;
use kops_agent_spec::facts::{
    Architecture, AwsFacts, AzureFacts, CloudFacts, DigitalOceanFacts, Facts, GceFacts, HetznerFacts,
    Interface, LinodeFacts, NetworkInterfaceLimits, OpenstackFacts, ScalewayFacts,
};

use crate::kops_release::KopsRelease;
use crate::resolve::{Distribution, Problem, Problems};

/// An address of RFC 5737, which is reserved for documentation.
const ADDRESS: &str = "192.0.2.10";
const MAC: &str = "02:00:00:00:00:01";
const NAME: &str = "supposed";

/// The hypothetical machines for a kOps release and a cloud.
pub fn machines(cloud: CloudProvider, release: KopsRelease) -> Vec<Facts> {
    let architectures = [Architecture::Amd64, Architecture::Arm64];
    let machine = |distro: kops_agent_spec::facts::Distro, arch| Facts {
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

/// Merges the problems of these machines and removes duplicates. A problem of all machines stays a problem. A problem of some machines
/// becomes a warning that names them, unless every machine has one.
pub fn merged(told: &[(Facts, Problems)]) -> Problems {
    let mut merged = Problems::default();
    let mut of_some = Vec::new();
    for problem in once(told.iter().flat_map(|(_, problems)| problems.iter())) {
        if told.iter().all(|(_, problems)| problems.iter().any(|other| other == problem)) {
            merged.add(problem.field.clone(), problem.problem.clone());
        } else {
            of_some.push(problem);
        }
    }
    let is_any_fine =
        told.iter().any(|(_, problems)| !problems.iter().any(|problem| of_some.contains(&problem)));
    for problem in of_some {
        let whose = told.iter().filter(|(_, problems)| problems.iter().any(|other| other == problem));
        let text = format!("{} (on {})", problem.problem, names(whose.map(|(facts, _)| facts)));
        match is_any_fine {
            true => merged.warn(problem.field.clone(), text),
            false => merged.add(problem.field.clone(), text),
        }
    }
    for warning in once(told.iter().flat_map(|(_, problems)| problems.warnings())) {
        merged.warn(warning.field.clone(), warning.problem.clone());
    }
    merged
}

fn once<'a>(problems: impl Iterator<Item = &'a Problem>) -> Vec<&'a Problem> {
    let mut seen = Vec::new();
    for problem in problems {
        if !seen.contains(&problem) {
            seen.push(problem);
        }
    }
    seen
}

/// Lists the distributions and architectures of these machines: `debian, rocky; arm64`.
fn names<'a>(machines: impl Iterator<Item = &'a Facts>) -> String {
    let (distributions, architectures): (BTreeSet<&str>, BTreeSet<&str>) =
        machines.map(|facts| (facts.distro.id.as_str(), facts.arch.name())).unzip();
    let list = |names: BTreeSet<&str>| names.into_iter().collect::<Vec<_>>().join(", ");
    format!("{}; {}", list(distributions), list(architectures))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(of: impl Fn(&Facts, &mut Problems)) -> Problems {
        let tell = |facts: Facts| {
            let mut problems = Problems::default();
            of(&facts, &mut problems);
            (facts, problems)
        };
        merged(&machines(CloudProvider::Aws, KopsRelease::NEWEST).into_iter().map(tell).collect::<Vec<_>>())
    }

    #[test]
    fn what_all_machines_are_told_is_told_once() {
        let problems = told(|_, problems| {
            problems.add("a", "is wrong");
            problems.warn("b", "does nothing");
        });
        assert_eq!(problems.to_string(), "a: is wrong");
        assert_eq!(problems.warnings().len(), 1);
    }

    #[test]
    fn what_some_are_told_is_a_warning_that_names_them() {
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
    fn what_each_is_told_in_its_own_words_is_a_problem() {
        let problems = told(|facts, problems| problems.add("a", format!("is wrong on {}", facts.arch)));
        assert!(problems.to_string().starts_with("a: is wrong on amd64 (on amzn, centos,"), "{problems}");
        assert!(problems.warnings().is_empty());
    }

    #[test]
    fn a_machine_of_each_cloud_has_a_name() {
        for cloud in CloudProvider::ALL {
            assert!(
                machines(cloud, KopsRelease::NEWEST).iter().all(|facts| !facts.machine().is_empty()),
                "{cloud}"
            );
        }
    }
}
