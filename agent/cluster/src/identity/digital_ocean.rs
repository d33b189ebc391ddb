//! Identifies the machine of a Node on DigitalOcean by kOps' tags of the droplet. The Node's providerID has the droplet's number. Changing
//! tags requires a token of the account.
//!
//! Sources: upstream's `upup/pkg/fi/cloudup/do/cloud.go` and `utils.go` (names of tags), `verifier.go` in the same folder (names and
//! addresses), and `pkg/nodeidentity/do/identify.go` (states, roles). Unlike upstream, this module requires that the droplet belongs to
//! this cluster and to exactly one group.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::machine::{CloudMachine, ProviderIds, role_label};
use super::{Identity, Refusal, tags};
use crate::machine_id::{IdForm, MachineId};

/// The key of the tag with the name of the cluster.
const CLUSTER_TAG: &str = "KubernetesCluster:";
/// The key of an additional tag of control-plane droplets.
const CONTROL_PLANE_TAG: &str = "KubernetesCluster-Master:";
/// The key of the tag with the name of the instance group.
const INSTANCE_GROUP_TAG: &str = "kops-instancegroup:";
/// The key of the tag with the role of the instance group. kOps sets this tag since 1.36.
const INSTANCE_ROLE_TAG: &str = "kops-instance-role:";
/// The form of DigitalOcean's providerIDs.
pub const PROVIDER_IDS: ProviderIds = ProviderIds {
    cloud: "DigitalOcean",
    prefix: "digitalocean://",
    form: "digitalocean://12345678",
    id: |id| IdForm::Number.parse(id),
};
/// The states in which a droplet may bootstrap. DigitalOcean reports `new` for a while after the droplet has started.
const AT_WORK: [&str; 2] = ["active", "new"];

/// A droplet as DigitalOcean's API reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Droplet {
    /// The droplet's number. DigitalOcean never reuses it.
    pub id: u64,
    pub name: String,
    /// `active`, `off`, …
    pub status: String,
    pub tags: Vec<String>,
    /// The droplet's private addresses in DigitalOcean's order, IPv4 first.
    pub private_ips: Vec<IpAddr>,
    pub public_ips: Vec<IpAddr>,
    /// When DigitalOcean created the droplet, in seconds since 1970; `None` if the answer does not have the time.
    pub created: Option<i64>,
}

impl Droplet {
    /// The cluster in the droplet's name, if it is another cluster with the same tag as `cluster`. kOps names a droplet `GROUP.CLUSTER` or
    /// `GROUP.masters.CLUSTER` (upstream: `AutoscalingGroupName` in `pkg/model/names.go`). The name keeps the dots that a tag cannot have.
    /// An operator may choose a name of a different form, which names no cluster.
    fn cluster_of_name(&self, cluster: &str) -> Option<&str> {
        let begin = self.name.len().checked_sub(cluster.len())?;
        let owner = self.name.get(begin..)?;
        let is_written_so = self.name[..begin].ends_with('.');
        (is_written_so && owner != cluster && cluster_tag(owner) == cluster_tag(cluster)).then_some(owner)
    }
}

/// The tag of all droplets of a cluster. Tags cannot contain dots, so kOps replaces them by dashes. Clusters whose names differ only in
/// dots and dashes share a tag, and only the names of their droplets distinguish these clusters.
pub fn cluster_tag(cluster: &str) -> String {
    format!("{CLUSTER_TAG}{}", cluster.replace('.', "-"))
}

impl CloudMachine for Droplet {
    fn id(&self) -> MachineId {
        self.id.into()
    }

    fn provider_id(&self) -> String {
        format!("{}{}", PROVIDER_IDS.prefix, self.id)
    }

    /// The name of the droplet's Node: the droplet's first private address or, without a private address, the droplet's own name.
    fn node_name(&self) -> String {
        self.private_ips.first().map_or_else(|| self.name.clone(), ToString::to_string)
    }

    /// The first private address. The challenge request never uses the public network.
    fn called_back_at(&self) -> Option<IpAddr> {
        self.private_ips.first().copied()
    }

    fn certificate_names(&self) -> Vec<String> {
        self.private_ips.iter().map(ToString::to_string).collect()
    }

    /// The label of the droplet's role. Older droplets have no role tag, so the label follows from the control-plane tag.
    fn noted_labels(&self) -> BTreeMap<String, String> {
        let untagged = if tags::values(&self.tags, CONTROL_PLANE_TAG).next().is_some() {
            "ControlPlane"
        } else {
            "Node"
        };
        role_label(tags::values(&self.tags, INSTANCE_ROLE_TAG).next().unwrap_or(untagged))
            .into_iter()
            .collect()
    }

    fn created(&self) -> Option<i64> {
        self.created
    }

