//! A machine's token on GCE: its claimed identity, signed by its TPM with a key that Google keeps for each instance.
//!
//! A machine states a [`Claim`], has its TPM sign it, and puts both into a [`token`]. On the other side all that can be
//! refused without asking Google is refused here. Whether the signature is right shows the key that Google gives for the
//! instance ([`GceToken::verify`]).
//!
//! Source: upstream's `upup/pkg/fi/cloudup/gce/tpm`.

#[cfg(test)]
mod tests;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;
use x509_parser::der_parser::asn1_rs::{Any, BitString};
use x509_parser::oid_registry::{OID_PKCS1_RSAENCRYPTION, OID_PKCS1_SHA256WITHRSA};
use x509_parser::pem::Pem;
use x509_parser::prelude::{AlgorithmIdentifier, FromDer as _, SubjectPublicKeyInfo};
use x509_parser::verify::verify_signature;

use super::message::Bytes;
use crate::identity::Refusal;
use crate::identity::gce::{GceCluster, InstancePath, check_place, is_project, is_resource_name, is_zone};

/// What a token begins with.
pub const PREFIX: &str = "x-gce-tpm ";
/// What a token is for, and nothing else.
pub const AUDIENCE: &str = "kops.k8s.io/node-bootstrap";
/// By how many seconds a machine's clock may differ where the configuration does not say (upstream writes as much).
pub const USUAL_SKEW: i64 = 300;

/// What a token must fit.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// The cluster.
    pub cluster: &'a GceCluster,
    /// By how many seconds a machine's clock may differ.
    pub max_skew: i64,
    /// Seconds since 1970.
    pub now: i64,
}

/// A token that says nothing wrong.
#[derive(Clone, PartialEq, Eq)]
pub struct GceToken {
    /// The instance that it says it is of, in the cluster's project and region.
    pub instance: InstancePath,
    /// The signature: no two requests have the same.
    pub signature: Vec<u8>,
    /// When it was signed, by the machine's clock, in seconds since 1970.
    pub signed_at: i64,
    /// What was signed.
    data: Vec<u8>,
}

impl std::fmt::Debug for GceToken {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("GceToken").field("instance", &self.instance).finish_non_exhaustive()
    }
}

/// Why a token is refused. The token itself is not repeated.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TokenProblem {
    /// It does not have the form that it should.
    #[error("the token is not well-formed: {0}")]
    Malformed(&'static str),
    /// It was made for something else.
    #[error("the token was made for another audience than {AUDIENCE}")]
    OtherAudience,
    /// It was made for another request.
    #[error("the token was made for another request than came with it")]
    OtherRequest,
    /// It was made at another time.
    #[error(
        "the token's time is {seconds} seconds from ours, and {max_skew} are let pass: see that both machines' clocks \
         are right"
    )]
    OtherTime {
        /// How far it is from ours, ahead or behind.
        seconds: u64,
        /// How far it may be.
        max_skew: i64,
    },
    /// It is of a machine that cannot be the cluster's.
    #[error(transparent)]
    Elsewhere(#[from] Refusal),
    /// The instance has no key that could have signed it.
    #[error("the instance's key is none that signs tokens: {0}")]
    UnusableKey(&'static str),
    /// Another has signed it.
    #[error("the token is not signed by the TPM of the instance that it names")]
    NotSigned,
}

impl TokenProblem {
    /// It in a word, for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            TokenProblem::Malformed(_) => "MalformedToken",
            TokenProblem::OtherAudience => "TokenForOtherCall",
            TokenProblem::OtherRequest => "TokenOfOtherRequest",
            TokenProblem::OtherTime { .. } => "TokenExpired",
            TokenProblem::Elsewhere(refusal) => refusal.reason(),
            TokenProblem::UnusableKey(_) => "NoSigningKey",
            TokenProblem::NotSigned => "WrongSignature",
        }
    }
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct Token {
    signature: Bytes,
    data: Bytes,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
struct Data {
    #[serde(rename = "gcpProjectID")]
    project: String,
    zone: String,
    instance: String,
    request_hash: Bytes,
    timestamp: i64,
    audience: String,
}

/// What a machine says of itself when it asks for something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// The id of its project.
    pub project: String,
    /// The zone that it is in.
    pub zone: String,
    /// Its name.
    pub instance: String,
    /// Seconds since 1970.
    pub timestamp: i64,
}

