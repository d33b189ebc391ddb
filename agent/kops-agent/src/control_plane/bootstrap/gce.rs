//! Machines that Google vouches for: their TPM signs, Compute Engine gives its key, and a managed group of the cluster
//! lists the machine.
//!
//! Nobody is asked twice for the same: neither for the list of a group, nor for an instance's key. A flood of tokens that
//! name instances of the cluster, and are signed by others, so costs Google next to nothing.

use std::sync::Arc;

use kops_agent_plan::bootstrap::gce_token::{Expected, GceToken, TokenProblem, USUAL_SKEW};
use kops_agent_plan::identity::{Refusal as NoNode, gce};

use super::verifier::{Examined, Presented, Proof, Refusal, VerifiedNode, Verifier, challenge_endpoint};
use crate::cloud::gce::compute::ComputeError;
use crate::cloud::gce::managed_groups::ManagedGroups;

/// The most seconds by which a machine's clock may differ: a token lives for twice that, and is to be remembered for as
/// long ([`super::replay`]).
const MOST_SKEW: i64 = 720;

/// Tells who machines on GCE are.
pub struct GceVerifier {
    groups: ManagedGroups,
    /// By how many seconds a machine's clock may differ.
    max_skew: i64,
}

impl GceVerifier {
    /// Asks these groups, together with the controller of nodes; a skew of zero is the usual one, and none is larger than
    /// [`MOST_SKEW`].
    pub fn of(groups: ManagedGroups, max_skew: i64) -> GceVerifier {
        if max_skew > MOST_SKEW {
            log::warn!(
                "server.provider.gce.MaxTimeSkew is {max_skew} seconds, and {MOST_SKEW} are let pass: tokens that live \
                 longer could be used twice"
            );
        }
        GceVerifier { groups, max_skew: skew(max_skew) }
    }

    async fn verify(&self, token: GceToken) -> Result<VerifiedNode, Refusal> {
        let cluster = self.groups.cluster();
        let path = &token.instance;
        let Some(managed) = self.groups.find(path).await.map_err(unavailable)? else {
            let missing = format!("no managed instance group of the cluster {} lists it", cluster.name);
            return Err(refused(&NoNode::NoInstanceGroup { instance: path.name.clone(), missing }));
        };
        let identity = gce::identify(&path.name, &managed.instance, &managed.template, cluster)
            .map_err(|refusal| refused(&refusal))?;

        let key = self.groups.signing_key(&managed.instance).await.map_err(unavailable)?;
        let no_key = || not_verified(TokenProblem::UnusableKey("it has none: is it a shielded instance?"));
        token.verify(key.as_ref().as_deref().ok_or_else(no_key)?).map_err(not_verified)?;

        let instance = match self.groups.instance(path).await.map_err(unavailable)? {
            // Another may have come after it under its name.
            Some(instance) if instance.id == managed.instance.id => instance,
            _ => return Err(refused(&NoNode::NoSuchInstance { instance: path.name.clone() })),
        };
        let address = instance.network_interfaces.first().map(|interface| interface.network_ip.as_str());
        Ok(VerifiedNode {
            instance: format!("gce://{}/{}/{}", cluster.project, path.zone, path.name),
            node_name: path.name.clone(),
            certificate_names: gce::certificate_names(&instance),
            instance_group: identity.instance_group,
            challenge_endpoint: address
                .filter(|address| !address.is_empty())
                .map(challenge_endpoint)
                .unwrap_or_default(),
        })
    }
}

/// The skew that is let pass where this one is configured.
fn skew(configured: i64) -> i64 {
    if configured > 0 { configured.min(MOST_SKEW) } else { USUAL_SKEW }
}

impl Verifier for GceVerifier {
    fn examine<'a>(&'a self, presented: &Presented<'_>) -> Option<Result<Examined<'a>, Refusal>> {
        let expected =
            Expected { cluster: self.groups.cluster(), max_skew: self.max_skew, now: presented.now };
        let token = match GceToken::parse(presented.token, presented.body, &expected)? {
            Ok(token) => token,
            Err(problem) => return Some(Err(not_verified(problem))),
        };
        Some(Ok(Examined {
            fingerprint: token.signature.clone(),
            signed_at: Some(token.signed_at),
            proof: Proof::Token,
            verification: Box::pin(self.verify(token)),
        }))
    }
}

fn not_verified(problem: TokenProblem) -> Refusal {
    Refusal::not_verified(problem.reason(), problem)
}

fn refused(refusal: &NoNode) -> Refusal {
    Refusal::not_verified(refusal.reason(), refusal)
}

fn unavailable(error: Arc<ComputeError>) -> Refusal {
    Refusal::unavailable("ComputeUnavailable", error)
}

#[cfg(test)]
mod tests;
