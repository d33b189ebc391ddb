//! Pacing: before a change restarts essential parts of a running node, the node takes a slot. A group has few slots, so a mistake
//! in the cluster spec affects one node and not all nodes.
//!
//! `kops_agent_plan::disruption` tells whether a plan is such a change. [`message`] is the protocol between a node and the bootstrap server. On
//! the server, [`slots`] decides which node has a slot. `docs/pacing.md` defines the protocol, which is kops-agent's own; kOps'
//! kops-controller has no equivalent.

mod auto_drain;
pub mod drain;
pub mod message;
pub mod slots;

use std::collections::BTreeMap;

use crate::bootstrap::node_config::is_dns_name;
use crate::labels::INSTANCE_GROUP;

pub use auto_drain::{Versions, drains};

/// The file of the API server's static pod (kops: `nodeup/pkg/model/kube_apiserver.go`).
pub const API_SERVER_MANIFEST: &str = "/etc/kubernetes/manifests/kube-apiserver.manifest";

/// The namespace of the Leases. It contains no other Leases, because an RBAC rule without fixed names covers all Leases of a namespace. In
/// `kube-system`, such a rule would cover the Leases of kube-scheduler and kube-controller-manager.
pub const NAMESPACE: &str = "kops-agent";
/// The label of a slot's Lease. Its value is the group of the slot.
pub const GROUP_LABEL: &str = "kops-agent/disruption-group";
/// The single group of all control planes, whatever their instance groups: their etcd members and API servers depend on each
/// other.
pub const CONTROL_PLANE: &str = "control-plane";

/// Kubernetes' label of a control plane, which a kubelet cannot set itself (the admission plugin NodeRestriction).
pub const CONTROL_PLANE_LABEL: &str = "node-role.kubernetes.io/control-plane";
/// The labels that kops-controller gives to Nodes other than control planes. A kubelet cannot set these labels itself.
const ROLE_LABELS: [&str; 2] = ["node-role.kubernetes.io/node", "node-role.kubernetes.io/api-server"];
/// The single group of all Nodes that have a role label but no instance group label. kOps sets the instance group label only if the group's
/// own `nodeLabels` have it; `kops create` writes the label into the group's `nodeLabels`.
pub const WITHOUT_GROUP: &str = "without-group";
/// The prefix of the Leases' names.
const PREFIX: &str = "kops-agent-disruption.";

/// The group whose slots a Node takes, from its labels. `None` if the Node is not labelled yet, or if its group is not a DNS
/// name.
pub fn group_of(labels: &BTreeMap<String, String>) -> Option<String> {
    if labels.contains_key(CONTROL_PLANE_LABEL) {
        return Some(CONTROL_PLANE.to_owned());
    }
    let has_role = ROLE_LABELS.iter().any(|role| labels.contains_key(*role));
    match labels.get(INSTANCE_GROUP) {
        Some(group) => is_dns_name(group).then(|| group.clone()),
        None => has_role.then(|| WITHOUT_GROUP.to_owned()),
    }
}

/// How many nodes of a group may be disrupted at a time. This is the `max_unavailable` that a node requests, but at most 1 for control
/// planes.
pub fn budget(group: &str, max_unavailable: u32) -> u32 {
    if group == CONTROL_PLANE { max_unavailable.min(1) } else { max_unavailable }
}

pub fn lease_name(group: &str, number: u32) -> String {
    format!("{PREFIX}{group}.{number}")
}

/// The number of the slot with this Lease; `None` if the Lease is not a slot of this group.
pub fn number_of(lease: &str, group: &str) -> Option<u32> {
    let number = lease.strip_prefix(PREFIX)?.strip_prefix(group)?.strip_prefix('.')?.parse().ok()?;
    (lease_name(group, number) == lease).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn control_planes_are_one_group_and_workers_have_their_labels_group() {
        let of = |pairs: &[(&str, &str)]| group_of(&labels(pairs));
        assert_eq!(of(&[(INSTANCE_GROUP, "nodes-a")]).as_deref(), Some("nodes-a"));
        let control_plane = [(INSTANCE_GROUP, "control-plane-a"), (CONTROL_PLANE_LABEL, "")];
        assert_eq!(of(&control_plane).as_deref(), Some(CONTROL_PLANE));
        assert_eq!(of(&[]), None);
        assert_eq!(
            of(&[("node-role.kubernetes.io/node", ""), ("team", "a")]).as_deref(),
            Some(WITHOUT_GROUP)
        );
        assert_eq!(of(&[(INSTANCE_GROUP, "Not_A_Name")]), None);
        assert_eq!((budget("nodes", 3), budget(CONTROL_PLANE, 3), budget(CONTROL_PLANE, 0)), (3, 1, 0));
    }

    #[test]
    fn a_lease_belongs_to_one_group() {
        assert_eq!(lease_name("nodes", 0), "kops-agent-disruption.nodes.0");
        assert_eq!(number_of("kops-agent-disruption.nodes.12", "nodes"), Some(12));
        for (lease, group) in [
            ("kops-agent-disruption.nodes.1.2", "nodes"),
            ("kops-agent-disruption.nodes.01", "nodes"),
            ("kops-agent-disruption.nodes.+1", "nodes"),
            ("kops-agent-disruption.nodes.x", "nodes"),
            ("kops-agent-disruption.nodes2.1", "nodes"),
            ("kops-controller-leader", "nodes"),
        ] {
            assert_eq!(number_of(lease, group), None, "{lease}");
        }
        assert_eq!(number_of("kops-agent-disruption.nodes.1.2", "nodes.1"), Some(2));
    }
}
