//! Verifies machines by their own key, which an operator has enrolled with their name and group.
//!
//! A request can name any machine. Only the key in the `Host` shows whether this machine made the token. One list of the enrolled machines
//! serves all requests of some seconds. So lies cause no more requests to the API server than one machine would.

use std::sync::Arc;

use kops_agent_cluster::bootstrap::host_token::{HostToken, TokenProblem, USUAL_SKEW};
use kops_agent_cluster::identity::Refusal as NoNode;
use kops_agent_cluster::identity::host;

use super::Enrolled;
use crate::verify::{Examined, Presented, Proof, Refusal, VerifiedNode, Verifier};

/// The maximum difference between a machine's clock and the server's clock, in seconds. A token is valid for at most twice this time, and
/// the server must remember the token for that time ([`crate::verify::LONGEST_TOKEN_LIFE`]).
const MOST_SKEW: i64 = 720;

#[derive(Debug)]
pub struct HostVerifier {
    hosts: Arc<Enrolled>,
    /// The permitted difference between a machine's clock and the server's clock, in seconds.
    max_skew: i64,
}

impl HostVerifier {
    /// `hosts` should be the node controller's `Enrolled`, so that the verifier and the node controller share requests. If `max_skew` is
    /// zero, the default applies. The maximum is 720 seconds.
    pub fn new(hosts: Arc<Enrolled>, max_skew: i64) -> HostVerifier {
        if max_skew > MOST_SKEW {
            log::warn!(
                "server.pki.MaxTimeSkew is {max_skew} seconds, but kops-agent uses at most {MOST_SKEW} \
                 seconds, because a token that is valid for longer could be used twice"
            );
        }
        HostVerifier { hosts, max_skew: if max_skew > 0 { max_skew.min(MOST_SKEW) } else { USUAL_SKEW } }
    }

    async fn verify(&self, token: HostToken) -> Result<VerifiedNode, Refusal> {
        let host = self.hosts.claimed(&token.host).await;
        let host = host.map_err(|error| Refusal::unavailable("HostsUnavailable", error))?;
        let not_enrolled = || Refusal::of_instance(&NoNode::NotEnrolled { name: token.host.clone() });
        let host = host.ok_or_else(not_enrolled)?;
        token.verify(&host.public_key).map_err(not_verified)?;
        let identity =
            host::identify(&host.name, Some(&host)).map_err(|refusal| Refusal::of_instance(&refusal))?;
        Ok(VerifiedNode {
            instance: host::instance(&host.name),
            node_name: host.name,
            // A `Host` object contains no addresses for the machine's certificates.
            certificate_names: Vec::new(),
            instance_group: identity.instance_group,
            challenge_endpoint: String::new(),
            addresses: Vec::new(),
            launched: None,
        })
    }
}

impl Verifier for HostVerifier {
    fn examine<'a>(&'a self, presented: &Presented<'_>) -> Option<Result<Examined<'a>, Refusal>> {
        let Presented { token, body, now, .. } = *presented;
        let token = match HostToken::parse(token, body, self.max_skew, now)? {
            Ok(token) => token,
            Err(problem) => return Some(Err(not_verified(problem))),
        };
        Some(Ok(Examined {
            fingerprint: token.fingerprint(),
            signed_at: Some(token.signed_at),
            proof: Proof::Token,
            verification: Box::pin(self.verify(token)),
            signature: None,
            confirmation: None,
        }))
    }
}

fn not_verified(problem: TokenProblem) -> Refusal {
    Refusal::not_verified(problem.reason(), problem)
}

#[cfg(test)]
mod tests;
