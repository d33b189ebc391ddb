//! Warns of a too low `maxPods` if the Amazon VPC CNI assigns pod addresses from prefixes. kOps computes `maxPods` as if each address
//! served one pod (nodeup/pkg/model/kubelet.go). With prefixes, a node can run more pods, and Amazon recommends a higher `maxPods`.

use kops_agent_spec::InstanceGroupSpec;

use super::{Inputs, kubelet};
use crate::resolve::Problems;
use crate::supposed::instance_types;

/// The CNI's environment variable for prefix delegation, which gives interfaces prefixes of 16 addresses
/// (github.com/aws/amazon-vpc-cni-k8s, README.md).
const SWITCH: &str = "ENABLE_PREFIX_DELEGATION";
/// Amazon's recommended `maxPods` for instance types with at most 30 vCPUs, and for all others (`max-pods-calculator.sh` of
/// github.com/awslabs/amazon-eks-ami).
const MAX_PODS_OF_FEW_CPUS: u32 = 110;
const MAX_PODS_OF_MANY_CPUS: u32 = 250;
/// The smallest N for which an instance type of size `Nxlarge` has more than 30 vCPUs. Such a type has 4 N vCPUs
/// (docs.aws.amazon.com/ec2/latest/instancetypes).
const MANY_CPUS: u32 = 8;
/// Families on the Xen hypervisor, for which the CNI assigns no prefixes (`HypervisorType` in pkg/vpc/vpc_ip_resource_limit.go of
/// amazon-vpc-cni-k8s).
const WITHOUT_PREFIXES: [&str; 27] = [
    "c1", "c3", "c4", "cc2", "cr1", "d2", "f1", "g2", "g3", "g3s", "h1", "hi1", "hs1", "i2", "i3", "m1",
    "m2", "m3", "m4", "p2", "p3", "r3", "r4", "t1", "t2", "x1", "x1e",
];
/// Exceptions among the types of size `xlarge` and larger: types with only two interfaces of four addresses, and types with fewer vCPUs
/// than their size suggests.
const SPECIAL: [(&str, u32); 3] = [
    ("g4ad.xlarge", pods_of_prefixes(2, 4)),
    ("g4ad.2xlarge", pods_of_prefixes(2, 4)),
    ("hpc7a.12xlarge", MAX_PODS_OF_FEW_CPUS),
];

/// Warns about a group that uses prefix delegation and does not set `maxPods`. If the CNI assigns no prefixes to one of the group's
/// instance types, there is no warning, because kOps' `maxPods` is right for that type.
pub(super) fn check(inputs: &Inputs<'_>, problems: &mut Problems) {
    let Some(cni) = &inputs.cluster.spec.networking.amazon_vpc else { return };
    let is_on = cni.env.iter().any(|variable| variable.name == SWITCH && variable.value == "true");
    let group = &inputs.instance_group.spec;
    let mut types = instance_types(group).into_iter().flatten();
    if is_on && kubelet::kubelet_config(inputs).max_pods.is_none() && types.all(has_prefixes) {
        let advice = match recommended_for_group(group) {
            Some((types, most)) => format!(
                "Amazon recommends {most} for {types}; set spec.kubelet.maxPods: {most} in the instance group"
            ),
            None => format!(
                "Amazon recommends at most {MAX_PODS_OF_FEW_CPUS} for instance types with up to 30 vCPUs, \
                 and {MAX_PODS_OF_MANY_CPUS} for all others; set spec.kubelet.maxPods in the instance group"
            ),
        };
        problems.warn(
            "spec.kubelet.maxPods",
            format!(
                "is not set, but {SWITCH} is true: kOps computes maxPods as if each address served one pod, and sets at most 110. {advice}"
            ),
        );
    }
}

/// The instance types of a group, and the `maxPods` that Amazon recommends for the smallest of these types. `None` if a type is unknown.
fn recommended_for_group(group: &InstanceGroupSpec) -> Option<(String, u32)> {
    let types = instance_types(group)?;
    let numbers: Option<Vec<u32>> = types.iter().map(|name| recommended_for_type(name)).collect();
    Some((types.join(", "), numbers?.into_iter().min()?))
}

/// Whether the CNI assigns prefixes on this instance type. Bare-metal types of every family have prefixes.
fn has_prefixes(name: &str) -> bool {
    let (family, size) = name.split_once('.').unwrap_or((name, ""));
    !WITHOUT_PREFIXES.contains(&family) || size.starts_with("metal")
}

