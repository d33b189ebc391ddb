//! Identifies the machine of a Node on AWS: `spec.providerID` → EC2 instance → its tags.
//!
//! Sources: upstream's `pkg/nodeidentity/aws/identify.go`; node names: `upup/pkg/fi/nodeup/command.go`
//! (`evaluateHostnameOverride`) and `pkg/bootstrap/awsbootstrap/verifier.go`.

use std::collections::BTreeMap;

use super::{Identity, Refusal};
use crate::pod_ranges::{PodRangeProblem, Source};

/// The tag with the name of the instance group.
pub const INSTANCE_GROUP_TAG: &str = "kops.k8s.io/instancegroup";
/// The tag with the name of the cluster.
pub const CLUSTER_TAG: &str = "KubernetesCluster";
/// The prefix of tags that record a label of the group's nodes.
const LABEL_TAG_PREFIX: &str = "k8s.io/cluster-autoscaler/node-template/label/";
/// A Node is accepted only if its instance is in one of these states.
const AT_WORK: [&str; 2] = ["running", "pending"];
const FORM: &str = "aws:///eu-west-1a/i-0123456789abcdef0";

/// The fields of an EC2 instance that identification uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ec2Instance {
    pub instance_id: String,
    /// `running`, `stopped`, …
    pub state: String,
    /// The last start of the instance, in RFC 3339. Empty if EC2 does not report the start.
    pub launch_time: String,
    /// The purchasing option: `spot`, `scheduled`, `capacity-block`. Empty for an on-demand instance.
    pub lifecycle: String,
    /// The account that owns the instance. Empty if EC2 does not report the account.
    pub owner_id: String,
    /// The instance's name in the DNS of its subnet.
    pub private_dns_name: String,
    /// The instance's primary private IPv4 address.
    pub private_ip_address: String,
    pub network_interfaces: Vec<Ec2NetworkInterface>,
    pub tags: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ec2NetworkInterface {
    /// `attached`, `attaching`, …
    pub attachment_status: String,
    /// The interface's index on the instance. Index 0 is the primary interface.
    pub device_index: i32,
    /// The interface's primary private IPv4 address.
    pub private_ip_address: String,
    /// The interface's public IPv4 address. Empty if the interface has no public address.
    pub public_ip_address: String,
    /// The interface's IPv6 addresses, in EC2's order.
    pub ipv6_addresses: Vec<String>,
    /// The IPv6 prefixes that EC2 has delegated to the interface, in EC2's order.
    pub ipv6_prefixes: Vec<String>,
}

/// The facts of a cluster on AWS that are known without a request to AWS' API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwsCluster {
    pub name: String,
    pub region: String,
    /// Whether Node names come from the private address instead of the instance id.
    pub use_ip_based_node_names: bool,
}

pub fn instance_id(provider_id: &str) -> Result<&str, Refusal> {
    let refusal = || Refusal::ProviderId { provider_id: provider_id.to_owned(), cloud: "AWS", form: FORM };
    let parts: Vec<&str> = provider_id.strip_prefix("aws://").ok_or_else(refusal)?.split('/').collect();
    match parts.as_slice() {
        ["", _, id] if is_instance_id(id) => Ok(id),
        _ => Err(refusal()),
    }
}

/// Whether EC2 could have an instance with this id. If a request contains an invalid id, EC2 rejects the whole request.
pub fn is_instance_id(id: &str) -> bool {
    id.strip_prefix("i-").is_some_and(|number| {
        matches!(number.len(), 8 | 17)
            && number.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    })
}

pub fn node_name(instance: &Ec2Instance, cluster: &AwsCluster) -> String {
    match cluster.use_ip_based_node_names {
        true => ip_based_name(instance, cluster),
        false => instance.instance_id.clone(),
    }
}

/// Whether `node` is a name that only this instance can have. These names are the instance's id, the DNS name that EC2 reports, and host
/// names that EC2 derives from the id or the address. The host names may have any domain, because the DHCP options set the domain (EC2 User
/// Guide, "EC2 instance hostnames and domains").
fn is_own_name(node: &str, instance: &Ec2Instance) -> bool {
    if node.is_empty() || node == instance.private_dns_name {
        return !node.is_empty();
    }
    match node.split_once('.') {
        None => node == instance.instance_id,
        Some((host, domain)) => {
            let is_of_address = !instance.private_ip_address.is_empty() && host == ip_based_host(instance);
            !domain.is_empty() && (host == instance.instance_id || is_of_address)
        }
    }
}

