//! Identifies the machine of a Node in clouds that list machines by id.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{Identity, Refusal};
use crate::machine_id::MachineId;

/// A machine as its cloud's API reports it.
pub trait CloudMachine {
    /// The machine's id. The cloud never reuses it.
    fn id(&self) -> MachineId;

    /// The `spec.providerID` of the machine's Node.
    fn provider_id(&self) -> String;

    /// Whether a providerID names this machine. By default, only the exact text of [`CloudMachine::provider_id`] names the machine.
    fn is_named_by(&self, provider_id: &str) -> bool {
        provider_id == self.provider_id()
    }

    /// The name of the machine's Node, which is unique in the cluster.
    fn node_name(&self) -> String;

    /// The address for the challenge request: the first address at which other machines of the cluster can reach this machine. In clouds
    /// where kOps gives machines a private network, this is never a public address. `None` if the machine has no such address.
    fn called_back_at(&self) -> Option<IpAddr>;

    /// The names and addresses in the machine's serving certificate.
    fn certificate_names(&self) -> Vec<String>;

    /// When the cloud created the machine, in seconds since 1970. A machine that is rebuilt, resized or started again keeps this
    /// time. `None` if the cloud does not report the time.
    fn created(&self) -> Option<i64>;

    /// The labels of the machine's group, as kOps recorded them in the cloud.
    fn noted_labels(&self) -> BTreeMap<String, String>;

    /// The machine's instance group in a cluster.
    fn identify(&self, cluster: &str) -> Result<Identity, Refusal>;
}

/// The form of a cloud's providerIDs.
#[derive(Clone, Copy, Debug)]
pub struct ProviderIds {
    /// The name of the cloud in messages.
    pub cloud: &'static str,
    /// The prefix of all providerIDs of this cloud.
    pub prefix: &'static str,
    pub form: &'static str,
    /// Reads the id from the text after the prefix.
    pub id: fn(&str) -> Option<MachineId>,
}

impl ProviderIds {
    pub fn id(self, provider_id: &str) -> Result<MachineId, Refusal> {
        let ProviderIds { cloud, prefix, form, id } = self;
        provider_id.strip_prefix(prefix).and_then(id).ok_or_else(|| Refusal::ProviderId {
            provider_id: provider_id.to_owned(),
            cloud,
            form,
        })
    }

    pub(super) fn are_of_one_machine(self, first: &str, second: &str) -> bool {
        matches!((self.id(first), self.id(second)), (Ok(first), Ok(second)) if first == second)
    }
}

/// Identifies `machine` as the machine of the Node with the name `node`. `namesake` is the cluster's machine whose Node should have this
/// name, if there is one.
///
/// If a Node's name differs from the machine's name, an operator may have renamed the machine or changed its address. So the Node is not
/// necessarily an impostor. If a second machine of the cluster has the Node's name, the Node is an impostor: names are unique, and a
/// kubelet's certificate contains the name of the machine that requested the certificate. A Node's addresses prove nothing, because its
/// kubelet writes them.
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

/// The node label for a role that kOps recorded. `None` if the role has no node label.
pub(super) fn role_label(role: &str) -> Option<(String, String)> {
    let role = match role {
        "ControlPlane" => "control-plane",
        "Node" => "node",
        "APIServer" => "api-server",
        _ => return None,
    };
    Some((format!("node-role.kubernetes.io/{role}"), String::new()))
}
