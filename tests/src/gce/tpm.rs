//! The TPM of an instance, as far as kOps uses it: an RSA key, and the tokens that the key signs.
//!
//! Source: upstream's `upup/pkg/fi/cloudup/gce/tpm`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{KeyPair, PKCS_RSA_SHA256, PublicKeyData as _, RsaKeySize, SigningKey as _};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::{PROJECT, ZONE};

/// The audience of the tokens that machines send.
pub const AUDIENCE: &str = "kops.k8s.io/node-bootstrap";

pub struct Tpm(KeyPair);

#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    pub project: &'a str,
    pub zone: &'a str,
    pub instance: &'a str,
    pub audience: &'a str,
    /// The time at which the token was made, in seconds since 1970.
    pub at: i64,
    /// The body of the request that contains the token.
    pub body: &'a [u8],
}

impl<'a> Claim<'a> {
    /// A claim of this instance in the project [`PROJECT`] and the zone [`ZONE`].
    pub fn new(instance: &'a str, body: &'a [u8], at: i64) -> Claim<'a> {
        Claim { project: PROJECT, zone: ZONE, instance, audience: AUDIENCE, at, body }
    }
}

impl Tpm {
    /// Makes a TPM with a new key.
    pub fn generate() -> anyhow::Result<Tpm> {
        Ok(Tpm(KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)?))
    }

    /// The public key in the format in which Google returns it.
    pub fn public_pem(&self) -> String {
        let base64 = STANDARD.encode(self.0.subject_public_key_info());
        format!("-----BEGIN PUBLIC KEY-----\n{base64}\n-----END PUBLIC KEY-----\n")
    }

    pub fn token(&self, claim: &Claim<'_>) -> anyhow::Result<String> {
        let data = json!({
            "gcpProjectID": claim.project, "zone": claim.zone, "instance": claim.instance,
            "timestamp": claim.at, "audience": claim.audience,
            "requestHash": STANDARD.encode(Sha256::digest(claim.body)),
        });
        let data = data.to_string();
        let signature = self.0.sign(data.as_bytes())?;
        let token = json!({"signature": STANDARD.encode(signature), "data": STANDARD.encode(data)});
        Ok(format!("x-gce-tpm {}", STANDARD.encode(token.to_string())))
    }
}
