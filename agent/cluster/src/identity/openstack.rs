//! Identifies the machine of a Node on OpenStack by kOps' metadata of the server. The Node's providerID has the server's UUID. Changing the
//! metadata requires a login to the project.
//!
//! Sources: upstream's `pkg/model/openstackmodel/servergroup.go` (`buildInstances`: metadata, names),
//! `upup/pkg/fi/cloudup/openstack/cloud.go` (keys of metadata), `verifier.go` in the same folder (names and addresses), and
//! `pkg/nodeidentity/openstack/identify.go` (labels). Unlike upstream, this module requires that the server runs and belongs to this
//! cluster.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::machine::{CloudMachine, ProviderIds, role_label};
use super::{Identity, Refusal};
use crate::machine_id::{IdForm, MachineId};

/// The metadata key with the name of the cluster. A bastion lacks this key.
const CLUSTER: &str = "KubernetesCluster";
/// The metadata key with the name of the instance group.
const INSTANCE_GROUP: &str = "KopsInstanceGroup";
/// The metadata key with the role of the instance group.
const ROLE: &str = "KopsRole";
/// The metadata key with the name of the cluster's network.
const NETWORK: &str = "KopsNetwork";
/// The prefix of metadata keys that record a label of the group's nodes. In the rest of the key, all letters are in lower case, and `_`
/// stands for every character that Nova does not allow.
const NODE_LABEL: &str = "k8s.io_cluster-autoscaler_node-template_label_";
/// The form of OpenStack's providerIDs (OpenStack's cloud controller: `InstanceMetadata` in `pkg/openstack/instancesv2.go`). Upstream also
/// accepts `openstack://UUID` (`IdentifyNode` in `pkg/nodeidentity/openstack/identify.go`).
pub const PROVIDER_IDS: ProviderIds = ProviderIds {
    cloud: "OpenStack",
    prefix: "openstack://",
    form: "openstack:///5c89f7b6-01a0-4eaa-ac03-85cd43d82eeb",
    id: |id| IdForm::Uuid.parse(id.strip_prefix('/').unwrap_or(id)),
};
/// The states in which a server's operating system runs or will run soon (Compute API guide, "Server concepts"). `RESCUE` is not one of
/// these states: a server in rescue mode does not run the operating system on its own disk.
const AT_WORK: [&str; 6] = ["ACTIVE", "REBOOT", "HARD_REBOOT", "PASSWORD", "MIGRATING", "VERIFY_RESIZE"];

/// A server as Nova's API reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenstackServer {
    /// The server's UUID. Nova never reuses it.
    pub id: MachineId,
    pub name: String,
    /// `ACTIVE`, `SHUTOFF`, …
    pub status: String,
    pub metadata: BTreeMap<String, String>,
    /// The server's addresses: by network, and in Nova's order in each network.
    pub addresses: Vec<ServerAddress>,
    /// When Nova created the server, in seconds since 1970; `None` if the answer does not have the time.
    pub created: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    pub network: String,
    pub address: IpAddr,
    /// Whether the address is a floating IP: a router holds the address, and forwards its packets to the server.
    pub is_floating: bool,
}

impl OpenstackServer {
    /// Whether the server's metadata names this cluster.
    pub fn names_cluster(&self, cluster: &str) -> bool {
        self.meta(CLUSTER) == Some(cluster)
    }

    fn meta(&self, key: &str) -> Option<&str> {
        self.metadata.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }
}

impl CloudMachine for OpenstackServer {
    fn id(&self) -> MachineId {
        self.id
    }

    fn provider_id(&self) -> String {
        format!("{}/{}", PROVIDER_IDS.prefix, self.id)
    }

    fn is_named_by(&self, provider_id: &str) -> bool {
        PROVIDER_IDS.id(provider_id).is_ok_and(|id| id == self.id)
    }

    /// The server's own name. The metadata service reports this name as the hostname. Nova allows duplicate names. kOps appends six
    /// random characters (upstream: `generateInstanceName` in `upup/pkg/fi/cloudup/openstacktasks/instance.go`).
    fn node_name(&self) -> String {
        self.name.clone()
    }

    /// One of the server's own addresses. Addresses in the cluster's network come first, and IPv4 comes before IPv6. kops-controller sends
    /// no call-back to this address, because the source address of the server's own request proves which server sent it.
    fn called_back_at(&self) -> Option<IpAddr> {
        let cluster = self.meta(NETWORK);
        let own = self.addresses.iter().filter(|address| !address.is_floating);
        let first = own.min_by_key(|own| (Some(own.network.as_str()) != cluster, own.address.is_ipv6()));
        first.map(|first| first.address)
    }

