//! Nodes that are at work, and want certificates after those that they have: which they are by what they show, how often they may
//! ask, and whether their Node is still theirs. The rest is as for a machine that bootstraps, the cloud's word for the instance
//! among it (`docs/certificate-renewal.md`).

use std::time::Duration;

use kops_agent_plan::bootstrap::renewal::{Holder, RenewalRefusal, holder, is_of_instance};
use tokio::time::{Instant, timeout};

use super::super::node_api::Nodes;
use super::audit::Record;
use super::rate::{Allowance, Allowances, RateLimit};
use kops_agent_cloud::verify::{Answer, Origin, Refusal, VerifiedNode};
use kops_agent_process::output::error_text;

/// How long the API server may take to say whether a Node is at work.
pub const NODE_WITHIN: Duration = Duration::from_secs(4);
/// A node asks for its configuration and its certificates each time it converges or verifies itself, once an hour, and at
/// every boot.
const OF_ONE: Allowance = Allowance { burst: 12, every: Duration::from_secs(5 * 60) };
/// As much as of three: one certificate that was stolen is not worth all that there is for all nodes, however many addresses
/// it is shown from.
const ELSEWHERE: Allowance = Allowance { burst: 36, every: Duration::from_secs(100) };
/// Five thousand nodes that verify themselves in one hour ask three times a second.
const OF_ALL: Allowance = Allowance { burst: 256, every: Duration::from_millis(125) };

const ALLOWANCES: Allowances = Allowances { at_one_address: OF_ONE, elsewhere: ELSEWHERE, of_all: OF_ALL };

/// Knows which nodes have asked, and how often.
pub struct Renewal {
    rate: RateLimit,
    /// The reason of a refusal, in a word.
    too_often: &'static str,
}

impl Default for Renewal {
    fn default() -> Renewal {
        Renewal::limited(ALLOWANCES, "RenewalTooOften")
    }
}

impl Renewal {
    /// One that allows so much, and refuses what is more for this reason.
    pub fn limited(allowances: Allowances, too_often: &'static str) -> Renewal {
        Renewal { rate: RateLimit::new(allowances), too_often }
    }

    /// The node of the certificate that was shown, which TLS has found good; noted in the record, too.
    ///
    /// # Errors
    /// There is none, it is no node's, or the node asks too often.
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
                message: format!("it asks too often: not before {seconds} seconds from now"),
            }
        })?;
        Ok(holder)
    }

    /// Notes that it was this node indeed that asked there.
    pub fn verified(&self, holder: &Holder, origin: Origin) {
        self.rate.verified(&holder.node_name, origin);
    }
}

/// Refuses a machine that shows another node's certificate than that which the cloud says it is.
pub fn refuse_holders_of_others(holder: &Holder, verified: &str) -> Result<(), Refusal> {
    holder.is_verified_as(verified).map_err(|refusal| refused(&refusal))
}

/// Refuses a machine whose Node is gone, or another machine's by now.
pub async fn refuse_replaced(verified: &VerifiedNode, nodes: &Nodes) -> Result<(), Refusal> {
    let name = &verified.node_name;
    let unavailable = |problem: String| {
        let problem = format!("the API server does not tell about the Node {name}: {problem}");
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