fn ip_based_name(instance: &Ec2Instance, cluster: &AwsCluster) -> String {
    let domain = match cluster.region.as_str() {
        "us-east-1" => "ec2.internal".to_owned(),
        region => format!("{region}.compute.internal"),
    };
    format!("{}.{domain}", ip_based_host(instance))
}

fn ip_based_host(instance: &Ec2Instance) -> String {
    format!("ip-{}", instance.private_ip_address.replace('.', "-"))
}

/// Identifies `instance`, which the Node's providerID names, as the machine of the Node with the name `node`.
///
/// Nodes keep their names until they are replaced. After a change of `useIPBasedNodeNames`, names of both schemes exist for a time, so both
/// are accepted. Names that older kOps releases or the cloud controller took from EC2 are accepted too. Only this instance can have any of
/// these names.
pub fn identify(node: &str, instance: &Ec2Instance, cluster: &AwsCluster) -> Result<Identity, Refusal> {
    let id = || instance.instance_id.clone();
    if !AT_WORK.contains(&instance.state.as_str()) {
        return Err(Refusal::NotRunning { instance: id(), state: instance.state.clone() });
    }
    match instance.tags.get(CLUSTER_TAG) {
        Some(owner) if *owner == cluster.name => {}
        Some(owner) => {
            let owner = format!("the cluster {owner}");
            return Err(Refusal::OtherCluster { instance: id(), owner, cluster: cluster.name.clone() });
        }
        None => {
            let says = format!("it has no tag {CLUSTER_TAG}");
            return Err(Refusal::NoCluster { instance: id(), says, cluster: cluster.name.clone() });
        }
    }
    let expected = node_name(instance, cluster);
    if node != expected && !is_own_name(node, instance) {
        return Err(Refusal::OtherNode { instance: id(), expected });
    }
    let Some(instance_group) = instance.tags.get(INSTANCE_GROUP_TAG).filter(|name| !name.is_empty()) else {
        let missing = format!("it has no tag {INSTANCE_GROUP_TAG}");
        return Err(Refusal::NoInstanceGroup { instance: id(), missing });
    };
    Ok(Identity {
        instance_group: instance_group.clone(),
        noted_labels: noted_labels(&instance.tags),
        instance_labels: lifecycle_labels(&instance.lifecycle),
        proven_labels: BTreeMap::new(),
    })
}

/// The names and addresses in the serving certificate of an instance's kubelet, as in upstream's `GetInstanceCertificateNames`.
pub fn certificate_names(instance: &Ec2Instance, cluster: &AwsCluster) -> Vec<String> {
    let mut names = vec![instance.instance_id.clone(), instance.private_dns_name.clone()];
    let is_first = |interface: &&Ec2NetworkInterface| {
        interface.device_index == 0 && !interface.attachment_status.is_empty()
    };
    for interface in instance.network_interfaces.iter().filter(is_first) {
        names.push(interface.private_ip_address.clone());
        names.extend(interface.ipv6_addresses.first().cloned());
        names.push(interface.public_ip_address.clone());
    }
    let node = node_name(instance, cluster);
    if !names.contains(&node) {
        names.push(node);
    }
    names.retain(|name| !name.is_empty());
    names
}

/// The address at which kops-agent can reach an instance. `None` if EC2 reports no address.
pub fn address(instance: &Ec2Instance) -> Option<&str> {
    let interfaces = instance.network_interfaces.iter();
    let mut addresses = interfaces.flat_map(|interface| {
        std::iter::once(&interface.private_ip_address).chain(&interface.ipv6_addresses)
    });
    addresses.find(|address| !address.is_empty()).map(String::as_str)
}

/// The pod address range of an instance: the only IPv6 prefix that EC2 has delegated to its primary network interface. kops-agent on the
/// instance requests the prefix. Upstream looks at all interfaces, and assigns no range if there is a second interface
/// (`cmd/kops-controller/controllers/awsipam.go`). With one interface, upstream and this function return the same range.
pub fn pod_ranges(instance: &Ec2Instance) -> Result<Vec<String>, PodRangeProblem> {
    let source = Source {
        machine: &instance.instance_id,
        wanted: "IPv6 prefix on its primary network interface",
        to_do: "kops-agent on the machine requests a prefix from EC2 (ec2:AssignIpv6Addresses), and the subnet needs IPv6 addresses",
    };
    let primary = instance.network_interfaces.iter().filter(|interface| interface.device_index == 0);
    let prefixes: Vec<String> = primary.flat_map(|interface| interface.ipv6_prefixes.clone()).collect();
    source.only(&prefixes)
}

