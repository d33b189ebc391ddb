//! Which machine a Node is in a cloud that knows machines by numbers.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{Identity, Refusal};
use crate::machine_number::machine_number;

/// A machine of such a cloud, as its API tells of it.
pub trait NumberedMachine {
    /// Its number, which no other ever gets.
    fn id(&self) -> u64;

    /// The name that its Node has. No two machines of a cluster have the same.
    fn node_name(&self) -> String;

    /// Its private addresses in the cloud's order.
    fn private_ips(&self) -> &[IpAddr];

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
    /// What they begin with.
    pub prefix: &'static str,
    /// A good one.
    pub form: &'static str,
}

impl ProviderIds {
    /// The number of the machine that a providerID names.
    ///
    /// # Errors
    /// If it names none that the cloud could have.
    pub fn number(self, provider_id: &str) -> Result<u64, Refusal> {
        let ProviderIds { cloud, prefix, form } = self;
        provider_id.strip_prefix(prefix).and_then(machine_number).ok_or_else(|| Refusal::ProviderId {
            provider_id: provider_id.to_owned(),
            cloud,
            form,
        })
    }
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
pub fn identify_node<M: NumberedMachine>(
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{digital_ocean, hetzner};

    #[test]
    fn a_provider_id_names_a_number() {
        for (ids, other) in [
            (hetzner::PROVIDER_IDS, digital_ocean::PROVIDER_IDS),
            (digital_ocean::PROVIDER_IDS, hetzner::PROVIDER_IDS),
        ] {
            assert_eq!(ids.number(&format!("{}4711", ids.prefix)).unwrap(), 4711);
            assert_eq!(ids.number(ids.form).unwrap(), 12_345_678);
            for number in ["", "+1", "x", "1/2", "007"] {
                let malformed = format!("{}{number}", ids.prefix);
                assert_eq!(ids.number(&malformed).unwrap_err().reason(), "InvalidProviderID", "{malformed}");
            }
            for malformed in ["", "4711", "aws:///a/i-1", &format!("{}1", other.prefix)] {
                assert_eq!(ids.number(malformed).unwrap_err().reason(), "InvalidProviderID", "{malformed}");
            }
        }
    }
}
