//! Renewal for running nodes: identifies the node by its client certificate, limits its rate, and checks that the Node
//! of this name still belongs to this machine. All other checks are as in a bootstrap, including the cloud's answer
//! about the instance (`docs/certificate-renewal.md`).

use std::time::Duration;

use kops_agent_cluster::bootstrap::renewal::{Holder, RenewalRefusal, holder, is_of_instance};
use tokio::time::{Instant, timeout};

use super::audit::Record;
use super::rate::{Allowance, Allowances, RateLimit};
use kops_agent_cloud::verify::{Answer, Origin, Refusal, VerifiedNode};
use kops_agent_kube::node_api::Nodes;
use kops_agent_process::output::error_text;

/// Timeout of reading a Node from the API server.
pub const NODE_WITHIN: Duration = Duration::from_secs(4);
/// The allowance of a node at one address. A node asks for its configuration and certificates at each converge or verify run. Such a run
/// starts once an hour and at every boot.
const OF_ONE: Allowance = Allowance { burst: 12, every: Duration::from_secs(5 * 60) };
/// The allowance of a node at all addresses except its last verified one, together: three times `OF_ONE`. A thief with one stolen
/// certificate and many addresses cannot use up the allowance of all nodes.
const ELSEWHERE: Allowance = Allowance { burst: 36, every: Duration::from_secs(100) };
/// The allowance of all nodes together. It is large enough: five thousand nodes that verify themselves once an hour send three requests a
/// second.
const OF_ALL: Allowance = Allowance { burst: 256, every: Duration::from_millis(125) };

const ALLOWANCES: Allowances = Allowances { at_one_address: OF_ONE, elsewhere: ELSEWHERE, of_all: OF_ALL };

/// Identifies nodes by their client certificates, and limits the rate of their requests.
pub struct Renewal {
    rate: RateLimit,
    /// The reason in the refusal of a node that exceeds the rate limit.
    too_often: &'static str,
}

impl Default for Renewal {
    fn default() -> Renewal {
        Renewal::limited(ALLOWANCES, "RenewalTooOften")
    }
}

impl Renewal {
    pub fn limited(allowances: Allowances, too_often: &'static str) -> Renewal {
        Renewal { rate: RateLimit::new(allowances), too_often }
    }

    /// Returns the node of the client certificate, which TLS has verified. Notes the node's name and the certificate's
    /// serial number in `known`. Fails if the node exceeds its rate limit.
    pub fn holder(
        &self,
        certificate: Option<&[u8]>,
        origin: Origin,
        now: Instant,
        known: &mut Record<'_>,
    ) -> Result<Holder, Refusal> {
        let holder = holder(certificate).map_err(|refusal| refused(&refusal))?;
        known.node.node_name.clone_from(&holder.node_name);
        known.serial.clone_from(&holder.serial);
        self.rate.take(&holder.node_name, origin, now).map_err(|too_early| {
            let seconds = too_early.as_secs() + 1;
            Refusal {
                answer: Answer::TooOften(seconds),
                reason: self.too_often,
                message: format!("it asks too often: the next request is allowed in {seconds} seconds"),
            }
        })?;
        Ok(holder)
    }

    /// Notes that the cloud verified the node at this origin.
    pub fn verified(&self, holder: &Holder, origin: Origin) {
        self.rate.verified(&holder.node_name, origin);
    }
}

/// Rejects a machine if the node name in its certificate differs from the name that the cloud has verified.
pub fn refuse_holders_of_others(holder: &Holder, verified: &str) -> Result<(), Refusal> {
    holder.is_verified_as(verified).map_err(|refusal| refused(&refusal))
}

/// Rejects a machine if its Node does not exist, or now belongs to another machine.
pub async fn refuse_replaced(verified: &VerifiedNode, nodes: &Nodes) -> Result<(), Refusal> {
    let name = &verified.node_name;
    let unavailable = |problem: String| {
        let problem = format!("the API server does not return the Node {name}: {problem}");
        Refusal::unavailable("ApiServerUnavailable", problem)
    };
    let provider_id = timeout(NODE_WITHIN, nodes.provider_id(name))
        .await
        .map_err(|_| unavailable("no answer in time".into()))?
        .map_err(|error| unavailable(error_text(&error.into())))?;
    is_of_instance(name, provider_id.as_deref(), &verified.instance).map_err(|refusal| refused(&refusal))
}

fn refused(refusal: &RenewalRefusal) -> Refusal {
    Refusal::not_verified(refusal.reason(), refusal)
}
