//! A machine's signed claim: the common part of the tokens of GCE's TPMs and of enrolled hosts.
//!
//! A token is JSON in base64. `data` is the JSON of a claim, and `signature` covers the bytes of `data`. Each claim contains the hash of
//! its request, its time, and its purpose.
//!
//! Source: upstream's `upup/pkg/fi/cloudup/gce/tpm` and `pkg/bootstrap/pkibootstrap`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;
use x509_parser::der_parser::asn1_rs::{Any, BitString, Oid};
use x509_parser::oid_registry::{
    OID_KEY_TYPE_EC_PUBLIC_KEY, OID_PKCS1_RSAENCRYPTION, OID_PKCS1_SHA256WITHRSA, OID_SIG_ECDSA_WITH_SHA256,
};
use x509_parser::pem::Pem;
use x509_parser::prelude::{AlgorithmIdentifier, FromDer as _, SubjectPublicKeyInfo};
use x509_parser::verify::verify_signature;

use super::message::Bytes;
use crate::identity::Refusal;

/// The audience of every token. A token with a different audience is rejected.
pub const AUDIENCE: &str = "kops.k8s.io/node-bootstrap";
/// The default maximum clock difference to a machine, in seconds (upstream: `NewVerifier` in `pkg/bootstrap/pkibootstrap/pkiverifier`). For
/// GCE, kOps writes this value into the server's configuration.
pub const USUAL_SKEW: i64 = 300;

/// Why a token is rejected. Messages do not repeat the token.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TokenProblem {
    #[error("the token is not well-formed: {0}")]
    Malformed(&'static str),
    #[error("the token was made for another audience than {AUDIENCE}")]
    OtherAudience,
    #[error("the token was made for another request, not for this one")]
    OtherRequest,
    /// The token is too old, or from the future.
    #[error(
        "the token's time differs from this server's time by {seconds} seconds, but at most {max_skew} \
         seconds are allowed: check the clocks of both machines"
    )]
    OtherTime {
        /// The difference to the server's time, in either direction.
        seconds: u64,
        /// The maximum permitted difference, in seconds.
        max_skew: i64,
    },
    /// The machine cannot belong to this cluster.
    #[error(transparent)]
    Elsewhere(#[from] Refusal),
    #[error("the machine's key cannot sign tokens: {0}")]
    UnusableKey(&'static str),
    #[error("the token is not signed by {0}")]
    NotSigned(&'static str),
}

impl TokenProblem {
    /// A short reason for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            TokenProblem::Malformed(_) => "MalformedToken",
            TokenProblem::OtherAudience => "TokenForOtherCall",
            TokenProblem::OtherRequest => "TokenOfOtherRequest",
            TokenProblem::OtherTime { .. } => "TokenExpired",
            TokenProblem::Elsewhere(refusal) => refusal.reason(),
            TokenProblem::UnusableKey(_) => "NoSigningKey",
            TokenProblem::NotSigned(_) => "WrongSignature",
        }
    }
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct Token {
    signature: Bytes,
    data: Bytes,
}

/// Signed data of a machine, before verification.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Signed {
    /// The JSON of the claim.
    pub(super) data: Vec<u8>,
    pub(super) signature: Vec<u8>,
}

/// The parts that every claim has, in addition to the machine's name.
pub(super) struct Stamp<'a> {
    pub(super) audience: &'a str,
    /// The time of the claim, in seconds since 1970.
    pub(super) timestamp: i64,
    /// The SHA-256 of the request's body.
    pub(super) request_hash: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// RSASSA-PKCS1-v1_5.
    Rsa,
    /// ECDSA with P-256 or P-384. Signatures are ASN.1.
    Ec,
}

impl Kind {
    /// The algorithm of the key, the algorithm of its SHA-256 signatures, and the message for a key of a different type.
    fn algorithms(self) -> (Oid<'static>, Oid<'static>, &'static str) {
        match self {
            Kind::Rsa => (OID_PKCS1_RSAENCRYPTION, OID_PKCS1_SHA256WITHRSA, "it is not an RSA key"),
            Kind::Ec => (OID_KEY_TYPE_EC_PUBLIC_KEY, OID_SIG_ECDSA_WITH_SHA256, "it is not an EC key"),
        }
    }
}

pub(super) fn hash(body: &[u8]) -> Bytes {
    Bytes(Sha256::digest(body).to_vec())
}

/// The JSON of a claim or a token. Serialization cannot fail, because the values are only texts and numbers.
pub(super) fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

/// Builds a token from a claim's JSON and the signature of the JSON.
pub(super) fn token(prefix: &str, data: Vec<u8>, signature: Vec<u8>) -> String {
    let token = Token { signature: Bytes(signature), data: Bytes(data) };
    format!("{prefix}{}", STANDARD.encode(json(&token)))
}

/// Reads a token without its prefix. Returns the claim and the signed data.
pub(super) fn read<T: DeserializeOwned>(payload: &str) -> Result<(T, Signed), TokenProblem> {
    let json = STANDARD.decode(payload).map_err(|_| TokenProblem::Malformed("it is not base64"))?;
    let token: Token = serde_json::from_slice(&json)
        .map_err(|_| TokenProblem::Malformed("it is not the JSON of a token"))?;
    let claim = serde_json::from_slice(&token.data.0)
        .map_err(|_| TokenProblem::Malformed("the signed data is not the JSON of a claim"))?;
    Ok((claim, Signed { data: token.data.0, signature: token.signature.0 }))
}

impl Stamp<'_> {
    /// Checks that a claim was made for a request with this body, at most `max_skew` seconds before or after `now`.
    pub(super) fn check(&self, body: &[u8], max_skew: i64, now: i64) -> Result<(), TokenProblem> {
        if self.audience != AUDIENCE {
            return Err(TokenProblem::OtherAudience);
        }
        let seconds = self.timestamp.abs_diff(now);
        if seconds > max_skew.unsigned_abs() {
            return Err(TokenProblem::OtherTime { seconds, max_skew });
        }
        match self.request_hash == Sha256::digest(body).as_slice() {
            true => Ok(()),
            false => Err(TokenProblem::OtherRequest),
        }
    }
}

impl Signed {
    /// Checks the SHA-256 signature with a key of this type (PEM, `PUBLIC KEY`). `signer` names the key's owner in messages.
    pub(super) fn verify(&self, key_pem: &str, kind: Kind, signer: &'static str) -> Result<(), TokenProblem> {
        let pem = Pem::iter_from_buffer(key_pem.as_bytes())
            .filter_map(Result::ok)
            .find(|block| block.label == "PUBLIC KEY")
            .ok_or(TokenProblem::UnusableKey("it is not a PEM block titled PUBLIC KEY"))?;
        let (_, key) = SubjectPublicKeyInfo::from_der(&pem.contents)
            .map_err(|_| TokenProblem::UnusableKey("it cannot be read"))?;
        let (of_key, of_signature, other) = kind.algorithms();
        if key.algorithm.algorithm != of_key {
            return Err(TokenProblem::UnusableKey(other));
        }
        let algorithm = AlgorithmIdentifier::new(of_signature, None::<Any<'_>>);
        let signature = BitString::new(0, &self.signature);
        verify_signature(&key, &algorithm, &signature, &self.data)
            .map_err(|_| TokenProblem::NotSigned(signer))
    }
}
