//! Narrows the machines that a group can have, by the names of the group's image and machine types.

use kops_agent_spec::facts::{Architecture, Distro, Facts};
use kops_agent_spec::{CloudProvider, InstanceGroupSpec};

/// Words in images' names, each with the distribution that the word stands for (`ID` in os-release).
const DISTRIBUTIONS: [(&str, &str); 10] = [
    ("al2023", "amzn"),
    ("amzn2", "amzn"),
    ("centos", "centos"),
    ("cos", "cos"),
    ("debian", "debian"),
    ("fedora", "fedora"),
    ("flatcar", "flatcar"),
    ("rhel", "rhel"),
    ("rocky", "rocky"),
    ("ubuntu", "ubuntu"),
];
/// The maximum number of words, such as a code name, between the distribution and its version in an image's name.
const MOST_WORDS_BETWEEN: usize = 2;

/// Removes the machines that do not fit the group's image and machine types. An unknown image or machine type excludes no machine. If no
/// machine fits, all machines stay.
pub(super) fn narrowed(machines: Vec<Facts>, cloud: CloudProvider, group: &InstanceGroupSpec) -> Vec<Facts> {
    let words = words(&group.image);
    let distribution = distribution(&words);
    let architecture = architecture(&words).or_else(|| of_machine_types(cloud, &group.machine_type));
    let can_be = |facts: &&Facts| {
        distribution.as_ref().is_none_or(|image| image.is(&facts.distro))
            && architecture.is_none_or(|architecture| architecture == facts.arch)
    };
    let possible: Vec<Facts> = machines.iter().filter(can_be).cloned().collect();
    let mut machines = if possible.is_empty() { machines } else { possible };
    let types = instance_types(group).unwrap_or_default();
    if !types.is_empty() && types.iter().all(|name| is_without_gpu(name)) {
        machines
            .iter_mut()
            .filter_map(|facts| facts.cloud.aws.as_mut())
            .for_each(|aws| aws.gpu = Some(false));
    }
    machines
}

/// The instance types of a group on AWS. `None` if the group has only requirements for instance types.
pub(crate) fn instance_types(group: &InstanceGroupSpec) -> Option<Vec<&str>> {
    let mixed = group.mixed_instances_policy.as_ref();
    match mixed.filter(|mixed| !mixed.instances.is_empty()) {
        Some(mixed) => Some(mixed.instances.iter().map(String::as_str).collect()),
        None if mixed.is_some_and(|mixed| mixed.instance_requirements.is_some()) => None,
        None => Some(group.machine_type.split(',').map(str::trim).filter(|name| !name.is_empty()).collect()),
    }
}

/// Whether an instance type of AWS has no GPU. Types with a GPU are in the families G and P (docs.aws.amazon.com/ec2/latest/instancetypes,
/// "Accelerated computing").
fn is_without_gpu(name: &str) -> bool {
    name.contains('.') && !name.starts_with(['g', 'p'])
}

fn words(name: &str) -> Vec<String> {
    let words = name.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect()
}

#[derive(Debug, PartialEq, Eq)]
struct Distribution {
    id: &'static str,
    /// The digits of the version in the image's name, such as `2404`.
    version: String,
}

impl Distribution {
    fn is(&self, distro: &Distro) -> bool {
        let digits: String = distro.version_id.chars().filter(char::is_ascii_digit).collect();
        self.id == distro.id
            && match self.id {
                "amzn" => self.version == digits,
                _ => self.version.starts_with(&digits),
            }
    }
}

/// The distribution in an image's name. If several words name a distribution, the last of them is used, as in
/// `ubuntu/images/hvm-ssd/ubuntu-noble-24.04-amd64-server`.
fn distribution(words: &[String]) -> Option<Distribution> {
    let found = words.iter().enumerate().rev().find_map(|(at, word)| {
        let (_, id) = DISTRIBUTIONS.iter().find(|(known, _)| known == word)?;
        Some((at, *id))
    });
    let (at, id) = found?;
    let is_number = |word: &str| word.bytes().all(|letter| letter.is_ascii_digit());
    let version = match words[at].as_str() {
        "al2023" => "2023".to_owned(),
        "amzn2" => "2".to_owned(),
        _ => {
            let after = &words[at + 1..];
            let between = after.iter().take_while(|word| !is_number(word)).count();
            let numbers = after.iter().skip(between).take_while(|word| is_number(word));
            if between > MOST_WORDS_BETWEEN { String::new() } else { numbers.map(String::as_str).collect() }
        }
    };
    Some(Distribution { id, version })
}

fn architecture(words: &[String]) -> Option<Architecture> {
    words.iter().find_map(|word| match word.as_str() {
        "amd64" | "x64" | "x86" => Some(Architecture::Amd64),
        "aarch64" | "arm64" => Some(Architecture::Arm64),
        _ => None,
    })
}

/// The architecture of these machine types. `None` if the types have different architectures, or if an architecture is unknown.
fn of_machine_types(cloud: CloudProvider, types: &str) -> Option<Architecture> {
    let mut architectures = types.split(',').map(|one| of_machine_type(cloud, one.trim()));
    let first = architectures.next()??;
    architectures.all(|other| other == Some(first)).then_some(first)
}

