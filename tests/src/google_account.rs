//! A Google service account with a key, and the check of token requests that the key has signed.
//!
//! Source: Google, "Using OAuth 2.0 for Server to Server Applications" ("HTTP/REST"); RFC 7523; RFC 7515.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{KeyPair, PKCS_RSA_SHA256, PublicKeyData as _, RsaKeySize};
use rustls::SignatureScheme;
use rustls::crypto::aws_lc_rs;
use serde_json::{Value, json};
use time::OffsetDateTime;

pub const EMAIL: &str = "kops-state@my-project.iam.gserviceaccount.com";
const KEY_ID: &str = "3f1c0d5e7a";
const GRANT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// Google's limit for the lifetime of a signed request, in seconds.
const LONGEST_LIFE: i64 = 3600;
/// The maximum clock skew, in seconds.
const SKEW: i64 = 300;

/// A service account with one key.
#[derive(Debug)]
pub struct ServiceAccount {
    key: KeyPair,
}

impl ServiceAccount {
    pub fn generate() -> anyhow::Result<ServiceAccount> {
        Ok(ServiceAccount { key: KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)? })
    }

    /// The content of the account's key file. `token_uri` is the URL at which clients request tokens.
    pub fn file(&self, token_uri: &str) -> Value {
        json!({
            "type": "service_account", "project_id": "my-project", "private_key_id": KEY_ID,
            "private_key": self.key.serialize_pem(), "client_email": EMAIL, "client_id": "1",
            "auth_uri": "https://accounts.google.com/o/oauth2/auth", "token_uri": token_uri,
            "universe_domain": "googleapis.com"
        })
    }

    /// Checks a request for a token, and returns its scope. The account's key must have signed the request recently. The request
    /// must be for the server at `token_uri`, and its lifetime must be at most one hour.
    pub fn scope_of(&self, form: &[u8], token_uri: &str) -> anyhow::Result<String> {
        let form: BTreeMap<String, String> = form_urlencoded::parse(form).into_owned().collect();
        ensure!(form.get("grant_type").is_some_and(|grant| grant == GRANT), "unsupported_grant_type");
        let assertion = form.get("assertion").context("no assertion")?;
        let (signed, signature) = assertion.rsplit_once('.').context("no JWT")?;
        let (header, claims) = signed.split_once('.').context("no JWT")?;
        let part = |text: &str| -> anyhow::Result<Value> {
            Ok(serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text)?)?)
        };
        let (header, claims) = (part(header)?, part(claims)?);
        ensure!(header == json!({"alg": "RS256", "typ": "JWT", "kid": KEY_ID}), "its header is {header}");
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms.mapping;
        let rs256 = algorithms.iter().find(|(scheme, _)| *scheme == SignatureScheme::RSA_PKCS1_SHA256);
        let signature = URL_SAFE_NO_PAD.decode(signature)?;
        let is_signed = rs256.is_some_and(|(_, algorithms)| {
            let public = self.key.der_bytes();
            algorithms
                .iter()
                .any(|algorithm| algorithm.verify_signature(public, signed.as_bytes(), &signature).is_ok())
        });
        ensure!(is_signed, "Invalid JWT Signature.");
        ensure!(claims["iss"] == EMAIL && claims["aud"] == token_uri, "its claims are {claims}");
        let (issued, end) =
            (claims["iat"].as_i64().context("no iat")?, claims["exp"].as_i64().context("no exp")?);
        let now = OffsetDateTime::now_utc().unix_timestamp();
        ensure!(
            (issued - now).abs() < SKEW && end > issued && end - issued <= LONGEST_LIFE,
            "its times are {issued} and {end}"
        );
        Ok(claims["scope"].as_str().context("no scope")?.to_owned())
    }
}
