//! Identifies the machine of a Node on bare metal: the `Host` object with the Node's name, which an operator enrolled.
//!
//! On bare metal, the Node's name proves its machine. The bootstrap server certifies a kubelet only under the name of the `Host` whose key
//! signed the request. The API server lets a kubelet write only its own Node (NodeRestriction).
//!
//! Upstream does not identify or label such a Node (`pkg/nodeidentity/metal`). Source of the object: `pkg/apis/kops/v1alpha2/host.go`.

use std::collections::BTreeMap;

use super::{Identity, Refusal};
use crate::bootstrap::node_config::is_dns_name;
use crate::labels::INSTANCE_GROUP;
use crate::pod_ranges::{PodRangeProblem, is_range};

/// The namespace of `Host` objects (upstream: `buildHostData` in `pkg/commands/toolbox_enroll.go`).
pub const NAMESPACE: &str = "kops-system";

/// An enrolled machine, from its `Host` object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// The name of the `Host` and of its Node.
    pub name: String,
    /// The public key for the machine's signatures, in PEM.
    pub public_key: String,
    pub instance_group: String,
    /// The address ranges for the machine's pods.
    pub pod_cidrs: Vec<String>,
}

/// The machine's id in logs. Certificate renewal also identifies the machine by this id.
pub fn instance(name: &str) -> String {
    format!("{NAMESPACE}/{name}")
}

/// Identifies the machine of the Node with this name. `host` is `None` if no `Host` has this name.
pub fn identify(node: &str, host: Option<&Host>) -> Result<Identity, Refusal> {
    let host = host.ok_or_else(|| Refusal::NotEnrolled { name: node.to_owned() })?;
    if !is_dns_name(&host.instance_group) {
        let missing =
            "spec.instanceGroup of its Host is not a valid name of a group; `kops toolbox enroll` writes it"
                .to_owned();
        return Err(Refusal::NoInstanceGroup { instance: instance(&host.name), missing });
    }
    let instance_group = host.instance_group.clone();
    let proven_labels = BTreeMap::from([(INSTANCE_GROUP.to_owned(), instance_group.clone())]);
    Ok(Identity { instance_group, proven_labels, ..Identity::default() })
}

/// The pod address ranges of a machine (upstream: `cmd/kops-controller/controllers/metalipam.go`).
pub fn pod_ranges(host: &Host) -> Result<Vec<String>, PodRangeProblem> {
    let machine = || instance(&host.name);
    if let Some(range) = host.pod_cidrs.iter().find(|range| !is_range(range)) {
        return Err(PodRangeProblem::Malformed { machine: machine(), range: range.clone() });
    }
    match host.pod_cidrs.is_empty() {
        false => Ok(host.pod_cidrs.clone()),
        true => Err(PodRangeProblem::None {
            machine: machine(),
            wanted: "range in spec.podCIDRs of its Host",
            to_do: "enrol the machine with `kops toolbox enroll --pod-cidr`, or add a range there",
        }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn host() -> Host {
        Host { name: "vm1".into(), instance_group: "nodes-main".into(), ..Host::default() }
    }

    #[test]
    fn a_node_is_identified_as_the_host_of_its_name() {
        let identity = identify("vm1", Some(&host())).unwrap();
        assert_eq!(identity.instance_group, "nodes-main");
        assert_eq!(identity.proven_labels["kops.k8s.io/instancegroup"], "nodes-main");
        assert!(identity.noted_labels.is_empty());
        let refusal = identify("vm2", None).unwrap_err();
        assert_eq!((refusal.reason(), refusal.is_definite()), ("HostNotFound", false));
        for group in ["", "../nodes", "Nodes"] {
            let refusal =
                identify("vm1", Some(&Host { instance_group: group.into(), ..host() })).unwrap_err();
            assert_eq!(refusal.reason(), "InstanceGroupUnknown", "{group}");
        }
    }

    #[test]
    fn pods_get_all_ranges_of_the_host() {
        let with = |ranges: &[&str]| {
            let pod_cidrs = ranges.iter().map(|range| (*range).to_owned()).collect();
            pod_ranges(&Host { pod_cidrs, ..host() })
        };
        assert_eq!(with(&["10.1.0.0/24", "2001:db8::/80"]).unwrap(), ["10.1.0.0/24", "2001:db8::/80"]);
        assert!(with(&[]).unwrap_err().to_string().contains("no range in spec.podCIDRs"));
        assert!(
            with(&["10.1.0.0/24", "10.2"])
                .unwrap_err()
                .to_string()
                .contains("\"10.2\" is not an address range")
        );
    }
}
