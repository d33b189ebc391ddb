//! Kubeconfigs for stand-ins of the API server.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::json;

/// The text of a kubeconfig for a server. The client certificate is self-signed and has the name `user`.
pub fn kubeconfig(server: &str, user: &str) -> anyhow::Result<String> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, user);
    let key = KeyPair::generate()?;
    let [certificate, key] =
        [params.self_signed(&key)?.pem(), key.serialize_pem()].map(|pem| STANDARD.encode(pem));
    let kubeconfig = json!({
        "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"client-certificate-data": certificate, "client-key-data": key}}],
    });
    Ok(kubeconfig.to_string())
}
