//! Verifies machines that their cloud lists by id. A machine sends its id, and the cloud lists its addresses. The machine
//! proves itself by the call-back to its address, or by making the request from one of its addresses.

use std::sync::Arc;

use kops_agent_cluster::identity::Refusal as NoNode;
use kops_agent_cluster::machine_id::MachineId;

use super::{Bootstrap, Inventory, Listed, ProvenBy};
use crate::verify::{Examined, Origin, Presented, Refusal, VerifiedNode, Verifier, challenge_endpoint};

pub struct ListedVerifier<M> {
    pub machines: Arc<Inventory<M>>,
}

impl<M: Listed> ListedVerifier<M> {
    async fn verify(&self, id: MachineId, origin: Origin) -> Result<VerifiedNode, Refusal> {
        let listed = self.machines.get(id).await;
        let listed = listed.map_err(|error| Refusal::unavailable(M::BOOTSTRAP.unavailable, error))?;
        let node = self.node(id, listed.as_deref(), origin)?;
        match M::PROVEN_BY {
            ProvenBy::CallBack => Ok(node),
            ProvenBy::Address => self.confirm(id, origin).await,
        }
    }

    /// Like `verify`, with the cloud's current answer about this machine. The list is not enough: since it was requested, the machine may
    /// have been removed, and a new machine may have its address.
    async fn confirm(&self, id: MachineId, origin: Origin) -> Result<VerifiedNode, Refusal> {
        let now = self.machines.get_fresh(id).await;
        let now = now.map_err(|error| Refusal::unavailable(M::BOOTSTRAP.unavailable, error))?;
        self.node(id, now.as_deref(), origin)
    }

    fn node(&self, id: MachineId, machine: Option<&M>, origin: Origin) -> Result<VerifiedNode, Refusal> {
        let Bootstrap { token, no_address, .. } = M::BOOTSTRAP;
        let no_such = || Refusal::of_instance(&NoNode::NoSuchInstance { instance: id.to_string() });
        let machine = machine.ok_or_else(no_such)?;
        let identity =
            machine.identify(self.machines.cluster()).map_err(|refusal| Refusal::of_instance(&refusal))?;
        let called_back_at = machine.called_back_at().map(|address| challenge_endpoint(&address.to_string()));
        match M::PROVEN_BY {
            ProvenBy::CallBack if called_back_at.is_none() => {
                let (reason, problem) = no_address;
                return Err(Refusal::not_verified(reason, format!("the {} {id} {problem}", token.machine)));
            }
            ProvenBy::Address if !machine.addresses().into_iter().any(|own| origin.is_at(own)) => {
                let problem = format!(
                    "the request comes from an address that the {} {id} does not have",
                    token.machine
                );
                return Err(Refusal::not_verified("OtherAddress", problem));
            }
            ProvenBy::CallBack | ProvenBy::Address => {}
        }
        Ok(VerifiedNode {
            instance: machine.provider_id(),
            node_name: machine.node_name(),
            certificate_names: machine.certificate_names(),
            instance_group: identity.instance_group,
            challenge_endpoint: called_back_at.unwrap_or_default(),
            addresses: machine.addresses(),
            launched: machine.created().filter(|_| !self.machines.has_namesake(machine)),
        })
    }
}

impl<M: Listed> Verifier for ListedVerifier<M> {
    fn examine<'a>(&'a self, presented: &Presented<'_>) -> Option<Result<Examined<'a>, Refusal>> {
        let id = match M::BOOTSTRAP.token.parse(presented.token)? {
            Ok(id) => id,
            Err(problem) => return Some(Err(Refusal::not_verified("MalformedToken", problem))),
        };
        let verification = Box::pin(self.verify(id, presented.origin));
        Some(Ok(match M::PROVEN_BY {
            ProvenBy::CallBack => Examined {
                confirmation: Some(Box::pin(self.confirm(id, presented.origin))),
                ..Examined::of_call_back(id, presented, verification)
            },
            ProvenBy::Address => Examined::of_address(verification),
        }))
    }
}
