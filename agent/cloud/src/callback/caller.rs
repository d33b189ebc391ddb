//! kops-controller's side of the call-back: calls the address that the cloud lists for a machine, and verifies that this
//! machine made the request.

use std::net::SocketAddr;
use std::time::Duration;

use kops_agent_cluster::bootstrap::challenge::{
    CONSTANT, Challenge, LONGEST_MESSAGE, METHOD, answer, decode_answer, server_name,
};
use kops_agent_cluster::bootstrap::message::ChallengeRequest;
use kops_agent_pki::PemPair;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Url, redirect};
use thiserror::Error;

use super::grpc;
use kops_agent_net::http::{self, innermost_cause};
use kops_agent_net::tls;

/// The timeout of a call. A machine answers immediately, or not at all.
const CALL_WITHIN: Duration = Duration::from_secs(10);

/// Why a call-back does not prove that the machine made the request.
#[derive(Debug, Error)]
pub enum CallFailed {
    /// The request lacks data for the call-back.
    #[error("the request has no {0} in its challenge")]
    Incomplete(&'static str),
    #[error("the machine at {0} cannot be called back: {1}")]
    NotMade(SocketAddr, String),
    /// The machine does not answer, or its certificate is not the certificate in the request.
    #[error("the machine at {0} does not answer the call-back: {1}")]
    NotAnswered(SocketAddr, String),
    /// The machine answers that it has not made the request.
    #[error("the machine at {0} rejects the call-back with gRPC status {1}")]
    Refused(SocketAddr, String),
    /// The machine does not know the secret.
    #[error(
        "the machine at {0} does not prove that it made the request: its answer to the call-back is wrong"
    )]
    Unproven(SocketAddr),
}

/// How a machine proved that it made the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a constant proves nothing in clusters of fixed releases"]
pub enum Proof {
    /// The hash of the request's secret.
    OfSecret,
    /// [`CONSTANT`], which nodeup of some releases sends instead of a hash. The pinned certificate still proves the request, because its
    /// private key never leaves the machine.
    Constant,
}

/// Makes call-backs to the machines of one cluster.
#[derive(Clone, Debug)]
pub struct Caller {
    cluster: String,
    within: Duration,
}

impl Caller {
    pub fn new(cluster: &str) -> Caller {
        Caller { cluster: cluster.to_owned(), within: CALL_WITHIN }
    }

    #[cfg(test)]
    pub(super) fn within(self, within: Duration) -> Caller {
        Caller { within, ..self }
    }

    /// Verifies that the machine at `address` sent the bootstrap request that contains `challenge`. `identity` is the certificate and key
    /// of kops-controller. `random` is sixteen unpredictable bytes.
    pub async fn call(
        &self,
        address: SocketAddr,
        challenge: &ChallengeRequest,
        identity: &PemPair,
        random: [u8; 16],
    ) -> Result<Proof, CallFailed> {
        for (what, is_missing) in [
            ("challengeID", challenge.challenge_id.is_empty()),
            ("challengeSecret", challenge.challenge_secret.0.is_empty()),
            ("endpoint", challenge.endpoint.is_empty()),
            ("ca", challenge.ca.0.is_empty()),
        ] {
            if is_missing {
                return Err(CallFailed::Incomplete(what));
            }
        }
        let asked = Challenge { id: challenge.challenge_id.clone(), random: random.to_vec() };
        let given = self.ask(address, &challenge.ca.0, identity, asked.encode()).await?;
        let proof =
            decode_answer(&given).map_err(|error| CallFailed::NotAnswered(address, error.to_string()))?;
        match proof {
            proof if is_same(&proof, &answer(&challenge.challenge_secret.0, &random)) => Ok(Proof::OfSecret),
            proof if proof == CONSTANT => Ok(Proof::Constant),
            _ => Err(CallFailed::Unproven(address)),
        }
    }

    async fn ask(
        &self,
        address: SocketAddr,
        certificate: &[u8],
        identity: &PemPair,
        message: Vec<u8>,
    ) -> Result<Vec<u8>, CallFailed> {
        let not_made = |cause: String| CallFailed::NotMade(address, cause);
        let name = server_name(&self.cluster);
        let mut config =
            tls::client_config_pinned_to(certificate, &identity.certificate, &identity.private_key)
                .map_err(|error| not_made(error.to_string()))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        let client = Client::builder()
            .tls_backend_preconfigured(config)
            .no_proxy()
            .redirect(redirect::Policy::none())
            .http2_prior_knowledge()
            .resolve(&name, address)
            .timeout(self.within)
            .build()
            .map_err(|error| not_made(innermost_cause(error)))?;
        let url = Url::parse(&format!("https://{name}:{}{METHOD}", address.port()))
            .map_err(|error| not_made(error.to_string()))?;
        let sent =
            client.post(url).header(CONTENT_TYPE, grpc::CONTENT_TYPE).header("te", "trailers").body(message);
        let not_answered = |error| CallFailed::NotAnswered(address, innermost_cause(error));
        let response = sent.send().await.map_err(not_answered)?;
        let status = response.headers().get(grpc::STATUS).and_then(|status| status.to_str().ok());
        if let Some(status) = status.filter(|status| *status != grpc::OK) {
            return Err(CallFailed::Refused(address, status.to_owned()));
        }
        let given = http::body(response, LONGEST_MESSAGE).await.map_err(not_answered)?;
        given.ok_or_else(|| CallFailed::NotAnswered(address, "its answer is too long".into()))
    }
}

/// Compares in constant time: the duration does not depend on where two values differ.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}
