//! One TLS and crypto stack for every connection, and the authorities that it trusts.

use std::sync::{Arc, OnceLock};

use anyhow::{Result, bail};
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;

/// Makes aws-lc-rs the process's only provider. Must come before the first connection.
pub fn install_provider() {
    // A second call finds the first one's provider in place, which is the same.
    let _ = aws_lc_rs::default_provider().install_default();
}

/// The authorities that this machine trusts: `SSL_CERT_FILE` and `SSL_CERT_DIR` where they are set, else the
/// system's bundle. Read once.
///
/// # Errors
/// If there is none at all: then no server could be believed.
pub fn roots() -> Result<Arc<RootCertStore>> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    if let Some(roots) = ROOTS.get() {
        return Ok(Arc::clone(roots));
    }
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        bail!(
            "this machine has no CA bundle, so no server can be trusted over HTTPS; install the package \
             ca-certificates, or set SSL_CERT_FILE to a file of PEM certificates"
        );
    }
    Ok(Arc::clone(ROOTS.get_or_init(|| Arc::new(roots))))
}

/// A client's side of TLS.
///
/// # Errors
/// If this machine trusts nobody.
pub fn client_config() -> Result<rustls::ClientConfig> {
    Ok(rustls::ClientConfig::builder().with_root_certificates(roots()?).with_no_client_auth())
}

/// The same, but without a CA bundle one that trusts nobody, so that plain HTTP still works.
pub fn client_config_or_trusting_nobody() -> rustls::ClientConfig {
    client_config().unwrap_or_else(|_| {
        rustls::ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth()
    })
}