impl Claim {
    /// What its TPM is to sign for a request with this body.
    pub fn data(self, body: &[u8]) -> Vec<u8> {
        let data = Data {
            project: self.project,
            zone: self.zone,
            instance: self.instance,
            request_hash: Bytes(Sha256::digest(body).to_vec()),
            timestamp: self.timestamp,
            audience: AUDIENCE.into(),
        };
        json(&data)
    }
}

/// The token of a claim's [data](Claim::data) and what its TPM has made of it.
pub fn token(data: Vec<u8>, signature: Vec<u8>) -> String {
    let token = Token { signature: Bytes(signature), data: Bytes(data) };
    format!("{PREFIX}{}", STANDARD.encode(json(&token)))
}

/// Texts and numbers only, of which there is always JSON.
fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

impl GceToken {
    /// Reads a token that came with a request's body; `None` if it is none of GCE's.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(
        token: &str,
        body: &[u8],
        expected: &Expected<'_>,
    ) -> Option<Result<GceToken, TokenProblem>> {
        Some(parse(token.strip_prefix(PREFIX)?, body, expected))
    }

    /// Checks that it is signed with a key that Google keeps for the instance: RSASSA-PKCS1-v1_5 with SHA-256. The
    /// key is in PEM.
    ///
    /// # Errors
    /// It is not, or the key is none that could.
    pub fn verify(&self, key_pem: &str) -> Result<(), TokenProblem> {
        let pem = Pem::iter_from_buffer(key_pem.as_bytes())
            .filter_map(Result::ok)
            .find(|block| block.label == "PUBLIC KEY")
            .ok_or(TokenProblem::UnusableKey("it is no PEM block titled PUBLIC KEY"))?;
        let (_, key) = SubjectPublicKeyInfo::from_der(&pem.contents)
            .map_err(|_| TokenProblem::UnusableKey("it cannot be read"))?;
        if key.algorithm.algorithm != OID_PKCS1_RSAENCRYPTION {
            return Err(TokenProblem::UnusableKey("it is no RSA key"));
        }
        let algorithm = AlgorithmIdentifier::new(OID_PKCS1_SHA256WITHRSA, None::<Any<'_>>);
        let signature = BitString::new(0, &self.signature);
        verify_signature(&key, &algorithm, &signature, &self.data).map_err(|_| TokenProblem::NotSigned)
    }
}

fn parse(payload: &str, body: &[u8], expected: &Expected<'_>) -> Result<GceToken, TokenProblem> {
    let json = STANDARD.decode(payload).map_err(|_| TokenProblem::Malformed("it is not base64"))?;
    let token: Token = serde_json::from_slice(&json)
        .map_err(|_| TokenProblem::Malformed("it is not the JSON of a token"))?;
    let data: Data = serde_json::from_slice(&token.data.0)
        .map_err(|_| TokenProblem::Malformed("what it signs is not the JSON of a claim"))?;
    if data.audience != AUDIENCE {
        return Err(TokenProblem::OtherAudience);
    }
    let seconds = data.timestamp.abs_diff(expected.now);
    if seconds > expected.max_skew.unsigned_abs() {
        return Err(TokenProblem::OtherTime { seconds, max_skew: expected.max_skew });
    }
    if data.request_hash.0 != Sha256::digest(body).as_slice() {
        return Err(TokenProblem::OtherRequest);
    }
    if !is_project(&data.project) || !is_zone(&data.zone) || !is_resource_name(&data.instance) {
        return Err(TokenProblem::Malformed("it names no instance that GCE could have"));
    }
    check_place(&data.project, &data.zone, &data.instance, expected.cluster)?;
    if token.signature.0.is_empty() {
        return Err(TokenProblem::NotSigned);
    }
    let instance = InstancePath { zone: data.zone, name: data.instance };
    Ok(GceToken { instance, signature: token.signature.0, signed_at: data.timestamp, data: token.data.0 })
}
