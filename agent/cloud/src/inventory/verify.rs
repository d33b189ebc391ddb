//! Verifies machines whose cloud lists them by their ids: they say theirs, the cloud says which machine that is and where, and what
//! answers the call-back at that address proves that it has asked.

use std::sync::Arc;

use kops_agent_plan::identity::Refusal as NoNode;
use kops_agent_plan::machine_id::MachineId;

use super::{Bootstrap, Inventory, Listed};
use crate::verify::{Examined, Presented, Refusal, VerifiedNode, Verifier, challenge_endpoint};

/// Verifies machines of a cluster.
pub struct ListedVerifier<M> {
    /// Where they are asked for.
    pub machines: Arc<Inventory<M>>,
}

impl<M: Listed> ListedVerifier<M> {
    async fn verify(&self, id: MachineId) -> Result<VerifiedNode, Refusal> {
        let Bootstrap { token, unavailable, no_address, .. } = M::BOOTSTRAP;
        let listed = self.machines.get(id).await.map_err(|error| Refusal::unavailable(unavailable, error))?;
        let no_such = || Refusal::of_instance(&NoNode::NoSuchInstance { instance: id.to_string() });
        let machine = listed.ok_or_else(no_such)?;
        let identity =
            machine.identify(self.machines.cluster()).map_err(|refusal| Refusal::of_instance(&refusal))?;
        let address = machine.called_back_at().ok_or_else(|| {
            let (reason, problem) = no_address;
            Refusal::not_verified(reason, format!("the {} {id} {problem}", token.machine))
        })?;
        Ok(VerifiedNode {
            instance: machine.provider_id(),
            node_name: machine.node_name(),
            certificate_names: machine.certificate_names(),
            instance_group: identity.instance_group,
            challenge_endpoint: challenge_endpoint(&address.to_string()),
        })
    }
}

impl<M: Listed> Verifier for ListedVerifier<M> {
    fn examine<'a>(&'a self, presented: &Presented<'_>) -> Option<Result<Examined<'a>, Refusal>> {
        let id = match M::BOOTSTRAP.token.parse(presented.token)? {
            Ok(id) => id,
            Err(problem) => return Some(Err(Refusal::not_verified("MalformedToken", problem))),
        };
        Some(Ok(Examined::of_call_back(id, presented, Box::pin(self.verify(id)))))
    }
}
