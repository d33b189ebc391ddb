//! Answers bootstrap and renewal requests. [`Bootstrap::answer`] shows the checks of a request from top to bottom.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kops_agent_cluster::bootstrap::message::BootstrapRequest;
use kops_agent_cluster::bootstrap::node_config::is_dns_name;
use kops_agent_process::output::error_text;
use tokio::time::{Instant, timeout};

use super::super::metrics::BootstrapMetrics;
use super::audit::Record;
use super::call_back::{self, CallBack};
use super::grants::Grants;
use super::renewal::{self, NODE_WITHIN, Renewal};
use super::replay::{Taken, Token};
use super::slots::Slots;
use kops_agent_cloud::verify::admission::Admission;
use kops_agent_cloud::verify::{
    Answer, Examined, LoadBalancing, MachinePrefix, Presented, Proof, Refusal, VerifiedNode, Verifier,
    examine,
};
use kops_agent_kube::node_api::Nodes;

/// Timeout of the cloud's identification of a machine.
const VERIFIED_WITHIN: Duration = Duration::from_secs(8);

pub struct Bootstrap {
    pub(super) verifiers: Vec<Box<dyn Verifier>>,
    pub(super) taken: Taken,
    pub(super) admission: Arc<Admission>,
    pub(super) call_back: CallBack,
    pub(super) renewal: Renewal,
    pub(super) slots: Slots,
    pub(super) nodes: Nodes,
    pub(super) grants: Grants,
    /// The length of the IPv6 prefix that identifies a machine. The origin of an IPv6 peer is its address, cut to this length.
    pub(super) machines: MachinePrefix,
    /// Whether a peer may be a load balancer that forwards connections of machines.
    pub(super) load_balancing: LoadBalancing,
    pub(super) metrics: BootstrapMetrics,
}

pub struct RequestParts<'a> {
    /// The value of the header `Authorization`; empty if the header is missing or repeated.
    pub token: &'a str,
    pub body: &'a [u8],
    pub endpoint: Endpoint<'a>,
}

#[derive(Clone, Copy, Debug)]
pub enum Endpoint<'a> {
    /// `/bootstrap`, for machines that are not nodes yet.
    Bootstrap,
    /// `/renew`, for nodes. The value is the client certificate (DER) that TLS has verified, if the client presented one.
    Renewal(Option<&'a [u8]>),
}

impl Bootstrap {
    /// Answers a request with JSON. Writes the result to the record.
    pub async fn answer(
        &self,
        mut record: Record<'_>,
        asked: &RequestParts<'_>,
        within: Duration,
    ) -> Result<String, Refusal> {
        let answered = timeout(within, self.give(asked, &mut record))
            .await
            .unwrap_or_else(|_| Err(Refusal::unavailable("Deadline", "the request takes too long")));
        record.finish(answered)
    }

    async fn give(&self, asked: &RequestParts<'_>, known: &mut Record<'_>) -> Result<String, Refusal> {
        // The checks without a request to the cloud come first.
        let (now, at) = (SystemTime::now(), Instant::now());
        let origin = self.machines.origin(known.remote.ip());
        let holder = match asked.endpoint {
            Endpoint::Bootstrap => None,
            Endpoint::Renewal(certificate) => Some(self.renewal.holder(certificate, origin, at, known)?),
        };
        let presented = Presented { token: asked.token, body: asked.body, origin, now: seconds(now) };
        let Examined { fingerprint, signed_at, proof, verification, signature, confirmation } =
            examine(&self.verifiers, &presented)?;
        let token = Token { fingerprint, age: signed_at.map(|signed_at| age(signed_at, now)) };
        let request = BootstrapRequest::parse(asked.body)
            .map_err(|error| bad_request("RequestMalformed", format!("failed to decode: {error}")))?;
        let challenge = match proof {
            Proof::Token | Proof::Address => None,
            Proof::CallBack { .. } => Some(request.challenge.as_ref().ok_or_else(call_back::no_challenge)?),
        };
        let under_way = self.taken.take(token, at)?;

        let verification = in_time(verification);
        let admitted = match proof {
            Proof::Token | Proof::Address => {
                let admitted = self.admission.enter(origin).await?;
                known.node = verification.await?;
                admitted
            }
            // Look up the claimed machine before admission. All requests share one list of machines, so the lookup is cheap. A machine that
            // does not exist gets no place in the queue.
            Proof::CallBack { claimed } => {
                known.node = verification.await?;
                let is_its_own = known.node.addresses.iter().any(|own| self.machines.origin(*own) == origin);
                let origin = match is_its_own {
                    true => origin.claiming_at_its_own(claimed),
                    false => origin.claiming(claimed),
                };
                self.admission.enter(origin).await?
            }
        };
        let name = known.node.node_name.clone();
        if !is_dns_name(&name) {
            return Err(Refusal::not_verified(
                "NoNodeName",
                format!("{name:?} is not a valid name of a Node"),
            ));
        }
        if let Some(holder) = &holder {
            renewal::refuse_holders_of_others(holder, &name)?;
        }
        if let Some(signature) = signature {
            in_time(signature).await?;
        }
        if let Some(challenge) = challenge {
            self.call_back.prove(&known.node, challenge, self.grants.takes_constant_proofs()).await?;
        }
        match &holder {
            None => self.refuse_the_registered(&known.node, proof).await?,
            Some(holder) => {
                renewal::refuse_replaced(&known.node, &self.nodes).await?;
                // All proofs have succeeded, including the call-back if the cloud needs one.
                self.renewal.verified(holder, origin);
            }
        }

        if let Some(confirmation) = confirmation
            && in_time(confirmation).await? != known.node
        {
            let problem =
                "the cloud's data about the machine changed during the request: the machine may ask again";
            return Err(Refusal::not_verified("InstanceChanged", problem));
        }
        self.grants.refuse_all_but_workers(&known.node.instance_group).await?;
        // The remaining steps do not call the cloud, but may wait for the store. Free the place in the queue for other requests.
        drop(admitted);
        let response = self.grants.give(&known.node, &request).await?;
        // Remember the token only after an answer. If the cloud or the store is down, machines get nothing and retry, and the tokens of
        // these failed requests would fill the memory.
        under_way.used_by(&name)?;
        known.given = given(&request);
        let mut json = serde_json::to_string(&response)
            .map_err(|error| Refusal::unavailable("AnswerNotWritten", error))?;
        json.push('\n');
        Ok(json)
    }