    fn certificate_names(&self) -> Vec<String> {
        self.addresses.iter().map(|address| address.address.to_string()).collect()
    }

    /// The label of the server's role, and the labels of its group. Every `_` in a recorded key becomes `/`, as in upstream's
    /// kops-controller. The result may be wrong, because kOps also writes `_` for other characters.
    fn noted_labels(&self) -> BTreeMap<String, String> {
        let role = self.meta(ROLE).and_then(role_label);
        let noted = self.metadata.iter().filter_map(|(key, value)| {
            Some((key.strip_prefix(NODE_LABEL)?.replace('_', "/"), value.clone()))
        });
        role.into_iter().chain(noted).collect()
    }

    fn created(&self) -> Option<i64> {
        self.created
    }

    fn identify(&self, cluster: &str) -> Result<Identity, Refusal> {
        let instance = self.id.to_string();
        match self.meta(CLUSTER) {
            Some(owner) if owner == cluster => {}
            Some(owner) => {
                let owner = format!("the cluster {owner}");
                return Err(Refusal::OtherCluster { instance, owner, cluster: cluster.to_owned() });
            }
            None => {
                let says = format!("it has no metadata {CLUSTER}");
                return Err(Refusal::NoCluster { instance, says, cluster: cluster.to_owned() });
            }
        }
        if !AT_WORK.contains(&self.status.as_str()) {
            return Err(Refusal::NotRunning { instance, state: self.status.clone() });
        }
        match self.meta(INSTANCE_GROUP) {
            Some(group) => Ok(Identity { instance_group: group.to_owned(), ..Identity::default() }),
            None => {
                let missing = format!("it has no metadata {INSTANCE_GROUP}");
                Err(Refusal::NoInstanceGroup { instance, missing })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::machine::identify_node;
    use super::*;

    const NAME: &str = "c.example.com";

    fn with(metadata: &[(&str, &str)]) -> OpenstackServer {
        let at = |network: &str, address: &str, is_floating| ServerAddress {
            network: network.into(),
            address: address.parse().unwrap(),
            is_floating,
        };
        OpenstackServer {
            id: IdForm::Uuid.parse(IdForm::Uuid.example()).unwrap(),
            name: "nodes-1a2b3c".into(),
            status: "ACTIVE".into(),
            metadata: metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            addresses: vec![
                at("backup", "10.9.0.2", false),
                at(NAME, "192.0.2.7", true),
                at(NAME, "2001:db8::2", false),
                at(NAME, "10.0.0.2", false),
            ],
            created: None,
        }
    }

    fn server() -> OpenstackServer {
        with(&[(CLUSTER, NAME), (INSTANCE_GROUP, "nodes"), (NETWORK, NAME), ("k8s", NAME)])
    }

    #[test]
    fn a_server_of_the_cluster_has_the_group_that_kops_recorded() {
        let own = server();
        let identity = identify_node("nodes-1a2b3c", &own, Some(&own), NAME).unwrap();
        assert_eq!((identity.instance_group.as_str(), identity.noted_labels.len()), ("nodes", 0));
        for status in AT_WORK {
            assert!(OpenstackServer { status: status.into(), ..server() }.identify(NAME).is_ok());
        }
        assert_eq!(own.provider_id(), PROVIDER_IDS.form);
        assert!(own.is_named_by(PROVIDER_IDS.form) && own.is_named_by(&format!("openstack://{}", own.id)));
        for malformed in ["//", "RegionOne/", "/RegionOne/"] {
            let malformed = format!("{}{malformed}{}", PROVIDER_IDS.prefix, own.id);
            assert_eq!(PROVIDER_IDS.id(&malformed).unwrap_err().reason(), "InvalidProviderID", "{malformed}");
            assert!(!own.is_named_by(&malformed), "{malformed}");
        }
        assert!(!own.is_named_by("openstack://00000000-0000-4000-8000-000000000001"));
        assert_eq!(own.certificate_names(), ["10.9.0.2", "192.0.2.7", "2001:db8::2", "10.0.0.2"]);
    }

    #[test]
    fn the_address_is_in_the_clusters_network_and_not_floating() {
        let called_back_at = |server: &OpenstackServer| server.called_back_at().map(|ip| ip.to_string());
        assert_eq!(called_back_at(&server()).as_deref(), Some("10.0.0.2"));
        let of = |take: fn(&ServerAddress) -> bool| {
            let addresses = server().addresses.into_iter().filter(take).collect();
            OpenstackServer { addresses, ..server() }
        };
        let ipv6_only = of(|address| address.network == "backup" || address.address.is_ipv6());
        assert_eq!(called_back_at(&ipv6_only).as_deref(), Some("2001:db8::2"));
        assert_eq!(called_back_at(&of(|address| address.network == "backup")).as_deref(), Some("10.9.0.2"));
        assert_eq!(called_back_at(&of(|address| address.is_floating)), None);
        let of_no_network = with(&[(CLUSTER, NAME)]);
        assert_eq!(called_back_at(&of_no_network).as_deref(), Some("10.9.0.2"));
    }

    #[test]
    fn recorded_labels_are_read_as_upstream_reads_them() {
        let label = |key: &str| format!("{NODE_LABEL}{key}");
        let kops = label("kops.k8s.io_instancegroup");
        let (many, bad, own) = (label("a_b_c"), label("bad"), label("tier"));
        let server = with(&[
            (ROLE, "Node"),
            (&kops, "nodes"),
            (&many, "1"),
            (&bad, "no label"),
            (&own, ""),
            ("k8s.io_role_node", "1"),
        ]);
        let expected = [
            // The caller removes labels that the API server rejects.
            ("a/b/c", "1"),
            ("bad", "no label"),
            ("kops.k8s.io/instancegroup", "nodes"),
            ("node-role.kubernetes.io/node", ""),
            ("tier", ""),
        ];
        assert_eq!(
            server.noted_labels(),
            expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
        );
        for (role, label) in [("ControlPlane", "control-plane"), ("APIServer", "api-server")] {
            let expected = [(format!("node-role.kubernetes.io/{label}"), String::new())];
            assert_eq!(with(&[(ROLE, role)]).noted_labels(), expected.into());
        }
        assert!(with(&[(ROLE, "Bastion")]).noted_labels().is_empty());
    }

    #[test]
    fn foreign_groupless_and_stopped_servers_are_rejected() {
        let (own, group) = ((CLUSTER, NAME), (INSTANCE_GROUP, "nodes"));
        for (metadata, reason, is_definite) in [
            (vec![(CLUSTER, "c.example.com.au"), group], "InstanceOfOtherCluster", true),
            (vec![group], "InstanceOfOtherCluster", false),
            (vec![(CLUSTER, ""), group], "InstanceOfOtherCluster", false),
            // The metadata of a bastion.
            (vec![("k8s", NAME), group], "InstanceOfOtherCluster", false),
            (vec![own], "InstanceGroupUnknown", false),
            (vec![own, (INSTANCE_GROUP, "")], "InstanceGroupUnknown", false),
        ] {
            let refusal = with(&metadata).identify(NAME).unwrap_err();
            assert_eq!((refusal.reason(), refusal.is_definite()), (reason, is_definite), "{metadata:?}");
            assert_eq!(with(&metadata).names_cluster(NAME), metadata.contains(&own), "{metadata:?}");
        }
        for status in ["SHUTOFF", "BUILD", "RESCUE", "SHELVED_OFFLOADED", "DELETED", "ERROR", "PAUSED", ""] {
            let server = OpenstackServer { status: status.into(), ..server() };
            assert_eq!(server.identify(NAME).unwrap_err().reason(), "InstanceNotRunning", "{status}");
        }
    }

    #[test]
    fn a_node_with_another_servers_name_is_an_impostor() {
        let own = server();
        let victim = OpenstackServer {
            id: IdForm::Uuid.parse("00000000-0000-4000-8000-000000000001").unwrap(),
            name: "control-plane-4d5e6f".into(),
            ..server()
        };
        let refused = |server: &OpenstackServer, namesake: Option<&OpenstackServer>| {
            let refusal = identify_node("nodes-1a2b3c", server, namesake, NAME).unwrap_err();
            (refusal.reason(), refusal.is_definite())
        };
        assert_eq!(refused(&victim, Some(&own)), ("InstanceOfOtherNode", true));
        assert_eq!(refused(&victim, None), ("InstanceOfOtherNode", false));
    }
}
