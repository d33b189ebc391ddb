//! The call-back. If a token proves nothing, the server connects to the machine's address as the cloud knows it. The
//! peer at that address must prove that it made the request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kops_agent_cluster::bootstrap::challenge::caller_name;
use kops_agent_cluster::bootstrap::message::ChallengeRequest;
use kops_agent_pki::PemPair;
use kops_agent_plan::resource::{Certificate, CertificateType, Issuer, Subject};
use parking_lot::Mutex;
use time::OffsetDateTime;
use tokio::time::{Instant, timeout};

use super::keystore::{Keys, Keystore};
use kops_agent_cloud::callback::{CallFailed, Caller, Proof};
use kops_agent_cloud::verify::{Answer, Refusal, VerifiedNode};
use kops_agent_net::random;

/// Timeout of a call-back. A machine waits 15 seconds for the answer to its request, and this time includes the call-back.
const ANSWERED_WITHIN: Duration = Duration::from_secs(4);
/// Lifetime of the client certificate for call-backs. After `USED_FOR`, a new certificate is made (upstream makes a new certificate for
/// each call: `pkg/bootstrap/challenge_client.go`).
const LIFETIME: time::Duration = time::Duration::HOUR;
const USED_FOR: Duration = Duration::from_secs(30 * 60);
const SIGNER: &str = "kubernetes-ca";

pub struct CallBack {
    caller: Caller,
    name: String,
    keystore: Arc<Keystore>,
    identity: Mutex<Option<Identity>>,
}

struct Identity {
    pair: Arc<PemPair>,
    /// The keystore's keys that signed the certificate.
    keys: Arc<Keys>,
    since: Instant,
}

impl CallBack {
    /// Prepares call-backs to a cluster's machines. The client certificate has the name of the cluster's kops-controller.
    pub fn new(cluster: &str, keystore: Arc<Keystore>) -> CallBack {
        CallBack {
            caller: Caller::new(cluster),
            name: caller_name(cluster),
            keystore,
            identity: Mutex::default(),
        }
    }

    /// Calls a machine back to verify that it made the request. With `takes_constants`, also accepts the constant with which some releases
    /// of nodeup answer every challenge.
    pub async fn prove(
        &self,
        node: &VerifiedNode,
        challenge: &ChallengeRequest,
        takes_constants: impl Future<Output = bool>,
    ) -> Result<(), Refusal> {
        let endpoint = &node.challenge_endpoint;
        let address: SocketAddr = endpoint.parse().map_err(|_| {
            Refusal::not_verified(
                "NoPrivateAddress",
                format!("{endpoint:?} is not an address for a call-back"),
            )
        })?;
        let identity = self.identity(Instant::now())?;
        let random = random::bytes().map_err(|error| not_made(&error))?;
        let call = self.caller.call(address, challenge, &identity, random);
        match timeout(ANSWERED_WITHIN, call).await {
            Ok(Ok(Proof::OfSecret)) => Ok(()),
            Ok(Ok(Proof::Constant)) => match takes_constants.await {
                true => Ok(()),
                false => Err(not_proven(CallFailed::Unproven(address).to_string())),
            },
            Ok(Err(error)) => Err(not_proven(error.to_string())),
            Err(_) => {
                Err(not_proven(format!("the machine at {address} does not answer the call-back in time")))
            }
        }
    }

    /// Returns the client certificate for call-backs. Makes a new certificate after half of the old one's lifetime, or if the keys have
    /// changed.
    pub(super) fn identity(&self, now: Instant) -> Result<Arc<PemPair>, Refusal> {
        let keys = self.keystore.keys();
        let mut identity = self.identity.lock();
        if let Some(identity) = identity.as_ref()
            && Arc::ptr_eq(&identity.keys, &keys)
            && now.saturating_duration_since(identity.since) < USED_FOR
        {
            return Ok(identity.pair.clone());
        }
        let authority = keys
            .authorities
            .get(SIGNER)
            .ok_or_else(|| not_made(&format!("{SIGNER} is not in server.signingCAs")))?;
        let wanted = Certificate {
            name: "kops-controller".into(),
            signer: SIGNER.into(),
            keypair_id: keys.keypair_ids.get(SIGNER).cloned().unwrap_or_default(),
            certificate_type: CertificateType::Client,
            subject: Subject { common_name: self.name.clone(), organization: Vec::new() },
            sans: Vec::new(),
            issuer: Issuer::Local,
            include_root: false,
        };
        let pair = authority.issue(&wanted, OffsetDateTime::now_utc(), LIFETIME);
        let pair = Arc::new(pair.map_err(|error| not_made(&error))?);
        *identity = Some(Identity { pair: pair.clone(), keys: keys.clone(), since: now });
        Ok(pair)
    }
}

/// The refusal of a request without a challenge. A call-back needs a challenge.
pub fn no_challenge() -> Refusal {
    not_proven("the request has no challenge".into())
}

fn not_proven(message: String) -> Refusal {
    Refusal { answer: Answer::NotProven, reason: "CallbackFailed", message }
}

fn not_made(problem: &dyn std::fmt::Display) -> Refusal {
    Refusal::unavailable("CallbackNotMade", format!("no machine can be called back: {problem}"))
}
