//! Verifies Azure machines. Their metadata service has signed a document for the request. Azure Resource Manager lists the machine that the
//! document names. The machine at the listed address answers the call-back.
//!
//! Machines of kOps 1.36 and older have no document. If the configuration permits it, the call-back alone verifies these machines.

use std::net::IpAddr;

use futures_util::FutureExt as _;
use kops_agent_cluster::bootstrap::azure_token::{AzureToken, Expected, TokenProblem};
use kops_agent_cluster::identity::Refusal as NoNode;
use kops_agent_cluster::identity::azure::MachinePath;
use kops_agent_cluster::machine_id::MachineId;

use super::attestation::Attestation;
use super::scale_sets::ScaleSets;
use crate::verify::{Examined, Presented, Refusal, VerifiedNode, Verifier, challenge_endpoint};

pub struct AzureVerifier {
    scale_sets: ScaleSets,
    attestation: Attestation,
    /// Whether tokens without a signed document are accepted.
    takes_unsigned: bool,
}

impl AzureVerifier {
    /// `scale_sets` should be a clone of the node controller's `ScaleSets`, so that the verifier and the node controller share requests.
    pub fn new(scale_sets: ScaleSets, attestation: Attestation) -> AzureVerifier {
        AzureVerifier { scale_sets, attestation, takes_unsigned: false }
    }

    /// Accepts tokens without a document, too, if `takes_unsigned` is true.
    pub fn taking_unsigned(self, takes_unsigned: bool) -> AzureVerifier {
        AzureVerifier { takes_unsigned, ..self }
    }

    /// Finds the machine that a token names, if the token contains the machine's VM id. An attacker does not know the VM ids of machines.
    async fn find(&self, path: MachinePath, vm_id: String, is_signed: bool) -> Result<VerifiedNode, Refusal> {
        let cluster = self.scale_sets.cluster();
        let found = self.scale_sets.find_claimed(&path).await;
        let found = found.map_err(|error| Refusal::unavailable("AzureUnavailable", error))?;
        let no_such = || Refusal::of_instance(&NoNode::NoSuchInstance { instance: path.to_string() });
        let (machine, addresses) = found.ok_or_else(no_such)?;
        if !machine.vm_id.eq_ignore_ascii_case(&vm_id) {
            let problem = match is_signed {
                true => {
                    format!("the token names the machine {path}, but its document belongs to another machine")
                }
                false => format!("the token names the machine {path}, but has another VM id"),
            };
            return Err(Refusal::not_verified("DocumentOfOtherMachine", problem));
        }
        let identity = machine.identify(cluster).map_err(|refusal| Refusal::of_instance(&refusal))?;
        let address = addresses.first().ok_or_else(|| {
            let problem = format!("the machine {path} has no private address for the call-back");
            Refusal::not_verified("NoPrivateAddress", problem)
        })?;
        let node_name = machine.node_name();
        let has_namesake = self.scale_sets.has_namesake(&node_name, &path).await;
        Ok(VerifiedNode {
            instance: cluster.provider_id(&path),
            node_name,
            certificate_names: addresses.iter().map(IpAddr::to_string).collect(),
            instance_group: identity.instance_group,
            challenge_endpoint: challenge_endpoint(&address.to_string()),
            addresses,
            launched: machine.created.filter(|_| !has_namesake),
        })
    }
}

/// The machine id for a token's VM id. If the VM id is not a UUID, the result is meaningless. The verification later rejects the token,
/// because every VM id is a UUID.
fn machine_id(vm_id: &str) -> MachineId {
    let digits: String = vm_id.chars().filter(char::is_ascii_hexdigit).take(32).collect();
    MachineId::Uuid(u128::from_str_radix(&digits, 16).unwrap_or_default())
}

impl Verifier for AzureVerifier {
    fn examine<'a>(&'a self, presented: &Presented<'_>) -> Option<Result<Examined<'a>, Refusal>> {
        let (cluster, may_be_unsigned) = (self.scale_sets.cluster(), self.takes_unsigned);
        let expected = Expected { cluster, may_be_unsigned, now: presented.now };
        let token = match AzureToken::parse(presented.token, presented.body, &expected)? {
            Ok(token) => token,
            Err(problem) => return Some(Err(not_verified(&problem))),
        };
        // A signed document contains a hash of the body, and the body contains the challenge. So the hash of the body identifies the
        // request.
        let AzureToken { machine, vm_id, signed } = token;
        let (claimed, signed_at) = (machine_id(&vm_id), signed.as_ref().map(|signed| signed.at));
        let verification = Box::pin(self.find(machine, vm_id, signed.is_some()));
        let signature = signed.map(|signed| self.attestation.verify(signed.by, presented.origin).boxed());
        let examined = Examined::of_call_back(claimed, presented, verification);
        Some(Ok(Examined { signed_at, signature, ..examined }))
    }
}

fn not_verified(problem: &TokenProblem) -> Refusal {
    Refusal::not_verified(problem.reason(), problem)
}

#[cfg(test)]
mod tests;
