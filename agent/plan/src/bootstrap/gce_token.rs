//! A machine's token on GCE: its claimed identity, signed by its TPM with a key that Google keeps for each instance.
//!
//! A machine states a [`Claim`], has its TPM sign it, and puts both into a [`token`]. On the other side all that can be
//! refused without asking Google is refused here. Whether the signature is right shows the key that Google gives for the
//! instance ([`GceToken::verify`]).
//!
//! Source: upstream's `upup/pkg/fi/cloudup/gce/tpm`.

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use super::message::Bytes;
use super::signed_claim::{self, Kind, Signed, Stamp};
pub use super::signed_claim::{AUDIENCE, TokenProblem, USUAL_SKEW};
use crate::identity::gce::{GceCluster, InstancePath, check_place, is_project, is_resource_name, is_zone};

/// What a token begins with.
pub const PREFIX: &str = "x-gce-tpm ";
/// The signer, in messages.
const SIGNER: &str = "the TPM of the instance that it names";

/// What a token must fit.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
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

/// What a machine says of itself when it asks for something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// The id of its project.
    pub project: String,
    /// The zone that it is in.
    pub zone: String,
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
            request_hash: signed_claim::hash(body),
            timestamp: self.timestamp,
            audience: AUDIENCE.into(),
        };
        signed_claim::json(&data)
    }
}

/// The token of a claim's [data](Claim::data) and what its TPM has made of it.
pub fn token(data: Vec<u8>, signature: Vec<u8>) -> String {
    signed_claim::token(PREFIX, data, signature)
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
        self.signed.verify(key_pem, Kind::Rsa, SIGNER)
    }
}

fn parse(payload: &str, body: &[u8], expected: &Expected<'_>) -> Result<GceToken, TokenProblem> {
    let (data, signed): (Data, Signed) = signed_claim::read(payload)?;
    let stamp =
        Stamp { audience: &data.audience, timestamp: data.timestamp, request_hash: &data.request_hash.0 };
    stamp.check(body, expected.max_skew, expected.now)?;
    if !is_project(&data.project) || !is_zone(&data.zone) || !is_resource_name(&data.instance) {
        return Err(TokenProblem::Malformed("it names no instance that GCE could have"));
    }
    check_place(&data.project, &data.zone, &data.instance, expected.cluster)?;
    if signed.signature.is_empty() {
        return Err(TokenProblem::NotSigned(SIGNER));
    }
    let instance = InstancePath { zone: data.zone, name: data.instance };
    Ok(GceToken { instance, signature: signed.signature.clone(), signed_at: data.timestamp, signed })
}