/// The labels that tags record. `tags` are the tags of an instance, or the tags that kOps gives to instances (`cloudLabels`).
pub fn noted_labels(tags: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let label = |(tag, value): (&String, &String)| {
        Some((tag.strip_prefix(LABEL_TAG_PREFIX)?.to_owned(), value.clone()))
    };
    tags.iter().filter_map(label).collect()
}

fn lifecycle_labels(lifecycle: &str) -> BTreeMap<String, String> {
    match lifecycle {
        "" => BTreeMap::new(),
        lifecycle => {
            BTreeMap::from([(format!("node-role.kubernetes.io/{lifecycle}-worker"), "true".to_owned())])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "i-0123456789abcdef0";

    fn cluster(use_ip_based_node_names: bool) -> AwsCluster {
        AwsCluster { name: "c.example.com".into(), region: "eu-west-1".into(), use_ip_based_node_names }
    }

    fn instance() -> Ec2Instance {
        let tags = [
            (CLUSTER_TAG, "c.example.com"),
            (INSTANCE_GROUP_TAG, "nodes"),
            ("k8s.io/cluster-autoscaler/node-template/label/node-role.kubernetes.io/node", ""),
            ("k8s.io/cluster-autoscaler/node-template/taint/x", "y:NoSchedule"),
            ("Name", "nodes.c.example.com"),
        ];
        Ec2Instance {
            instance_id: ID.into(),
            state: "running".into(),
            private_ip_address: "10.0.3.4".into(),
            tags: tags.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            ..Ec2Instance::default()
        }
    }

    #[test]
    fn a_provider_id_names_an_instance() {
        assert_eq!(instance_id("aws:///eu-west-1a/i-0123456789abcdef0").unwrap(), ID);
        assert_eq!(instance_id("aws:///eu-west-1a/i-01234567").unwrap(), "i-01234567");
        for malformed in [
            "",
            "gce://project/zone/name",
            "aws:///eu-west-1a",
            "aws:///eu-west-1a/",
            "aws:///eu-west-1a/i-0123456789abcdef0/x",
            "aws://x/eu-west-1a/i-0123456789abcdef0",
            "aws:///eu-west-1a/i-0123456789ABCDEF0",
            "aws:///eu-west-1a/i-0123456789abcdef0,i-0123456789abcdef1",
            "aws:///eu-west-1a/mi-0123456789abcdef0",
        ] {
            let refusal = instance_id(malformed).unwrap_err();
            assert_eq!(refusal.reason(), "InvalidProviderID");
            assert!(refusal.to_string().contains(&format!("{malformed:?}")), "{refusal}");
        }
    }

    #[test]
    fn a_node_with_its_instances_name_is_accepted() {
        let identity = identify(ID, &instance(), &cluster(false)).unwrap();
        assert_eq!(identity.instance_group, "nodes");
        assert_eq!(
            identity.noted_labels,
            BTreeMap::from([("node-role.kubernetes.io/node".to_owned(), String::new())])
        );
        assert!(identity.instance_labels.is_empty());
        for use_ip_based_node_names in [false, true] {
            let cluster = cluster(use_ip_based_node_names);
            for name in [ID, "ip-10-0-3-4.eu-west-1.compute.internal"] {
                assert!(identify(name, &instance(), &cluster).is_ok(), "{name} {cluster:?}");
            }
        }
        let virginia = AwsCluster { region: "us-east-1".into(), ..cluster(true) };
        assert!(identify("ip-10-0-3-4.ec2.internal", &instance(), &virginia).is_ok());
    }

    #[test]
    fn a_node_may_have_its_instances_dns_name() {
        let instance = Ec2Instance { private_dns_name: "ip-10-0-9-9.corp.example.com".into(), ..instance() };
        for use_ip_based_node_names in [false, true] {
            let cluster = cluster(use_ip_based_node_names);
            for name in [
                // The DNS name that EC2 reports.
                "ip-10-0-9-9.corp.example.com",
                // The name in a subnet with resource-based names (EC2 User Guide, "EC2 instance hostnames and domains").
                "i-0123456789abcdef0.eu-west-1.compute.internal",
                // The names in a VPC whose DHCP options set a custom domain.
                "ip-10-0-3-4.corp.example.com",
                "i-0123456789abcdef0.corp.example.com",
            ] {
                assert!(identify(name, &instance, &cluster).is_ok(), "{name} {cluster:?}");
            }
            for name in [
                "ip-10-0-3-44.corp.example.com",
                "ip-10-0-3-4x.corp.example.com",
                "i-0123456789abcdef1.eu-west-1.compute.internal",
                "x.i-0123456789abcdef0",
                "corp.example.com",
                "",
            ] {
                let refusal = identify(name, &instance, &cluster).unwrap_err();
                assert_eq!(refusal.reason(), "InstanceOfOtherNode", "{name}");
            }
        }
        let nameless =
            Ec2Instance { private_ip_address: String::new(), private_dns_name: String::new(), ..instance };
        for name in ["", "ip-", "ip-.corp.example.com"] {
            assert!(identify(name, &nameless, &cluster(true)).is_err(), "{name:?}");
        }
    }

    #[test]
    fn pods_get_the_only_prefix_of_the_primary_interface() {
        let interface = |device_index, prefixes: &[&str]| Ec2NetworkInterface {
            device_index,
            ipv6_prefixes: prefixes.iter().map(|prefix| (*prefix).to_owned()).collect(),
            ..Ec2NetworkInterface::default()
        };
        let with = |network_interfaces: Vec<Ec2NetworkInterface>| {
            pod_ranges(&Ec2Instance { network_interfaces, ..instance() })
        };
        let prefix = "2001:db8:0:1:a::/80";
        assert_eq!(with(vec![interface(0, &[prefix])]).unwrap(), [prefix]);
        let second = interface(1, &["2001:db8:0:1:b::/80"]);
        assert_eq!(with(vec![second.clone(), interface(0, &[prefix])]).unwrap(), [prefix]);
        for (interfaces, expected) in [
            (vec![], "no IPv6 prefix"),
            (vec![interface(0, &[]), second], "no IPv6 prefix"),
            (vec![interface(0, &[prefix, "2001:db8:0:1:c::/80"])], "more than one IPv6 prefix"),
            (vec![interface(0, &["fe80"])], "is not an address range"),
        ] {
            let problem = with(interfaces).unwrap_err().to_string();
            assert!(problem.contains(expected) && problem.contains(ID), "{problem}");
        }
    }

    #[test]
    fn a_spot_instance_gets_its_label() {
        let spot = Ec2Instance { lifecycle: "spot".into(), ..instance() };
        let labels = identify(ID, &spot, &cluster(false)).unwrap().instance_labels;
        assert_eq!(labels["node-role.kubernetes.io/spot-worker"], "true");
    }

    #[test]
    fn other_machines_are_rejected() {
        let without = |tag: &str| {
            let mut instance = instance();
            instance.tags.remove(tag);
            instance
        };
        let mut foreign = instance();
        foreign.tags.insert(CLUSTER_TAG.into(), "other.example.com".into());
        let without_address = Ec2Instance { private_ip_address: String::new(), ..instance() };
        let stopped = Ec2Instance { state: "stopped".into(), ..instance() };
        let terminated = Ec2Instance { state: "terminated".into(), ..instance() };
        for (node, instance, reason, expected) in [
            ("i-0fffffffffffffff0", instance(), "InstanceOfOtherNode", ID),
            ("ip-10-0-3-5.eu-west-1.compute.internal", instance(), "InstanceOfOtherNode", ID),
            ("ip-.eu-west-1.compute.internal", without_address, "InstanceOfOtherNode", ID),
            (ID, foreign, "InstanceOfOtherCluster", "the cluster other.example.com"),
            (ID, without(CLUSTER_TAG), "InstanceOfOtherCluster", "no tag KubernetesCluster"),
            (ID, without(INSTANCE_GROUP_TAG), "InstanceGroupUnknown", INSTANCE_GROUP_TAG),
            (ID, stopped, "InstanceNotRunning", "stopped"),
            (ID, terminated, "InstanceNotRunning", "terminated"),
        ] {
            let refusal = identify(node, &instance, &cluster(false)).unwrap_err();
            assert_eq!(refusal.reason(), reason);
            assert!(refusal.to_string().contains(expected), "{refusal}");
            // A removed tag or a stopped instance does not prove that the machine belongs to another Node.
            let is_anothers = reason == "InstanceOfOtherNode" || expected.starts_with("the cluster ");
            assert_eq!(refusal.is_definite(), is_anothers, "{refusal}");
        }
    }
}
