//! Which machine a Node is in a cloud that lists machines by ids.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{Identity, Refusal, linode, openstack};
use crate::machine_id::MachineId;

/// The most characters of a label's value, and of the name in its key (Kubernetes, "Labels and Selectors").
const LONGEST_LABEL: usize = 63;

/// A machine of such a cloud, as its API tells of it.
pub trait CloudMachine {
    /// Its id, which no other ever gets.
    fn id(&self) -> MachineId;

    /// How its Node names it (`spec.providerID`).
    fn provider_id(&self) -> String;

    /// Whether a providerID names it: by default only as [`CloudMachine::provider_id`] writes it.
    fn is_named_by(&self, provider_id: &str) -> bool {
        provider_id == self.provider_id()
    }

    /// The name that its Node has. No two machines of a cluster have the same.
    fn node_name(&self) -> String;

    /// Where it is called back: the first address at which the cloud says that other machines of the cluster reach it, and no
    /// public one where kOps gives machines a private network. `None` where it has none.
    fn called_back_at(&self) -> Option<IpAddr>;

    /// The names and addresses that its serving certificate is for.
    fn certificate_names(&self) -> Vec<String>;

    /// The labels of its group, as kOps has noted them down in the cloud.
    fn noted_labels(&self) -> BTreeMap<String, String>;

    /// The group that it is of in a cluster.
    ///
    /// # Errors
    /// Why it is no machine of the cluster.
    fn identify(&self, cluster: &str) -> Result<Identity, Refusal>;
}

/// How a cloud writes the providerIDs of its machines.
#[derive(Clone, Copy, Debug)]
pub struct ProviderIds {
    /// The cloud, as messages call it.
    pub cloud: &'static str,
    /// What they begin with, however they go on.
    pub prefix: &'static str,
    /// A good one.
    pub form: &'static str,
    /// The id in what is behind the prefix.
    pub id: fn(&str) -> Option<MachineId>,
}

impl ProviderIds {
    /// The id of the machine that a providerID names.
    ///
    /// # Errors
    /// If it names none that the cloud could have.
    pub fn id(self, provider_id: &str) -> Result<MachineId, Refusal> {
        let ProviderIds { cloud, prefix, form, id } = self;
        provider_id.strip_prefix(prefix).and_then(id).ok_or_else(|| Refusal::ProviderId {
            provider_id: provider_id.to_owned(),
            cloud,
            form,
        })
    }

    /// Whether two providerIDs name the same machine.
    fn are_of_one_machine(self, first: &str, second: &str) -> bool {
        matches!((self.id(first), self.id(second)), (Ok(first), Ok(second)) if first == second)
    }
}

/// The clouds whose providerIDs are written in several ways, and whose ids are told apart without what else one says.
const WRITTEN_IN_SEVERAL_WAYS: [ProviderIds; 2] = [linode::PROVIDER_IDS, openstack::PROVIDER_IDS];

/// Whether two providerIDs name the same machine, the one or the other written in another way that is good there, too.
pub fn name_one_machine(first: &str, second: &str) -> bool {
    first == second || WRITTEN_IN_SEVERAL_WAYS.into_iter().any(|ids| ids.are_of_one_machine(first, second))
}

/// The identity of the Node of that name, if the machine that it says it is is its own. `namesake` is the machine of the cluster
/// whose Node has that name, if one has.
///
/// An operator may rename a machine, or give it another address, so another name alone makes no Node an impostor for certain.
/// Where another machine of the cluster has the Node's name, it does: no two have the same, and a kubelet's certificate is for the
/// name of the machine that has asked for it. A Node's addresses tell nothing, for its kubelet writes them.
///
/// # Errors
/// Why it is not believed.
pub fn identify_node<M: CloudMachine>(
    node: &str,
    machine: &M,
    namesake: Option<&M>,
    cluster: &str,
) -> Result<Identity, Refusal> {
    let (instance, name) = (machine.id().to_string(), machine.node_name());
    if namesake.is_some_and(|namesake| namesake.id() != machine.id()) {
        return Err(Refusal::OtherNode { instance, expected: name });
    }
    let identity = machine.identify(cluster)?;
    if node != name {
        return Err(Refusal::OtherName { instance, name });
    }
    Ok(Identity { noted_labels: machine.noted_labels(), ..identity })
}

/// The label of a role that kOps has noted down; `None` if nodes have no label of it.
pub(super) fn role_label(role: &str) -> Option<(String, String)> {
    let role = match role {
        "ControlPlane" => "control-plane",
        "Node" => "node",
        "APIServer" => "api-server",
        _ => return None,
    };
    Some((format!("node-role.kubernetes.io/{role}"), String::new()))
}

/// Whether the API server takes this as the name in a label's key, or as its value.
pub(super) fn is_label_text(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_outer = |c: char| c.is_ascii_alphanumeric();
    text.len() <= LONGEST_LABEL
        && text.chars().all(is_inner)
        && text.starts_with(is_outer)
        && text.ends_with(is_outer)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{digital_ocean, hetzner, scaleway};
    use super::*;

    const ALL: [ProviderIds; 5] = [
        hetzner::PROVIDER_IDS,
        digital_ocean::PROVIDER_IDS,
        linode::PROVIDER_IDS,
        openstack::PROVIDER_IDS,
        scaleway::PROVIDER_IDS,
    ];

    #[test]
    fn a_provider_id_names_a_machine_of_its_own_cloud() {
        for ids in ALL {
            let id = ids.id(ids.form).unwrap().to_string();
            assert!(ids.form.ends_with(&id), "{id}");
            for other in ALL.iter().filter(|other| other.prefix != ids.prefix) {
                assert_eq!(ids.id(other.form).unwrap_err().reason(), "InvalidProviderID", "{}", other.form);
            }
            for id in ["", "+1", "x", "1/2", "007", "/", "1/"] {
                let malformed = format!("{}{id}", ids.prefix);
                assert_eq!(ids.id(&malformed).unwrap_err().reason(), "InvalidProviderID", "{malformed}");
            }
            for malformed in ["", "4711", "aws:///a/i-1", &format!("{}/", ids.form)] {
                assert_eq!(ids.id(malformed).unwrap_err().reason(), "InvalidProviderID", "{malformed}");
            }
        }
    }

    #[test]
    fn two_ways_to_write_a_provider_id_name_one_machine() {
        let uuid = "5c89f7b6-01a0-4eaa-ac03-85cd43d82eeb";
        let openstack = [format!("openstack:///{uuid}"), format!("openstack://{uuid}")];
        let linode = ["linode://4711", "linode:///4711", "linode://de-fra-2/4711"];
        for (first, second) in linode.iter().flat_map(|first| linode.map(|second| (*first, second))) {
            assert!(name_one_machine(first, second), "{first} {second}");
        }
        assert!(
            name_one_machine(&openstack[0], &openstack[1]) && name_one_machine("gce://p/z/n", "gce://p/z/n")
        );
        for (first, second) in [
            ("linode://4711", "linode://4712"),
            ("linode://4711", "linode://de-fra-2/4712"),
            ("linode://4711", "linode:///4711/"),
            ("linode://4711", "hcloud://4711"),
            ("hcloud://4711", "hcloud:///4711"),
            (openstack[0].as_str(), "openstack://RegionOne/5c89f7b6-01a0-4eaa-ac03-85cd43d82eeb"),
            (openstack[1].as_str(), "openstack:///00000000-0000-4000-8000-000000000001"),
            ("", "linode://4711"),
        ] {
            assert!(!name_one_machine(first, second), "{first} {second}");
        }
    }
}