/// The `maxPods` that Amazon recommends for an instance type whose interfaces get prefixes. It is the number of addresses in these
/// prefixes, limited by a cap that depends on the number of vCPUs. From size `large` on, only the cap matters, except for [`SPECIAL`].
fn recommended_for_type(name: &str) -> Option<u32> {
    if let Some((_, most)) = SPECIAL.iter().find(|(special, _)| *special == name) {
        return Some(*most);
    }
    let (family, size) = name.split_once('.')?;
    let of_xlarge = |number: &str| {
        let number: u32 = if number.is_empty() { 1 } else { number.parse().ok()? };
        Some(if number < MANY_CPUS { MAX_PODS_OF_FEW_CPUS } else { MAX_PODS_OF_MANY_CPUS })
    };
    let is_burstable = family.starts_with('t');
    match size {
        "nano" | "micro" if is_burstable => Some(pods_of_prefixes(2, 2)),
        "small" if family == "t3a" => Some(pods_of_prefixes(2, 4)),
        "small" | "medium" if is_burstable => Some(MAX_PODS_OF_FEW_CPUS),
        // Types of generation 9 have 20 addresses on an interface, which is enough for `MAX_PODS_OF_FEW_CPUS`.
        "medium" if family.contains('9') => Some(MAX_PODS_OF_FEW_CPUS),
        "medium" if family == "m8azn" => Some(pods_of_prefixes(3, 4)),
        "medium" => Some(pods_of_prefixes(2, 4)),
        "large" => Some(MAX_PODS_OF_FEW_CPUS),
        "metal" if family.starts_with("mac") => None,
        "metal" if family == "a1" => Some(MAX_PODS_OF_FEW_CPUS),
        "metal" => Some(MAX_PODS_OF_MANY_CPUS),
        _ => match size.strip_prefix("metal-") {
            Some(size) => of_xlarge(size.strip_suffix("xl")?),
            None => of_xlarge(size.strip_suffix("xlarge")?),
        },
    }
}

/// The number of pods that prefixes of 16 addresses allow. One address of each interface is the interface's own, and two pods use the
/// node's network.
const fn pods_of_prefixes(interfaces: u32, addresses: u32) -> u32 {
    let most = interfaces * (addresses - 1) * 16 + 2;
    if most < MAX_PODS_OF_FEW_CPUS { most } else { MAX_PODS_OF_FEW_CPUS }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::derive::testing::Store;

    fn told(cluster: &str, group: &str) -> Vec<String> {
        let store = Store::new(cluster, group);
        let mut problems = Problems::default();
        check(&store.inputs(), &mut problems);
        problems.warnings().iter().map(ToString::to_string).collect()
    }

    fn with(value: &str) -> String {
        format!("networking: {{amazonvpc: {{env: [{{name: {SWITCH}, value: '{value}'}}]}}}}")
    }

    #[test]
    fn a_group_without_max_pods_gets_a_warning() {
        for (cluster, group, is_told) in [
            (with("true"), "role: Node", true),
            (with("true"), "role: Master", true),
            (with("false"), "role: Node", false),
            ("networking: {amazonvpc: {}}".into(), "role: Node", false),
            (with("true"), "role: Node, kubelet: {maxPods: 250}", false),
            (with("true") + ", kubelet: {maxPods: 250}", "role: Node", false),
            (with("true") + ", masterKubelet: {maxPods: 250}", "role: Master", false),
            (with("true") + ", masterKubelet: {maxPods: 250}", "role: Node", true),
            (with("true") + ", kubelet: {maxPods: 250}", "role: Master", true),
        ] {
            assert_eq!(told(&cluster, group).len(), usize::from(is_told), "{cluster} / {group}");
        }
    }

    #[test]
    fn the_smallest_instance_type_of_the_group_decides() {
        let of = |group: &str| told(&with("true"), &format!("role: Node, {group}")).concat();
        for (group, part) in [
            ("machineType: m7g.large", "Amazon recommends 110 for m7g.large; set spec.kubelet.maxPods: 110"),
            ("machineType: 'm5.8xlarge,m5.16xlarge'", "recommends 250 for m5.8xlarge, m5.16xlarge"),
            (
                "machineType: m5.8xlarge, mixedInstancesPolicy: {instances: [m5.8xlarge, m7g.medium]}",
                "recommends 98 for m5.8xlarge, m7g.medium",
            ),
            ("machineType: mac2.metal", "at most 110 for instance types with up to 30 vCPUs, and 250"),
            ("machineType: 'm5.large,mac2.metal'", "and 250 for all others; set spec.kubelet.maxPods in"),
            ("machineType: i3.metal", "Amazon recommends 250 for i3.metal"),
        ] {
            assert!(of(group).contains(part), "{group}: {}", of(group));
        }
        for without_prefixes in ["m4.large", "x1e.xlarge", "m5.large,t2.large"] {
            assert_eq!(of(&format!("machineType: '{without_prefixes}'")), "", "{without_prefixes}");
        }
    }

    /// The numbers are from `max-pods-calculator.sh --cni-prefix-delegation-enabled`.
    #[test]
    fn each_size_has_amazons_number() {
        for (name, most) in [
            ("t3.nano", Some(34)),
            ("t4g.small", Some(110)),
            ("t3a.small", Some(98)),
            ("t3.medium", Some(110)),
            ("c6g.medium", Some(98)),
            ("m5.xlarge", Some(110)),
            ("z1d.6xlarge", Some(110)),
            ("m6i.8xlarge", Some(250)),
            ("m7i.metal-24xl", Some(250)),
            ("a1.metal", Some(110)),
            ("u7i-6tb.112xlarge", Some(250)),
            ("mac2.metal", None),
            ("m9g.medium", Some(110)),
            ("m8azn.medium", Some(110)),
            ("g4ad.2xlarge", Some(98)),
            ("g4ad.4xlarge", Some(110)),
            ("hpc7a.12xlarge", Some(110)),
            ("hpc7a.24xlarge", Some(250)),
            ("hpc6a.48xlarge", Some(250)),
            ("m5", None),
            ("m5.huge", None),
        ] {
            assert_eq!(recommended_for_type(name), most, "{name}");
        }
    }
}