    fn identify(&self, cluster: &str) -> Result<Identity, Refusal> {
        let instance = self.id.to_string();
        let own = cluster_tag(cluster);
        let own = own.strip_prefix(CLUSTER_TAG).unwrap_or_default();
        tags::require_cluster(&instance, &self.tags, CLUSTER_TAG, own, cluster)?;
        if let Some(owner) = self.cluster_of_name(cluster) {
            let owner = format!("the cluster {owner}");
            return Err(Refusal::OtherCluster { instance, owner, cluster: cluster.to_owned() });
        }
        if !AT_WORK.contains(&self.status.as_str()) {
            return Err(Refusal::NotRunning { instance, state: self.status.clone() });
        }
        tags::identity(&instance, &self.tags, INSTANCE_GROUP_TAG)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::machine::identify_node;
    use super::*;

    const CLUSTER: &str = "c.example.com";

    fn tagged(tags: &[&str]) -> Droplet {
        Droplet {
            id: 4711,
            name: "nodes-c-example-com-1".into(),
            status: "active".into(),
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            private_ips: vec![IpAddr::from([10, 10, 0, 2])],
            public_ips: vec![IpAddr::from([192, 0, 2, 1])],
            created: None,
        }
    }

    fn droplet() -> Droplet {
        tagged(&["KubernetesCluster:c-example-com", "kops-instancegroup:nodes", "kops-instance-role:Node"])
    }

    fn role(tags: &[&str]) -> Vec<String> {
        tagged(tags).noted_labels().into_keys().collect()
    }

    #[test]
    fn a_droplet_of_the_cluster_has_the_group_of_its_tag() {
        let identity = identify_node("10.10.0.2", &droplet(), Some(&droplet()), CLUSTER).unwrap();
        assert_eq!(identity.instance_group, "nodes");
        assert_eq!(identity.noted_labels.keys().collect::<Vec<_>>(), ["node-role.kubernetes.io/node"]);
        assert!(Droplet { status: "new".into(), ..droplet() }.identify(CLUSTER).is_ok());
        assert_eq!(droplet().certificate_names(), ["10.10.0.2"]);
        let public = Droplet { private_ips: Vec::new(), ..droplet() };
        assert_eq!(public.node_name(), "nodes-c-example-com-1");
    }

    #[test]
    fn foreign_groupless_and_stopped_droplets_are_rejected() {
        for (tags, reason, is_definite) in [
            (vec!["KubernetesCluster:other", "kops-instancegroup:nodes"], "InstanceOfOtherCluster", true),
            (vec!["kops-instancegroup:nodes"], "InstanceOfOtherCluster", false),
            (vec!["KubernetesCluster-Master:c-example-com"], "InstanceOfOtherCluster", false),
            (vec!["KubernetesCluster:"], "InstanceOfOtherCluster", false),
            (
                vec![
                    "KubernetesCluster:c-example-com",
                    "KubernetesCluster:other",
                    "kops-instancegroup:nodes",
                ],
                "InstanceOfOtherCluster",
                false,
            ),
            (vec!["KubernetesCluster:c-example-com"], "InstanceGroupUnknown", false),
            (vec!["KubernetesCluster:c-example-com", "kops-instancegroup:"], "InstanceGroupUnknown", false),
            (
                vec!["KubernetesCluster:c-example-com", "kops-instancegroup:a", "kops-instancegroup:b"],
                "InstanceGroupUnknown",
                false,
            ),
        ] {
            let refusal = tagged(&tags).identify(CLUSTER).unwrap_err();
            assert_eq!((refusal.reason(), refusal.is_definite()), (reason, is_definite), "{tags:?}");
        }
        for status in ["off", "archive", ""] {
            let droplet = Droplet { status: status.into(), ..droplet() };
            assert_eq!(droplet.identify(CLUSTER).unwrap_err().reason(), "InstanceNotRunning");
        }
    }

    #[test]
    fn only_a_node_with_another_droplets_name_is_an_impostor() {
        let moved = Droplet { private_ips: vec![IpAddr::from([10, 20, 0, 9])], ..droplet() };
        let refused = |droplet: &Droplet, namesake: Option<&Droplet>| {
            let refusal = identify_node("10.10.0.2", droplet, namesake, CLUSTER).unwrap_err();
            (refusal.reason(), refusal.is_definite())
        };
        assert_eq!(refused(&moved, None), ("InstanceOfOtherNode", false));
        let victim = Droplet { id: 1, private_ips: vec![IpAddr::from([10, 10, 0, 1])], ..droplet() };
        assert_eq!(refused(&victim, Some(&droplet())), ("InstanceOfOtherNode", true));
    }

    #[test]
    fn the_role_comes_from_the_role_tag_or_older_tags() {
        assert_eq!(role(&["kops-instance-role:ControlPlane"]), ["node-role.kubernetes.io/control-plane"]);
        assert_eq!(role(&["kops-instance-role:APIServer"]), ["node-role.kubernetes.io/api-server"]);
        assert!(role(&["kops-instance-role:Bastion"]).is_empty());
        assert_eq!(role(&["KubernetesCluster-Master:c"]), ["node-role.kubernetes.io/control-plane"]);
        assert_eq!(role(&[]), ["node-role.kubernetes.io/node"]);
        let both = ["KubernetesCluster-Master:c", "kops-instance-role:Node"];
        assert_eq!(role(&both), ["node-role.kubernetes.io/node"]);
    }

    #[test]
    fn the_droplets_name_decides_between_clusters_with_the_same_tag() {
        let called = |name: &str, cluster: &str| {
            let droplet = Droplet { name: name.into(), ..droplet() };
            droplet.identify(cluster).map_err(|refusal| (refusal.reason(), refusal.is_definite()))
        };
        for name in ["nodes.c.example.com", "a.masters.c.example.com", "a.b.c.example.com", "web-7", "", "ü"]
        {
            assert!(called(name, CLUSTER).is_ok(), "{name}");
        }
        // In kOps' names, a dot precedes the cluster's name. So an operator must have chosen these names.
        for name in ["nodes-c-example.com", "c-example.com", "c.example-com", "nodes-c-example-com-1"] {
            assert!(called(name, CLUSTER).is_ok(), "{name}");
        }
        for name in ["nodes.c-example.com", "a.masters.c.example-com", "a.apiservers.c-example-com"] {
            assert_eq!(called(name, CLUSTER).unwrap_err(), ("InstanceOfOtherCluster", true), "{name}");
        }
        assert!(called("nodes.c-example.com", "c-example.com").is_ok());
        assert!(called("nodes.c.example.com", "c-example.com").is_err());
    }
}
