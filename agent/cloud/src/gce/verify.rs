//! Verifies GCE machines: their TPM signs the token, Compute Engine provides the TPM's key, and a managed group of the cluster
//! lists the machine.
//!
//! A request can name any machine. Only Google's key for this machine shows whether the machine made the token. So the cache is used first:
//! lists of some seconds ago, and keys of earlier requests. If the cache does not suffice, Google is asked when the request has its turn
//! ([`crate::verify::claims`]), and never twice for the same data.

use std::sync::Arc;
use std::time::Duration;

use kops_agent_cluster::bootstrap::gce_token::{Expected, GceToken, TokenProblem, USUAL_SKEW};
use kops_agent_cluster::identity::Refusal as NoNode;
use kops_agent_cluster::identity::gce::{self, ManagedInstance};
use tokio::time::sleep;

use super::managed_groups::{Managed, ManagedGroups};
use crate::api::ApiError;
use crate::verify::claims::{Claim, Claims};
use crate::verify::{
    Examined, Origin, Presented, Proof, Refusal, VerifiedNode, Verifier, challenge_endpoint, seconds_of,
};

/// The maximum difference between a machine's clock and the server's clock, in seconds. A token is valid for at most twice this time, and
/// the server must remember the token for that time ([`crate::verify::LONGEST_TOKEN_LIFE`]).
const MOST_SKEW: i64 = 720;
/// How often a waiting request checks whether the cache has its answer.
const LOOKED_AGAIN_AFTER: Duration = Duration::from_millis(250);

pub struct GceVerifier {
    groups: ManagedGroups,
    claims: Claims,
    /// The permitted difference between a machine's clock and the server's clock, in seconds.
    max_skew: i64,
}

impl GceVerifier {
    /// `groups` should be a clone of the node controller's `ManagedGroups`, so that the verifier and the node controller share requests. If
    /// `max_skew` is zero, the default applies. The maximum is 720 seconds.
    pub fn new(groups: ManagedGroups, max_skew: i64) -> GceVerifier {
        if max_skew > MOST_SKEW {
            log::warn!(
                "server.provider.gce.MaxTimeSkew is {max_skew} seconds, but kops-agent uses at most \
                 {MOST_SKEW} seconds, because a token that is valid for longer could be used twice"
            );
        }
        GceVerifier { groups, claims: Claims::default(), max_skew: skew(max_skew) }
    }

    async fn verify(&self, token: GceToken, origin: Origin) -> Result<VerifiedNode, Refusal> {
        let cluster = self.groups.cluster();
        let path = &token.instance;
        let mut claim = None;
        let Some(managed) = self.find(&token, origin, &mut claim).await? else {
            let missing =
                format!("no managed instance group of the cluster {} lists this instance", cluster.name);
            return Err(Refusal::of_instance(&NoNode::NoInstanceGroup {
                instance: path.name.clone(),
                missing,
            }));
        };
        let Managed { instance: listed, template } = managed;
        gce::identify(&path.name, &listed, &template, cluster)
            .map_err(|refusal| Refusal::of_instance(&refusal))?;
        let key = self.signing_key(&listed, origin, &mut claim).await?;
        let no_key = || not_verified(TokenProblem::UnusableKey("it has none: is it a shielded instance?"));
        token.verify(key.as_ref().as_deref().ok_or_else(no_key)?).map_err(not_verified)?;
        if let Some(claim) = claim {
            claim.believed();
        }

        let instance = self.groups.managed(&listed).await.map_err(unavailable)?;
        // A new instance of this name may have replaced the listed instance.
        let Some(instance) = instance.as_ref().as_ref().filter(|instance| instance.id == listed.id) else {
            return Err(Refusal::of_instance(&NoNode::NoSuchInstance { instance: path.name.clone() }));
        };
        let now = ManagedInstance { status: instance.status.clone(), ..listed };
        let identity = gce::identify(&path.name, &now, &template, cluster)
            .map_err(|refusal| Refusal::of_instance(&refusal))?;
        let address = instance.network_interfaces.first().map(|interface| interface.network_ip.as_str());
        Ok(VerifiedNode {
            instance: format!("gce://{}/{}/{}", cluster.project, path.zone, path.name),
            node_name: path.name.clone(),
            certificate_names: gce::certificate_names(instance),
            instance_group: identity.instance_group,
            challenge_endpoint: address
                .filter(|address| !address.is_empty())
                .map(challenge_endpoint)
                .unwrap_or_default(),
            addresses: Vec::new(),
            launched: seconds_of(&instance.last_start),
        })
    }

    async fn find(
        &self,
        token: &GceToken,
        origin: Origin,
        claim: &mut Option<Claim>,
    ) -> Result<Option<Managed>, Refusal> {
        if let Some(known) = self.groups.recall(&token.instance).await {
            return Ok(known);
        }
        // The answer to a different request may also answer this request. So this request looks into the cache while it waits for its turn.
        let known = async {
            loop {
                sleep(LOOKED_AGAIN_AFTER).await;
                if let Some(known) = self.groups.recall(&token.instance).await {
                    return known;
                }
            }
        };
        tokio::select! {
            known = known => return Ok(known),
            entered = self.claims.enter(origin, claim) => entered?,
        }
        self.groups.find_claimed(&token.instance).await.map_err(unavailable)
    }

    async fn signing_key(
        &self,
        instance: &ManagedInstance,
        origin: Origin,
        claim: &mut Option<Claim>,
    ) -> Result<Arc<Option<String>>, Refusal> {
        if let Some(known) = self.groups.recall_signing_key(instance).await {
            return Ok(known);
        }
        self.claims.enter(origin, claim).await?;
        self.groups.signing_key(instance).await.map_err(unavailable)
    }
}

/// The permitted clock difference for the `configured` value, in seconds.
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
            verification: Box::pin(self.verify(token, presented.origin)),
            signature: None,
            confirmation: None,
        }))
    }
}

fn not_verified(problem: TokenProblem) -> Refusal {
    Refusal::not_verified(problem.reason(), problem)
}

fn unavailable(error: Arc<ApiError>) -> Refusal {
    Refusal::unavailable("ComputeUnavailable", error)
}

#[cfg(test)]
mod tests;
