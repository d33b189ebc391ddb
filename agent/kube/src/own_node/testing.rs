//! Kubeconfigs for tests.

#![allow(clippy::unwrap_used)]
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tempfile::TempDir;

/// A kubeconfig for a server, with a certificate of this name.
pub(super) fn kubeconfig(server: &str, user: &str) -> (TempDir, PathBuf) {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, user);
    let key = rcgen::KeyPair::generate().unwrap();
    let [certificate, key] =
        [params.self_signed(&key).unwrap().pem(), key.serialize_pem()].map(|pem| STANDARD.encode(pem));
    let kubeconfig = json!({
        "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"client-certificate-data": certificate, "client-key-data": key}}],
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, kubeconfig.to_string()).unwrap();
    (folder, path)
}
