//! Identifies the machine of a Node on Hetzner Cloud by kOps' labels of the server. The Node's providerID has the server's number. Changing
//! labels requires a token of the project.
//!
//! Sources: upstream's `upup/pkg/fi/cloudup/hetzner/cloud.go` (names of labels) and `verifier.go` in the same folder. Unlike upstream, this
//! module requires that the server runs and belongs to this cluster.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use super::machine::{CloudMachine, ProviderIds, role_label};
use super::{Identity, Refusal};
use crate::machine_id::{IdForm, MachineId};

pub const CLUSTER_LABEL: &str = "kops.k8s.io/cluster";
pub const INSTANCE_GROUP_LABEL: &str = "kops.k8s.io/instance-group";
pub const INSTANCE_ROLE_LABEL: &str = "kops.k8s.io/instance-role";
/// The prefix of Hetzner labels that record the Node labels of the instance group.
const NODE_LABEL_PREFIX: &str = "node-label.kops.k8s.io.";
/// The form of Hetzner Cloud's providerIDs (upstream: `IdentifyNode` in `pkg/nodeidentity/hetzner/identify.go`).
pub const PROVIDER_IDS: ProviderIds = ProviderIds {
    cloud: "Hetzner Cloud",
    prefix: "hcloud://",
    form: "hcloud://12345678",
    id: |id| IdForm::Number.parse(id),
};
/// The states in which a server may bootstrap. Hetzner reports `starting` for a while after the server has started.
const AT_WORK: [&str; 2] = ["running", "starting"];

/// A server as Hetzner's API reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HetznerServer {
    /// The server's number. Hetzner never reuses it.
    pub id: u64,
    pub name: String,
    /// `running`, `off`, …
    pub status: String,
    pub labels: BTreeMap<String, String>,
    pub public_ipv4: Option<Ipv4Addr>,
    /// The server's address in each private network, in Hetzner's order.
    pub private_ips: Vec<IpAddr>,
    /// When Hetzner created the server, in seconds since 1970; `None` if the answer does not have the time.
    pub created: Option<i64>,
}

impl CloudMachine for HetznerServer {
    fn id(&self) -> MachineId {
        self.id.into()
    }

    fn provider_id(&self) -> String {
        format!("{}{}", PROVIDER_IDS.prefix, self.id)
    }

    /// The server's own name, which is unique in the project (Hetzner Cloud API, "Create a Server": `uniqueness_error`).
    fn node_name(&self) -> String {
        self.name.clone()
    }

    /// The first private address. The challenge request never uses the public network.
    fn called_back_at(&self) -> Option<IpAddr> {
        self.private_ips.first().copied()
    }

    /// The public address, then the private addresses.
    fn certificate_names(&self) -> Vec<String> {
        let public = self.public_ipv4.map(|address| address.to_string());
        public.into_iter().chain(self.private_ips.iter().map(ToString::to_string)).collect()
    }

    fn noted_labels(&self) -> BTreeMap<String, String> {
        let role = self.labels.get(INSTANCE_ROLE_LABEL).and_then(|role| role_label(role));
        let noted = self.labels.iter().filter_map(|(key, value)| {
            Some((key.strip_prefix(NODE_LABEL_PREFIX)?.to_owned(), value.clone()))
        });
        role.into_iter().chain(noted).collect()
    }

    fn created(&self) -> Option<i64> {
        self.created
    }