    /// Rejects a machine whose Node is Ready: the Node already has its certificates, so the sender may be a pod on it. If any pod could
    /// have made the proof, also rejects a machine whose Node is registered but not Ready (upstream: `VerifyToken` in
    /// `upup/pkg/fi/cloudup/openstack/verifier.go`). The Node of an earlier machine with this name is no reason to reject the machine, even
    /// while that Node still shows as Ready.
    async fn refuse_the_registered(&self, node: &VerifiedNode, proof: Proof) -> Result<(), Refusal> {
        let name = &node.node_name;
        let unavailable = |problem: String| {
            let problem = format!("the API server does not return the Node {name}{problem}");
            Refusal::unavailable("ApiServerUnavailable", problem)
        };
        let found = timeout(NODE_WITHIN, self.nodes.registration(name))
            .await
            .map_err(|_| unavailable(" in time".into()))?
            .map_err(|error| unavailable(format!(": {}", error_text(&error.into()))))?;
        let Some(found) = found else { return Ok(()) };
        if found.is_of_predecessor(node.launched) {
            log::info!(
                "the Node {name} belongs to an earlier machine: the Node's last heartbeat was before {} \
                 was started",
                node.instance
            );
            return Ok(());
        }
        let as_what = match (proof, found.is_ready) {
            (Proof::Address, _) => "",
            (_, true) => " and Ready",
            (_, false) => return Ok(()),
        };
        Err(Refusal {
            answer: Answer::AlreadyRegistered,
            reason: "AlreadyRegistered",
            message: format!("the Node {name} is registered{as_what}"),
        })
    }
}

/// Waits for the cloud's answer, until the timeout `VERIFIED_WITHIN`.
async fn in_time<T>(asking: impl Future<Output = Result<T, Refusal>>) -> Result<T, Refusal> {
    let late = |_| Err(Refusal::unavailable("CloudTooSlow", "its cloud does not answer in time"));
    timeout(VERIFIED_WITHIN, asking).await.unwrap_or_else(late)
}

fn bad_request(reason: &'static str, message: String) -> Refusal {
    Refusal { answer: Answer::BadRequest, reason, message }
}

/// The requested items, as text for the log.
fn given(request: &BootstrapRequest) -> String {
    let certs = request.certs.iter().flatten().map(|(name, _)| name.as_str());
    let config = request.include_node_config.then_some("its configuration");
    let boot_config =
        (request.include_node_config && request.include_boot_config).then_some("its boot config");
    let program = request.include_program.then_some("the program file");
    let all: Vec<&str> = config.into_iter().chain(boot_config).chain(program).chain(certs).collect();
    if all.is_empty() { "nothing".into() } else { all.join(", ") }
}

pub(super) fn seconds(now: SystemTime) -> i64 {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// The smallest possible age of a token, by this machine's clock. A token only states the second in which it was signed, so the age counts
/// from the end of that second.
fn age(signed_at: i64, now: SystemTime) -> Duration {
    let no_later_than = Duration::from_secs(u64::try_from(signed_at.saturating_add(1)).unwrap_or_default());
    now.duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(no_later_than)
}
