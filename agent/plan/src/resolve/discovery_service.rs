//! The data that a control-plane machine registers with a hosted discovery service, so that other systems can
//! verify tokens of this cluster's service accounts.
//!
//! Source: nodeup/pkg/model/discovery_service.go.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::public_key::PublicKey;

use kops_agent_spec::invalid::Invalid;
use kops_agent_spec::{Keyset, KeysetItem};

use super::Problems;
use super::basis::Basis;

/// A registration with a discovery service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiscoveryService {
    pub url: String,
    /// The keys that verify tokens, by id.
    pub keys: Vec<JsonWebKey>,
}

/// A public RSA key (RFC 7517).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JsonWebKey {
    /// The purpose of the key: `sig` (signatures).
    #[serde(rename = "use")]
    pub key_use: &'static str,
    /// The type of the key: `RSA`.
    #[serde(rename = "kty")]
    pub key_type: &'static str,
    /// Id of the item in the keyset `service-account`.
    #[serde(rename = "kid")]
    pub key_id: String,
    /// The signature algorithm: `RS256`.
    #[serde(rename = "alg")]
    pub algorithm: &'static str,
    pub n: String,
    pub e: String,
}

/// The registration of this machine. `None` if the cluster has no discovery service, or if this is not a
/// control-plane machine.
pub(super) fn resolve(basis: &Basis<'_>, problems: &mut Problems) -> Option<DiscoveryService> {
    if !basis.is_control_plane() {
        return None;
    }
    let url = basis.config.discovery_service.as_ref()?.url.clone();
    // If the keyset is missing, `keypairs` reports it.
    let keyset = basis.keysets.get("service-account")?;
    let keys = problems.keep("discoveryServiceWithUniverse", json_web_keys(keyset))?;
    Some(DiscoveryService { url, keys })
}

fn json_web_keys(keyset: &Keyset) -> Result<Vec<JsonWebKey>, Invalid> {
    let trusted = keyset.items().iter().filter(|item| item.distrust_timestamp.is_none());
    let keys: Result<Vec<_>, Invalid> = trusted.map(json_web_key).collect();
    let mut keys: Vec<JsonWebKey> = keys?.into_iter().flatten().collect();
    keys.sort_by(|a, b| a.key_id.cmp(&b.key_id));
    Ok(keys)
}

/// The public key of an item. `None` if the item has no certificate, or if its certificate is not for `service-account`. kOps makes no such
/// item.
fn json_web_key(item: &KeysetItem) -> Result<Option<JsonWebKey>, Invalid> {
    let problem = |what: &str| {
        Invalid::new(format!(
            "the certificate of keypair {} of service-account {what}; \
             distrust it with `kops distrust keypair service-account {}`",
            item.id, item.id
        ))
    };
    let Some(certificate) = &item.certificate else { return Ok(None) };
    let (_, certificate) =
        X509Certificate::from_der(certificate.der()).map_err(|_| problem("cannot be read"))?;
    let common_name = certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
    if common_name != Some("service-account") {
        return Ok(None);
    }
    let Ok(PublicKey::RSA(key)) = certificate.public_key().parsed() else {
        return Err(problem("has no RSA key, and a discovery service accepts only RSA keys"));
    };
    Ok(Some(JsonWebKey {
        key_use: "sig",
        key_type: "RSA",
        key_id: item.id.clone(),
        algorithm: "RS256",
        n: base64url(key.modulus),
        e: base64url(key.exponent),
    }))
}

/// A number without its leading zero bytes, in base64url without padding.
fn base64url(number: &[u8]) -> String {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    URL_SAFE_NO_PAD.encode(&number[zeros..])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::resolve::testing::{EC_CERTIFICATE, RSA_CERTIFICATE, keyset_of};

    use super::*;

    #[test]
    fn trusted_keys_are_registered_by_id() {
        let distrusted = ", distrustTimestamp: \"2024-01-01T00:00:00Z\"";
        let keyset = keyset_of(
            "service-account",
            &[("9", RSA_CERTIFICATE, ""), ("10", RSA_CERTIFICATE, ""), ("8", RSA_CERTIFICATE, distrusted)],
        );
        let keys = json_web_keys(&keyset).unwrap();
        let ids: Vec<&str> = keys.iter().map(|key| key.key_id.as_str()).collect();
        assert_eq!(ids, ["10", "9"]);
        assert_eq!(keys[0].e, "AQAB");
        // A modulus of 2048 bits has 256 bytes. The zero byte that ASN.1 puts before the modulus is removed.
        assert_eq!(URL_SAFE_NO_PAD.decode(&keys[0].n).unwrap().len(), 256);
    }

    #[test]
    fn other_certificates_are_skipped() {
        // This certificate is the certificate of kubernetes-ca, so it is not a key of service-account.
        let keyset = keyset_of("service-account", &[("1", EC_CERTIFICATE, "")]);
        assert_eq!(json_web_keys(&keyset), Ok(Vec::new()));
    }
}