    fn identify(&self, cluster: &str) -> Result<Identity, Refusal> {
        let instance = self.id.to_string();
        let label = |key| self.labels.get(key).map(String::as_str).filter(|value| !value.is_empty());
        let owner = label(CLUSTER_LABEL);
        match owner {
            Some(owner) if owner == cluster => {}
            Some(owner) => {
                let owner = format!("the cluster {owner}");
                return Err(Refusal::OtherCluster { instance, owner, cluster: cluster.to_owned() });
            }
            None => {
                let says = format!("it has no label {CLUSTER_LABEL}");
                return Err(Refusal::NoCluster { instance, says, cluster: cluster.to_owned() });
            }
        }
        if !AT_WORK.contains(&self.status.as_str()) {
            return Err(Refusal::NotRunning { instance, state: self.status.clone() });
        }
        let Some(instance_group) = label(INSTANCE_GROUP_LABEL) else {
            let missing = format!("it has no label {INSTANCE_GROUP_LABEL}");
            return Err(Refusal::NoInstanceGroup { instance, missing });
        };
        Ok(Identity { instance_group: instance_group.to_owned(), ..Identity::default() })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::machine::identify_node;
    use super::*;

    const CLUSTER: &str = "c.example.com";

    fn server() -> HetznerServer {
        let labels = [(CLUSTER_LABEL, CLUSTER), (INSTANCE_GROUP_LABEL, "nodes")];
        HetznerServer {
            id: 4711,
            name: "nodes-1a2b".into(),
            status: "running".into(),
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            public_ipv4: Some(Ipv4Addr::new(192, 0, 2, 1)),
            private_ips: vec![IpAddr::from([10, 0, 0, 2])],
            created: None,
        }
    }

    fn refused(change: impl FnOnce(&mut HetznerServer)) -> &'static str {
        let mut server = server();
        change(&mut server);
        server.identify(CLUSTER).unwrap_err().reason()
    }

    #[test]
    fn a_running_server_has_the_group_of_its_label() {
        assert_eq!(server().identify(CLUSTER).unwrap().instance_group, "nodes");
        let starting = HetznerServer { status: "starting".into(), ..server() };
        assert!(starting.identify(CLUSTER).is_ok());
        assert_eq!(server().certificate_names(), ["192.0.2.1", "10.0.0.2"]);
        assert_eq!(HetznerServer { public_ipv4: None, ..server() }.certificate_names(), ["10.0.0.2"]);
    }

    #[test]
    fn a_node_gets_the_labels_that_kops_recorded() {
        let mut server = server();
        for (key, value) in [
            (INSTANCE_ROLE_LABEL, "Node"),
            ("node-label.kops.k8s.io.tier", "web"),
            ("kops.k8s.io/instance-userdata", "hash"),
        ] {
            server.labels.insert(key.into(), value.into());
        }
        let identity = identify_node("nodes-1a2b", &server, Some(&server), CLUSTER).unwrap();
        assert_eq!(identity.instance_group, "nodes");
        let noted = [("node-role.kubernetes.io/node", ""), ("tier", "web")];
        assert_eq!(
            identity.noted_labels,
            noted.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
        );
    }

    #[test]
    fn only_a_node_with_another_servers_name_is_an_impostor() {
        let renamed = HetznerServer { name: "web-7".into(), ..server() };
        let refused = |server: &HetznerServer, namesake: Option<&HetznerServer>| {
            let refusal = identify_node("nodes-1a2b", server, namesake, CLUSTER).unwrap_err();
            (refusal.reason(), refusal.is_definite())
        };
        assert_eq!(refused(&renamed, None), ("InstanceOfOtherNode", false));
        // A server with the Node's name exists, but the Node's providerID names a different server.
        let own = server();
        let victim = HetznerServer { id: 1, name: "control-plane-3c4d".into(), ..server() };
        assert_eq!(refused(&victim, Some(&own)), ("InstanceOfOtherNode", true));
        // The Node is also rejected if either server is off.
        let off = |server: &HetznerServer| HetznerServer { status: "off".into(), ..server.clone() };
        assert_eq!(refused(&off(&victim), Some(&own)), ("InstanceOfOtherNode", true));
        assert_eq!(refused(&victim, Some(&off(&own))), ("InstanceOfOtherNode", true));
    }

    #[test]
    fn foreign_groupless_and_stopped_servers_are_rejected() {
        let other = |server: &mut HetznerServer| {
            server.labels.insert(CLUSTER_LABEL.into(), "other.example.com".into());
        };
        assert_eq!(refused(other), "InstanceOfOtherCluster");
        assert_eq!(refused(|server| drop(server.labels.remove(CLUSTER_LABEL))), "InstanceOfOtherCluster");
        for status in ["off", "deleting", "initializing", ""] {
            assert_eq!(refused(|server| server.status = status.into()), "InstanceNotRunning");
        }
        assert_eq!(
            refused(|server| drop(server.labels.remove(INSTANCE_GROUP_LABEL))),
            "InstanceGroupUnknown"
        );
        let empty = |server: &mut HetznerServer| {
            server.labels.insert(INSTANCE_GROUP_LABEL.into(), String::new());
        };
        assert_eq!(refused(empty), "InstanceGroupUnknown");
    }
}
