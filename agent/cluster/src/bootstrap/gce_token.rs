//! A machine's token on GCE: the identity that the machine claims, signed by the machine's TPM. Google keeps a key for each instance.
//!
//! A machine makes a [`Claim`], lets its TPM sign it, and puts both into a [`token`]. On the server this module rejects everything that it
//! can reject without asking Google. [`GceToken::verify`] checks the signature with the instance's key from Google.
//!
//! Source: upstream's `upup/pkg/fi/cloudup/gce/tpm`.

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use super::message::Bytes;
use super::signed_claim::{self, Kind, Signed, Stamp};
pub use super::signed_claim::{AUDIENCE, TokenProblem, USUAL_SKEW};
use crate::identity::gce::{GceCluster, InstancePath, check_place, is_project, is_resource_name, is_zone};

/// The prefix of GCE's tokens in the header `Authorization`.
pub const PREFIX: &str = "x-gce-tpm ";
/// The signer's name in messages.
const SIGNER: &str = "the TPM of the instance that it names";

/// The values against which a token is checked.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    pub cluster: &'a GceCluster,
    /// The maximum clock difference to a machine, in seconds.
    pub max_skew: i64,
    /// Seconds since 1970.
    pub now: i64,
}

/// A token that passed all checks except the check of the signature.
#[derive(Clone, PartialEq, Eq)]
pub struct GceToken {
    /// The instance that the token names, in the cluster's project and region.
    pub instance: InstancePath,
    /// The signature. No two requests have the same signature.
    pub signature: Vec<u8>,
    /// The time of signing, by the machine's clock, in seconds since 1970.
    pub signed_at: i64,
    signed: Signed,
}

impl std::fmt::Debug for GceToken {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("GceToken").field("instance", &self.instance).finish_non_exhaustive()
    }
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

/// A machine's claim about itself in a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// The id of the machine's project.
    pub project: String,
    pub zone: String,
    pub instance: String,
    /// Seconds since 1970.
    pub timestamp: i64,
}

impl Claim {
    /// The data that the machine's TPM signs for a request with this body.
    pub fn data(self, body: &[u8]) -> Vec<u8> {
        let data = Data {
            project: self.project,
            zone: self.zone,
            instance: self.instance,
            request_hash: signed_claim::hash(body),
            timestamp: self.timestamp,
            audience: AUDIENCE.into(),
        };
        signed_claim::json(&data)
    }
}

/// Builds a token from a claim's [data](Claim::data) and the signature of the data.
pub fn token(data: Vec<u8>, signature: Vec<u8>) -> String {
    signed_claim::token(PREFIX, data, signature)
}

impl GceToken {
    /// Reads a token that came with this request body. `None` if the token is not from GCE.
    pub fn parse(
        token: &str,
        body: &[u8],
        expected: &Expected<'_>,
    ) -> Option<Result<GceToken, TokenProblem>> {
        Some(parse(token.strip_prefix(PREFIX)?, body, expected))
    }

    /// Checks the signature with a key that Google keeps for the instance: RSASSA-PKCS1-v1_5 with SHA-256. The key is in PEM.
    pub fn verify(&self, key_pem: &str) -> Result<(), TokenProblem> {
        self.signed.verify(key_pem, Kind::Rsa, SIGNER)
    }
}

fn parse(payload: &str, body: &[u8], expected: &Expected<'_>) -> Result<GceToken, TokenProblem> {
    let (data, signed): (Data, Signed) = signed_claim::read(payload)?;
    let stamp =
        Stamp { audience: &data.audience, timestamp: data.timestamp, request_hash: &data.request_hash.0 };
    stamp.check(body, expected.max_skew, expected.now)?;
    if !is_project(&data.project) || !is_zone(&data.zone) || !is_resource_name(&data.instance) {
        return Err(TokenProblem::Malformed("it does not name a valid GCE instance"));
    }
    check_place(&data.project, &data.zone, &data.instance, expected.cluster)?;
    if signed.signature.is_empty() {
        return Err(TokenProblem::NotSigned(SIGNER));
    }
    let instance = InstancePath { zone: data.zone, name: data.instance };
    Ok(GceToken { instance, signature: signed.signature.clone(), signed_at: data.timestamp, signed })
}
