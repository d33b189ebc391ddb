//! The token of an enrolled host: the host's name, signed with the host's key. The cluster has the public key in the `Host` object.
//! Machines without a cloud use this token. If the configuration has `server.pki`, machines of a cloud's cluster may use it too.
//!
//! Source: upstream's `pkg/bootstrap/pkibootstrap`, and `pkiverifier` below it.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::message::Bytes;
use super::node_config::is_dns_name;
use super::signed_claim::{self, AUDIENCE, Kind, Signed, Stamp};
pub use super::signed_claim::{TokenProblem, USUAL_SKEW};

/// The prefix of a token. Despite the word `tpm`, no TPM is involved.
pub const PREFIX: &str = "x-pki-tpm ";
/// The path of a machine's private key, in PEM (upstream: `scriptCreateKey` in `pkg/commands/toolbox_enroll.go`).
pub const KEY_FILE: &str = "/etc/kubernetes/kops/pki/machine/private.pem";
/// The signer's name in messages.
const SIGNER: &str = "the key that its Host was enrolled with";

/// A token that passed all checks except the check of the signature.
#[derive(Clone, PartialEq, Eq)]
pub struct HostToken {
    /// The name of the `Host` in the token.
    pub host: String,
    /// The time of signing, by the machine's clock, in seconds since 1970.
    pub signed_at: i64,
    signed: Signed,
}

impl std::fmt::Debug for HostToken {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("HostToken").field("host", &self.host).finish_non_exhaustive()
    }
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
struct Data {
    instance: String,
    /// The machine's public key, in PEM. This field proves nothing. Upstream's server ignores it too.
    #[serde(rename = "keyID")]
    key_id: String,
    request_hash: Bytes,
    timestamp: i64,
    audience: String,
}

/// The data that a machine signs for a request with this body. `key` is its public key in PEM, and `now` is in seconds since 1970.
pub fn data(host: &str, key: &str, body: &[u8], now: i64) -> Vec<u8> {
    signed_claim::json(&Data {
        instance: host.to_owned(),
        key_id: key.to_owned(),
        request_hash: signed_claim::hash(body),
        timestamp: now,
        audience: AUDIENCE.into(),
    })
}

/// Builds a token from the output of [`data`] and its signature.
pub fn token(data: Vec<u8>, signature: Vec<u8>) -> String {
    signed_claim::token(PREFIX, data, signature)
}

impl HostToken {
    /// Reads a token that came with this request body. `None` if the token is not from a host. `max_skew` is the maximum clock difference
    /// in seconds, and `now` is in seconds since 1970.
    pub fn parse(
        token: &str,
        body: &[u8],
        max_skew: i64,
        now: i64,
    ) -> Option<Result<HostToken, TokenProblem>> {
        Some(parse(token.strip_prefix(PREFIX)?, body, max_skew, now))
    }

    /// Identifies the claim: tokens for different requests, or from different seconds, have different fingerprints. The signature is not
    /// suitable, because anyone can turn a valid signature into a second valid signature without the key (ECDSA's `s` may be negated).
    pub fn fingerprint(&self) -> Vec<u8> {
        Sha256::digest(&self.signed.data).to_vec()
    }

    /// Checks the signature with the key of the `Host`, in PEM: ECDSA with SHA-256, P-256 or P-384.
    pub fn verify(&self, public_key: &str) -> Result<(), TokenProblem> {
        self.signed.verify(public_key, Kind::Ec, SIGNER)
    }
}

fn parse(payload: &str, body: &[u8], max_skew: i64, now: i64) -> Result<HostToken, TokenProblem> {
    let (data, signed): (Data, Signed) = signed_claim::read(payload)?;
    let stamp =
        Stamp { audience: &data.audience, timestamp: data.timestamp, request_hash: &data.request_hash.0 };
    stamp.check(body, max_skew, now)?;
    if !is_dns_name(&data.instance) {
        return Err(TokenProblem::Malformed("it does not name a valid Host"));
    }
    match signed.signature.is_empty() {
        true => Err(TokenProblem::NotSigned(SIGNER)),
        false => Ok(HostToken { host: data.instance, signed_at: data.timestamp, signed }),
    }
}

#[cfg(test)]
mod tests;
