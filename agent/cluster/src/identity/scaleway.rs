//! Identifies the machine of a Node on Scaleway by kOps' tags of the server. The Node's providerID has the server's UUID. Changing tags
//! requires a key of the project.
//!
//! Sources: upstream's `upup/pkg/fi/cloudup/scaleway/cloud.go` and `utils.go` (names of tags), `verifier.go` in the same folder (names and
//! addresses), and `pkg/nodeidentity/scaleway/identify.go` (states, roles). Unlike upstream, this module requires that the server belongs
//! to this cluster and to exactly one group.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use super::machine::{CloudMachine, ProviderIds, role_label};
use super::{Identity, Refusal, tags};
use crate::machine_id::{IdForm, MachineId};

const CLUSTER_TAG: &str = "noprefix=kops.k8s.io/cluster=";
const INSTANCE_GROUP_TAG: &str = "noprefix=kops.k8s.io/instance-group=";
/// The key of the tag with the role of the instance group. kOps sets this tag only on control planes.
const ROLE_TAG: &str = "noprefix=kops.k8s.io/role=";
/// The product in a providerID, before the zone. Scaleway has other products with servers.
const PRODUCT: &str = "instance";
/// The form of Scaleway's providerIDs (upstream: `getServer` in `pkg/nodeidentity/scaleway/identify.go`).
pub const PROVIDER_IDS: ProviderIds = ProviderIds {
    cloud: "Scaleway",
    prefix: "scaleway://",
    form: "scaleway://instance/fr-par-1/5c89f7b6-01a0-4eaa-ac03-85cd43d82eeb",
    id: id_of,
};
/// The states in which a server may bootstrap. Scaleway reports `starting` for a while after the server has started.
const AT_WORK: [&str; 2] = ["running", "starting"];

/// A server as Scaleway's API reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalewayServer {
    /// The server's UUID. Scaleway never reuses it.
    pub id: MachineId,
    pub zone: String,
    pub name: String,
    /// `running`, `stopped`, …
    pub state: String,
    pub tags: Vec<String>,
    /// The server's private address. Only servers of an older type have a private address.
    pub private_ip: Option<Ipv4Addr>,
    /// The server's public addresses, in Scaleway's order.
    pub public_ips: Vec<IpAddr>,
    /// When Scaleway created the server, in seconds since 1970; `None` if the answer does not have the time.
    pub created: Option<i64>,
}

impl ScalewayServer {
    /// The addresses at which other machines of the cluster reach this server. Public addresses are included, because kOps does not put
    /// servers into a private network (upstream: `docs/getting_started/scaleway.md`).
    fn ipv4(&self) -> impl Iterator<Item = Ipv4Addr> {
        let public = self.public_ips.iter().filter_map(|address| match address {
            IpAddr::V4(address) => Some(*address),
            IpAddr::V6(_) => None,
        });
        self.private_ip.into_iter().chain(public)
    }
}

pub fn cluster_tag(cluster: &str) -> String {
    format!("{CLUSTER_TAG}{cluster}")
}

