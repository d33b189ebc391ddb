//! Which machine a Node is in a cloud that lists machines by ids.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{Identity, Refusal};
use crate::machine_id::MachineId;

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
    pub(super) fn are_of_one_machine(self, first: &str, second: &str) -> bool {
        matches!((self.id(first), self.id(second)), (Ok(first), Ok(second)) if first == second)
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
