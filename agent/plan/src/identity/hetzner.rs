//! Which node a machine on Hetzner Cloud is: the server of its number, by the labels that kOps gives to servers, which
//! only a token of the project can change.
//!
//! Sources: upstream's `upup/pkg/fi/cloudup/hetzner/cloud.go` (names of labels) and `verifier.go` there. Unlike there,
//! the server has to run, and to be of this cluster.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use super::{Identity, Refusal};

/// The label with the name of the cluster.
pub const CLUSTER_LABEL: &str = "kops.k8s.io/cluster";
/// The label with the name of the instance group.
pub const INSTANCE_GROUP_LABEL: &str = "kops.k8s.io/instance-group";
/// The label with the role of the instance group.
pub const INSTANCE_ROLE_LABEL: &str = "kops.k8s.io/instance-role";
/// What labels begin with that note down a label of the group's nodes.
const NODE_LABEL_PREFIX: &str = "node-label.kops.k8s.io.";
const FORM: &str = "hcloud://12345678";
/// The states in which a server may ask; Hetzner calls it starting for a while after it runs.
const AT_WORK: [&str; 2] = ["running", "starting"];

/// What Hetzner tells of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HetznerServer {
    /// Its number, which no other ever gets.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// `running`, `off`, …
    pub status: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its public address, if it has one.
    pub public_ipv4: Option<Ipv4Addr>,
    /// Its address in each private network, in Hetzner's order.
    pub private_ips: Vec<IpAddr>,
}

/// What a server is in a cluster.
///
/// # Errors
/// Why it is no machine of the cluster.
pub fn identify(server: &HetznerServer, cluster: &str) -> Result<Identity, Refusal> {
    let instance = server.id.to_string();
    let label = |key| server.labels.get(key).map(String::as_str).filter(|value| !value.is_empty());
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
    if !AT_WORK.contains(&server.status.as_str()) {
        return Err(Refusal::NotRunning { instance, state: server.status.clone() });
    }
    let Some(instance_group) = label(INSTANCE_GROUP_LABEL) else {
        let missing = format!("it has no label {INSTANCE_GROUP_LABEL}");
        return Err(Refusal::NoInstanceGroup { instance, missing });
    };
    Ok(Identity { instance_group: instance_group.to_owned(), ..Identity::default() })
}

/// The number of the server that a providerID names (upstream: `IdentifyNode` in `pkg/nodeidentity/hetzner/identify.go`).
///
/// # Errors
/// If it names none that Hetzner could have.
pub fn server_id(provider_id: &str) -> Result<u64, Refusal> {
    let number = provider_id.strip_prefix("hcloud://");
    number
        .filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()) && !number.starts_with('0'))
        .and_then(|number| number.parse().ok())
        .ok_or_else(|| Refusal::ProviderId {
            provider_id: provider_id.to_owned(),
            cloud: "Hetzner Cloud",
            form: FORM,
        })
}

/// Which machine the Node of that name is, if the server that it says it is is its own: a Node has the name
/// that its server had when it joined. `namesake` is the server of the cluster that has the Node's name, if one has.
///
/// Operators may rename servers, so another name alone makes no Node an impostor for certain. Where another server has the
/// Node's name, it does: no two servers of a project have the same (Hetzner Cloud API, "Create a Server": `uniqueness_error`),
/// and a kubelet's certificate is for the name of the server that has asked for it. A Node's addresses tell nothing, for its
/// kubelet writes them.
///
/// # Errors
/// Why it is not believed.
pub fn identify_node(
    node: &str,
    server: &HetznerServer,
    namesake: Option<&HetznerServer>,
    cluster: &str,
) -> Result<Identity, Refusal> {
    let instance = server.id.to_string();
    if namesake.is_some_and(|namesake| namesake.id != server.id) {
        return Err(Refusal::OtherNode { instance, expected: server.name.clone() });
    }
    let identity = identify(server, cluster)?;
    if node != server.name {
        return Err(Refusal::OtherName { instance, name: server.name.clone() });
    }
    Ok(Identity { noted_labels: noted_labels(&server.labels), ..identity })
}

fn noted_labels(labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let role = match labels.get(INSTANCE_ROLE_LABEL).map(String::as_str) {
        Some("ControlPlane") => Some("node-role.kubernetes.io/control-plane"),
        Some("Node") => Some("node-role.kubernetes.io/node"),
        Some("APIServer") => Some("node-role.kubernetes.io/api-server"),
        _ => None,
    };
    let noted = labels
        .iter()
        .filter_map(|(key, value)| Some((key.strip_prefix(NODE_LABEL_PREFIX)?.to_owned(), value.clone())));
    role.map(|role| (role.to_owned(), String::new())).into_iter().chain(noted).collect()
}

/// The addresses that its serving certificate is for: the public one, then the private ones.
pub fn certificate_names(server: &HetznerServer) -> Vec<String> {
    let public = server.public_ipv4.map(|address| address.to_string());
    public.into_iter().chain(server.private_ips.iter().map(ToString::to_string)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
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
        }
    }

    fn refused(change: impl FnOnce(&mut HetznerServer)) -> &'static str {
        let mut server = server();
        change(&mut server);
        identify(&server, CLUSTER).unwrap_err().reason()
    }

    #[test]
    fn a_running_server_of_the_cluster_is_of_its_group() {
        assert_eq!(identify(&server(), CLUSTER).unwrap().instance_group, "nodes");
        let starting = HetznerServer { status: "starting".into(), ..server() };
        assert!(identify(&starting, CLUSTER).is_ok());
        assert_eq!(certificate_names(&server()), ["192.0.2.1", "10.0.0.2"]);
        assert_eq!(certificate_names(&HetznerServer { public_ipv4: None, ..server() }), ["10.0.0.2"]);
    }

    #[test]
    fn a_node_that_has_its_servers_name_gets_what_kops_noted_there() {
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
        assert_eq!(server_id("hcloud://4711").unwrap(), 4711);
        for malformed in
            ["", "4711", "hcloud://", "hcloud://+1", "hcloud://x", "aws:///a/i-1", "hcloud://1/2"]
        {
            assert_eq!(server_id(malformed).unwrap_err().reason(), "InvalidProviderID", "{malformed}");
        }
    }

    #[test]
    fn a_node_whose_name_another_server_has_is_an_impostor_and_one_of_a_renamed_server_is_not() {
        let renamed = HetznerServer { name: "web-7".into(), ..server() };
        let refused = |server: &HetznerServer, namesake: Option<&HetznerServer>| {
            let refusal = identify_node("nodes-1a2b", server, namesake, CLUSTER).unwrap_err();
            (refusal.reason(), refusal.is_definite())
        };
        assert_eq!(refused(&renamed, None), ("InstanceOfOtherNode", false));
        // The server of the Node's name is there, and is not the one that the Node says.
        let own = server();
        let victim = HetznerServer { id: 1, name: "control-plane-3c4d".into(), ..server() };
        assert_eq!(refused(&victim, Some(&own)), ("InstanceOfOtherNode", true));
        // Also where that does not run at the moment, or the one whose name the Node has does not.
        let off = |server: &HetznerServer| HetznerServer { status: "off".into(), ..server.clone() };
        assert_eq!(refused(&off(&victim), Some(&own)), ("InstanceOfOtherNode", true));
        assert_eq!(refused(&victim, Some(&off(&own))), ("InstanceOfOtherNode", true));
    }

    #[test]
    fn a_server_of_others_or_of_no_group_or_that_does_not_run_is_refused() {
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