fn of_machine_type(cloud: CloudProvider, name: &str) -> Option<Architecture> {
    let is_arm = match cloud {
        // In the name of an instance type, a `g` after the generation stands for Graviton (docs.aws.amazon.com/ec2/latest/instancetypes,
        // "Naming conventions").
        CloudProvider::Aws => {
            let (family, _size) = name.split_once('.')?;
            let after = family.trim_start_matches(|letter: char| !letter.is_ascii_digit());
            family == "a1" || after.contains('g')
        }
        // These machine series have Arm processors (cloud.google.com/compute/docs/cpu-platforms).
        CloudProvider::Gce => matches!(name.split_once('-')?.0, "a4x" | "c4a" | "n4a" | "t2a"),
        // CAX servers have Arm processors by Ampere (docs.hetzner.com/cloud/servers/overview).
        CloudProvider::Hetzner if !name.is_empty() => name.starts_with("cax"),
        _ => return None,
    };
    Some(if is_arm { Architecture::Arm64 } else { Architecture::Amd64 })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::supposed::{all_machines, names};
    use kops_agent_spec::kops_release::KopsRelease;

    fn narrowed_names(cloud: CloudProvider, image: &str, machine_type: &str) -> String {
        let group = InstanceGroupSpec {
            image: image.to_owned(),
            machine_type: machine_type.to_owned(),
            ..InstanceGroupSpec::default()
        };
        let all = all_machines(cloud, KopsRelease::NEWEST);
        names(
            &narrowed(all.clone(), cloud, &group).iter().collect::<Vec<_>>(),
            &all.iter().collect::<Vec<_>>(),
        )
    }

    #[test]
    fn image_names_give_distribution_and_architecture() {
        for (image, machines) in [
            (
                "099720109477/ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-20250610",
                "ubuntu 24.04; amd64",
            ),
            (
                "ssm:/aws/service/canonical/ubuntu/server/22.04/stable/current/arm64/hvm/ebs-gp2/ami-id",
                "ubuntu 22.04; arm64",
            ),
            ("ubuntu-os-cloud/ubuntu-2604-resolute-amd64-v20261018", "ubuntu 26.04; amd64"),
            ("Canonical:0001-com-ubuntu-server-jammy:22_04-lts-gen2:latest", "ubuntu 22.04; amd64, arm64"),
            ("136693071363/debian-11-amd64-20240104-1616", "debian 11; amd64"),
            ("309956199498/RHEL-8.9.0_HVM-20240103-x86_64-3-Hourly2-GP3", "rhel 8; amd64"),
            ("rocky-linux-cloud/rocky-linux-9-v20240111", "rocky 9; amd64, arm64"),
            ("137112412989/al2023-ami-2023.6.20241031.0-kernel-6.1-arm64", "amzn; arm64"),
            ("075585003325/Flatcar-stable-4230.2.0-hvm", "flatcar; amd64, arm64"),
            ("cos-cloud/cos-stable-121-18867-90-4", "cos; amd64, arm64"),
        ] {
            assert_eq!(narrowed_names(CloudProvider::Openstack, image, "large"), machines, "{image}");
        }
    }

    #[test]
    fn unknown_image_names_exclude_no_machine() {
        let all = narrowed_names(CloudProvider::Aws, "", "");
        assert!(all.starts_with("amzn, centos, ") && all.ends_with("; amd64, arm64"), "{all}");
        for image in
            ["ami-0123456789abcdef0", "123456789012/golden-2026-01-02", "debian-golden-2026", "ubuntu-18.04"]
        {
            assert_eq!(narrowed_names(CloudProvider::Aws, image, ""), all, "{image}");
        }
    }

    #[test]
    fn instance_types_show_whether_a_gpu_is_possible() {
        let may_have = |group: &str| {
            let group: InstanceGroupSpec = serde_yaml::from_str(group).unwrap();
            let all = all_machines(CloudProvider::Aws, KopsRelease::NEWEST);
            let machines = narrowed(all, CloudProvider::Aws, &group);
            machines.iter().all(|facts| facts.cloud.aws.as_ref().is_some_and(|aws| aws.gpu == Some(true)))
        };
        assert!(!may_have("machineType: m5.large"));
        assert!(!may_have(
            "{machineType: g5.xlarge, mixedInstancesPolicy: {instances: [m5.large, c5.large]}}"
        ));
        for group in [
            "machineType: g5.xlarge",
            "machineType: 'm5.large,p4d.24xlarge'",
            "machineType: ''",
            "{machineType: m5.large, mixedInstancesPolicy: {instanceRequirements: {}}}",
        ] {
            assert!(may_have(group), "{group}");
        }
    }

    #[test]
    fn machine_types_give_the_architecture() {
        let is = |cloud, name| narrowed_names(cloud, "debian-12", name);
        for name in
            ["m6g.large", "c7gn.xlarge", "im4gn.large", "t4g.small", "a1.large", "m6g.large,m7g.large"]
        {
            assert_eq!(is(CloudProvider::Aws, name), "debian 12; arm64", "{name}");
        }
        for name in ["m5.large", "g4dn.xlarge", "g6.xlarge", "u-6tb1.metal"] {
            assert_eq!(is(CloudProvider::Aws, name), "debian 12; amd64", "{name}");
        }
        assert_eq!(is(CloudProvider::Aws, "m5.large,m6g.large"), "debian 12; amd64, arm64");
        assert_eq!(is(CloudProvider::Gce, "t2a-standard-1"), "debian 12; arm64");
        assert_eq!(is(CloudProvider::Gce, "e2-medium"), "debian 12; amd64");
        assert_eq!(is(CloudProvider::Hetzner, "cax11"), "debian 12; arm64");
        assert_eq!(is(CloudProvider::Azure, "Standard_D2ps_v5"), "debian 12; amd64, arm64");
    }
}