/// Whether this text has the form of a zone name, like `fr-par-1` (Scaleway's SDK: `isZoneRegex` in `validation/is.go`).
pub fn is_zone(text: &str) -> bool {
    let is_lower = |part: &str| part.bytes().all(|byte| byte.is_ascii_lowercase());
    let parts: Vec<&str> = text.split('-').collect();
    let [country, city, number] = parts[..] else { return false };
    country.len() == 2
        && is_lower(country)
        && (3..=7).contains(&city.len())
        && is_lower(city)
        && (1..=2).contains(&number.len())
        && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// The id in `instance/ZONE/ID`.
fn id_of(text: &str) -> Option<MachineId> {
    let (product, place) = text.split_once('/')?;
    let (zone, id) = place.split_once('/')?;
    IdForm::Uuid.parse(id).filter(|_| product == PRODUCT && is_zone(zone))
}

impl CloudMachine for ScalewayServer {
    fn id(&self) -> MachineId {
        self.id
    }

    fn provider_id(&self) -> String {
        format!("{}{PRODUCT}/{}/{}", PROVIDER_IDS.prefix, self.zone, self.id)
    }

    /// The server's own name. kOps gives every server of a cluster a unique name (upstream: `uniqueName` in
    /// `upup/pkg/fi/cloudup/scalewaytasks/instance.go`).
    fn node_name(&self) -> String {
        self.name.clone()
    }

    /// The private address, or else the first public IPv4 address.
    fn called_back_at(&self) -> Option<IpAddr> {
        self.ipv4().next().map(IpAddr::V4)
    }

    fn certificate_names(&self) -> Vec<String> {
        self.ipv4().map(|address| address.to_string()).collect()
    }

    /// The label of the server's role. Only control planes have a role tag, as in upstream. A worker gets its labels from its group.
    fn noted_labels(&self) -> BTreeMap<String, String> {
        tags::values(&self.tags, ROLE_TAG).next().and_then(role_label).into_iter().collect()
    }

    fn created(&self) -> Option<i64> {
        self.created
    }

    fn identify(&self, cluster: &str) -> Result<Identity, Refusal> {
        let instance = self.id.to_string();
        tags::require_cluster(&instance, &self.tags, CLUSTER_TAG, cluster, cluster)?;
        if !AT_WORK.contains(&self.state.as_str()) {
            return Err(Refusal::NotRunning { instance, state: self.state.clone() });
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

    fn tagged(tags: &[&str]) -> ScalewayServer {
        ScalewayServer {
            id: IdForm::Uuid.parse(IdForm::Uuid.example()).unwrap(),
            zone: "fr-par-1".into(),
            name: "nodes-fr-par-1-0".into(),
            state: "running".into(),
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            private_ip: None,
            public_ips: vec!["2001:db8::1".parse().unwrap(), [192, 0, 2, 1].into(), [192, 0, 2, 2].into()],
            created: None,
        }
    }

    fn server() -> ScalewayServer {
        tagged(&["noprefix=kops.k8s.io/cluster=c.example.com", "noprefix=kops.k8s.io/instance-group=nodes"])
    }

    #[test]
    fn a_server_of_the_cluster_has_the_group_that_kops_recorded() {
        let own = server();
        let identity = identify_node("nodes-fr-par-1-0", &own, Some(&own), CLUSTER).unwrap();
        assert_eq!((identity.instance_group.as_str(), identity.noted_labels.len()), ("nodes", 0));
        for state in AT_WORK {
            assert!(ScalewayServer { state: state.into(), ..server() }.identify(CLUSTER).is_ok());
        }
        assert_eq!(own.provider_id(), PROVIDER_IDS.form);
        assert_eq!(own.certificate_names(), ["192.0.2.1", "192.0.2.2"]);
        assert_eq!(own.called_back_at(), Some([192, 0, 2, 1].into()));
        let older = ScalewayServer { private_ip: Some([10, 1, 0, 2].into()), ..server() };
        assert_eq!(older.called_back_at(), Some([10, 1, 0, 2].into()));
        assert_eq!(older.certificate_names(), ["10.1.0.2", "192.0.2.1", "192.0.2.2"]);
        let none = ScalewayServer { public_ips: vec!["2001:db8::1".parse().unwrap()], ..server() };
        assert_eq!(none.called_back_at(), None);
    }

    #[test]
    fn only_control_planes_have_a_recorded_label() {
        for (role, label) in
            [("ControlPlane", "control-plane"), ("Node", "node"), ("APIServer", "api-server")]
        {
            let server = tagged(&[&format!("noprefix=kops.k8s.io/role={role}")]);
            let expected = [(format!("node-role.kubernetes.io/{label}"), String::new())];
            assert_eq!(server.noted_labels(), expected.into());
        }
        for tag in
            ["noprefix=kops.k8s.io/role=Bastion", "noprefix=kops.k8s.io/role=", "kops.k8s.io/role=Node"]
        {
            assert!(tagged(&[tag]).noted_labels().is_empty(), "{tag}");
        }
    }

    #[test]
    fn foreign_groupless_and_stopped_servers_are_rejected() {
        let own = "noprefix=kops.k8s.io/cluster=c.example.com";
        let group = "noprefix=kops.k8s.io/instance-group=nodes";
        for (tags, reason, is_definite) in [
            (vec!["noprefix=kops.k8s.io/cluster=c.example.com.au", group], "InstanceOfOtherCluster", true),
            (vec![group], "InstanceOfOtherCluster", false),
            (vec!["noprefix=kops.k8s.io/cluster=", group], "InstanceOfOtherCluster", false),
            (vec!["kops.k8s.io/cluster=c.example.com", group], "InstanceOfOtherCluster", false),
            (vec![own, "noprefix=kops.k8s.io/cluster=b", group], "InstanceOfOtherCluster", false),
            (vec![own], "InstanceGroupUnknown", false),
            (vec![own, "noprefix=kops.k8s.io/instance-group="], "InstanceGroupUnknown", false),
            (vec![own, group, "noprefix=kops.k8s.io/instance-group=b"], "InstanceGroupUnknown", false),
        ] {
            let refusal = tagged(&tags).identify(CLUSTER).unwrap_err();
            assert_eq!((refusal.reason(), refusal.is_definite()), (reason, is_definite), "{tags:?}");
        }
        for state in ["stopped", "stopped in place", "stopping", "locked", ""] {
            let server = ScalewayServer { state: state.into(), ..server() };
            assert_eq!(server.identify(CLUSTER).unwrap_err().reason(), "InstanceNotRunning");
        }
    }

    #[test]
    fn only_a_node_with_another_servers_name_is_an_impostor() {
        let own = server();
        let victim = ScalewayServer {
            id: IdForm::Uuid.parse("00000000-0000-4000-8000-000000000001").unwrap(),
            name: "control-plane-fr-par-1-0".into(),
            ..server()
        };
        let refused = |server: &ScalewayServer, namesake: Option<&ScalewayServer>| {
            let refusal = identify_node("nodes-fr-par-1-0", server, namesake, CLUSTER).unwrap_err();
            (refusal.reason(), refusal.is_definite())
        };
        assert_eq!(refused(&victim, Some(&own)), ("InstanceOfOtherNode", true));
        assert_eq!(refused(&victim, None), ("InstanceOfOtherNode", false));
    }

    #[test]
    fn a_provider_id_names_a_zone_and_a_server() {
        let id = IdForm::Uuid.example();
        for malformed in [
            id.to_owned(),
            format!("fr-par-1/{id}"),
            format!("baremetal/fr-par-1/{id}"),
            format!("instance/fr-par-1/{id}/"),
            format!("instance/fr-par-1/x/{id}"),
            format!("instance/../{id}"),
            format!("instance//{id}"),
            "instance/fr-par-1/4711".into(),
            "instance/fr-par-1/".into(),
        ] {
            let malformed = format!("{}{malformed}", PROVIDER_IDS.prefix);
            assert_eq!(PROVIDER_IDS.id(&malformed).unwrap_err().reason(), "InvalidProviderID", "{malformed}");
        }
    }

    #[test]
    fn a_zone_has_a_country_a_city_and_a_number() {
        for zone in ["fr-par-1", "nl-ams-3", "pl-waw-12", "it-mil-1"] {
            assert!(is_zone(zone), "{zone}");
        }
        for text in [
            "",
            "fr-par",
            "fr-par-",
            "fr-par-123",
            "FR-par-1",
            "fr-par-1/",
            "../..",
            "fr-p-1",
            "fr-par-1-2",
            "fr-par-x",
        ] {
            assert!(!is_zone(text), "{text}");
        }
    }
}
