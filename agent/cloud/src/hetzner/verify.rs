//! Machines on Hetzner Cloud: they say their number, Hetzner says which server that is and where, and what answers the call-back
//! at that address proves that it has asked.

use std::sync::Arc;

use kops_agent_plan::bootstrap::hetzner_token;
use kops_agent_plan::identity::Refusal as NoNode;
use kops_agent_plan::identity::hetzner::{certificate_names, identify};

use super::servers::HetznerServers;
use crate::verify::{Examined, Presented, Refusal, VerifiedNode, Verifier, challenge_endpoint};

/// Verifies machines on Hetzner Cloud.
pub struct HetznerVerifier {
    /// The servers of the cluster.
    pub servers: Arc<HetznerServers>,
}

impl HetznerVerifier {
    async fn verify(&self, id: u64) -> Result<VerifiedNode, Refusal> {
        let listed = self.servers.get(id).await;
        let server = listed.map_err(|error| Refusal::unavailable("HetznerUnavailable", error))?;
        let server = server
            .ok_or_else(|| Refusal::of_instance(&NoNode::NoSuchInstance { instance: id.to_string() }))?;
        let identity =
            identify(&server, self.servers.cluster()).map_err(|refusal| Refusal::of_instance(&refusal))?;
        // No machine is called back over the public network.
        let address = server.private_ips.first().ok_or_else(|| {
            let problem = format!("the server {id} is in no private network to be called back over");
            Refusal::not_verified("NoPrivateAddress", problem)
        })?;
        Ok(VerifiedNode {
            instance: format!("hcloud://{id}"),
            node_name: server.name.clone(),
            certificate_names: certificate_names(&server),
            instance_group: identity.instance_group,
            challenge_endpoint: challenge_endpoint(&address.to_string()),
        })
    }
}

impl Verifier for HetznerVerifier {
    fn examine<'a>(&'a self, presented: &Presented<'_>) -> Option<Result<Examined<'a>, Refusal>> {
        let id = match hetzner_token::parse(presented.token)? {
            Ok(id) => id,
            Err(problem) => return Some(Err(Refusal::not_verified("MalformedToken", problem))),
        };
        Some(Ok(Examined::of_call_back(id, presented, Box::pin(self.verify(id)))))
    }
}
