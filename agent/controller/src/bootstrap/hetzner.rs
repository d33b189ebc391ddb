//! Machines on Hetzner Cloud: they say their number, Hetzner says whose it is and where, and who answers at that address
//! proves that he has asked.

use std::sync::Arc;

use kops_agent_plan::bootstrap::hetzner_token;
use kops_agent_plan::diff::sha256_hex;
use kops_agent_plan::identity::Refusal as NoNode;
use kops_agent_plan::identity::hetzner::{certificate_names, identify};

use super::verifier::{Examined, Presented, Proof, Refusal, VerifiedNode, Verifier, challenge_endpoint};
use kops_agent_cloud::hetzner::servers::HetznerServers;

/// Tells who machines on Hetzner Cloud are.
pub struct HetznerVerifier {
    /// The servers of the cluster.
    pub servers: Arc<HetznerServers>,
}

impl HetznerVerifier {
    async fn verify(&self, id: u64) -> Result<VerifiedNode, Refusal> {
        let listed = self.servers.get(id).await;
        let server = listed.map_err(|error| Refusal::unavailable("HetznerUnavailable", error))?;
        let server = server.ok_or_else(|| refused(&NoNode::NoSuchInstance { instance: id.to_string() }))?;
        let identity = identify(&server, self.servers.cluster()).map_err(|refusal| refused(&refusal))?;
        // Nobody is called back over the public network.
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
        Some(Ok(Examined {
            // The token is always the same. What differs is the challenge in the body, which a machine answers once.
            fingerprint: sha256_hex(presented.body).into_bytes(),
            signed_at: None,
            proof: Proof::CallBack { claimed: id },
            verification: Box::pin(self.verify(id)),
        }))
    }
}

fn refused(refusal: &NoNode) -> Refusal {
    Refusal::not_verified(refusal.reason(), refusal)
}
