//! TLS trust: one cryptography provider and one set of roots for the whole process.

/// The methods of a certificate verifier that check the signature of a handshake, as in rustls' own verifiers.
macro_rules! rustls_signature_checks {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &rustls::pki_types::CertificateDer<'_>,
            signature: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            let algorithms = super::provider().signature_verification_algorithms;
            rustls::crypto::verify_tls12_signature(message, certificate, signature, &algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &rustls::pki_types::CertificateDer<'_>,
            signature: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            let algorithms = super::provider().signature_verification_algorithms;
            rustls::crypto::verify_tls13_signature(message, certificate, signature, &algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
            super::provider().signature_verification_algorithms.supported_schemes()
        }
    };
}

pub mod chains;
mod verifier;

use kops_agent_spec::failure::{Failing, Kind};
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::client::WantsClientCert;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, ServerConfig, WantsVerifier};
use rustls_native_certs::CertificateResult;
use thiserror::Error;

use verifier::{Rule, RuleVerifier};

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no CA bundle on this host: install ca-certificates or set SSL_CERT_FILE{details}")]
pub struct NoCaBundle {
    /// The errors while reading CA bundles. Begins with punctuation, or is empty.
    details: String,
}

impl Failing for NoCaBundle {
    fn kind(&self) -> Kind {
        Kind::NoCaBundle
    }
}

static CACHED: CachedBundle = CachedBundle(Mutex::new(None));

/// The CA bundle, or the error that the host has none. `None` until the bundle is read.
struct CachedBundle(Mutex<Option<Result<Arc<CaBundle>, NoCaBundle>>>);

impl CachedBundle {
    fn bundle(&self, read: impl FnOnce() -> CertificateResult) -> Result<Arc<CaBundle>, NoCaBundle> {
        let mut known = self.0.lock();
        known.get_or_insert_with(|| CaBundle::from_found(read()).map(Arc::new)).clone()
    }

    fn forget(&self) {
        *self.0.lock() = None;
    }
}

/// The authorities of the host's CA bundle.
#[derive(Clone, Debug)]
pub struct CaBundle {
    roots: Arc<RootCertStore>,
}

impl CaBundle {
    /// The CA bundle of this host, or the bundle at `SSL_CERT_FILE` and `SSL_CERT_DIR`. The bundle is read once and
    /// then cached. [`CaBundle::forget`] drops the cache.
    pub fn of_this_host() -> Result<Arc<CaBundle>, NoCaBundle> {
        CACHED.bundle(rustls_native_certs::load_native_certs)
    }

    /// Drops the cached bundle, so that the next use reads it again. At a first boot, another program may add an
    /// authority, for example a script in `spec.additionalUserData`.
    pub fn forget() {
        CACHED.forget();
    }

    fn from_found(found: CertificateResult) -> Result<CaBundle, NoCaBundle> {
        let mut roots = RootCertStore::empty();
        // Some certificates in CA bundles are invalid for rustls. They are skipped without an error.
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            let details =
                found.errors.iter().fold(String::new(), |details, error| format!("{details}; {error}"));
            return Err(NoCaBundle { details });
        }
        Ok(CaBundle { roots: Arc::new(roots) })
    }

    /// The authorities of the bundle, for callers that verify certificates themselves.
    pub fn roots(&self) -> Arc<RootCertStore> {
        self.roots.clone()
    }
}

/// Makes aws-lc-rs the cryptography provider of this process. Must be called before any use of TLS. A second call has
/// no effect.
pub fn install_provider() {
    let _already_installed = aws_lc_rs::default_provider().install_default();
}

/// Fails early if the host has no CA bundle and a URL in `urls` needs one.
pub fn require_ca_bundle_for<'a>(urls: impl IntoIterator<Item = &'a str>) -> Result<(), NoCaBundle> {
    if urls.into_iter().any(|url| url.starts_with("https://")) {
        CaBundle::of_this_host()?;
    }
    Ok(())
}

/// A TLS client configuration that trusts the host's CA bundle. The bundle is read when the first server is verified.
/// Without a bundle, TLS fails with an error about the bundle, and plain HTTP works.
pub fn client_config() -> Result<ClientConfig, rustls::Error> {
    client_config_trusting_current(|| Ok(CaBundle::of_this_host().map_err(unusable)?.roots()))
}

/// A TLS client configuration that accepts any server certificate. It is only for operators who request it
/// explicitly, and they get a warning.
pub fn client_config_without_verification() -> Result<ClientConfig, rustls::Error> {
    Ok(client_by(Rule::Anyone)?.with_no_client_auth())
}

/// A TLS client configuration that trusts the authorities that `authorities` returns. `authorities` is called for
/// each server, because the authorities may change while the client is in use.
pub fn client_config_trusting_current(
    authorities: impl Fn() -> Result<Arc<RootCertStore>, rustls::Error> + Send + Sync + 'static,
) -> Result<ClientConfig, rustls::Error> {
    Ok(client_by(Rule::VouchedForBy(Box::new(authorities)))?.with_no_client_auth())
}

/// A TLS client configuration that trusts only the authorities in a PEM text.
pub fn client_config_trusting(authorities: &str) -> Result<ClientConfig, rustls::Error> {
    Ok(client_of(Arc::new(roots_of(authorities)?))?.with_no_client_auth())
}

/// Like `client_config_trusting`, but with a client certificate: a PEM chain and its key.
pub fn client_config_trusting_as(
    authorities: &str,
    chain: &str,
    key: &str,
) -> Result<ClientConfig, rustls::Error> {
    config_as(Arc::new(roots_of(authorities)?), chain, key)
}

/// The authorities in a PEM text. Certificates that cannot be used are skipped. Fails if none remains.
pub fn roots_of(authorities: impl AsRef<[u8]>) -> Result<RootCertStore, rustls::Error> {
    let certificates = CertificateDer::pem_slice_iter(authorities.as_ref()).filter_map(Result::ok);
    let mut roots = RootCertStore::empty();
    let (usable, _) = roots.add_parsable_certificates(certificates);
    match usable {
        0 => Err(rustls::Error::General("there is no PEM certificate of an authority to trust".into())),
        _ => Ok(roots),
    }
}

/// A TLS client configuration that trusts the host's CA bundle, and has a client certificate: a PEM chain and its
/// key. Fails if the host has no CA bundle.
pub fn client_config_as(chain: &str, key: &str) -> Result<ClientConfig, rustls::Error> {
    config_as(CaBundle::of_this_host().map_err(unusable)?.roots(), chain, key)
}

fn config_as(roots: Arc<RootCertStore>, chain: &str, key: &str) -> Result<ClientConfig, rustls::Error> {
    let (chain, key) = chain_and_key(chain, key)?;
    client_of(roots)?.with_client_auth_cert(chain, key)
}

/// A TLS server configuration with a PEM chain and its key. It accepts only clients whose certificate was signed
/// directly by one of `authorities` (PEM). See [`chains::Clients`].
pub fn server_config_for_clients_of(
    authorities: &str,
    chain: &str,
    key: &str,
) -> Result<ServerConfig, rustls::Error> {
    let clients = chains::Clients::verifier(roots_of(authorities)?);
    let (chain, key) = chain_and_key(chain, key)?;
    ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)
}

/// A TLS client configuration that trusts only the server with `certificate` (PEM), and has a client certificate: a
/// PEM chain and its key.
pub fn client_config_pinned_to(
    certificate: &[u8],
    chain: &str,
    key: &str,
) -> Result<ClientConfig, rustls::Error> {
    let certificate = CertificateDer::from_pem_slice(certificate)
        .map_err(|_| rustls::Error::General("the server's certificate cannot be read".into()))?;
    let (chain, key) = chain_and_key(chain, key)?;
    client_by(Rule::Only(certificate))?.with_client_auth_cert(chain, key)
}

fn chain_and_key(
    chain: &str,
    key: &str,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), rustls::Error> {
    let unreadable = |what: &str| rustls::Error::General(format!("kops-agent's own {what} cannot be read"));
    let chain = CertificateDer::pem_slice_iter(chain.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| unreadable("certificate"))?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| unreadable("key"))?;
    Ok((chain, key))
}

/// A TLS client configuration that fails for every server with the error `reason`.
pub fn refusing_every_server(reason: String) -> Result<ClientConfig, rustls::Error> {
    Ok(client_by(Rule::Nothing(reason))?.with_no_client_auth())
}

fn unusable(error: impl std::error::Error) -> rustls::Error {
    rustls::Error::General(error.to_string())
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn client() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, rustls::Error> {
    ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()
}

fn client_of(
    authorities: Arc<RootCertStore>,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, rustls::Error> {
    client_by(Rule::VouchedForBy(Box::new(move || Ok(authorities.clone()))))
}

fn client_by(rule: Rule) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, rustls::Error> {
    Ok(client()?.dangerous().with_custom_certificate_verifier(Arc::new(RuleVerifier(rule))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;

    use kops_agent_tests::authority::Authority;
    use rustls_native_certs::load_certs_from_paths;

    use super::*;

    fn authority() -> String {
        Authority::new("ours").unwrap().pem
    }

    #[test]
    fn the_error_of_a_host_without_a_bundle_says_what_to_do() {
        let error = CaBundle::from_found(CertificateResult::default()).unwrap_err().to_string();
        assert_eq!(error, "no CA bundle on this host: install ca-certificates or set SSL_CERT_FILE");
    }

    #[test]
    fn the_error_names_a_missing_bundle() {
        let error = CaBundle::from_found(load_certs_from_paths(Some(Path::new("/nowhere.crt")), None));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("SSL_CERT_FILE; ") && error.contains("/nowhere.crt"), "{error}");
    }

    #[test]
    fn a_forgotten_bundle_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bundle.crt");
        let known = CachedBundle(Mutex::new(None));
        let trusted =
            || known.bundle(|| load_certs_from_paths(Some(&file), None)).map(|bundle| bundle.roots.len());
        assert!(trusted().is_err());
        std::fs::write(&file, authority()).unwrap();
        assert!(trusted().is_err(), "the bundle is cached, and not read for each client");
        known.forget();
        assert_eq!(trusted(), Ok(1));
        std::fs::write(&file, authority() + &authority()).unwrap();
        assert_eq!(trusted(), Ok(1));
        known.forget();
        assert_eq!(trusted(), Ok(2));
    }

    #[test]
    fn plain_http_needs_no_bundle() {
        assert_eq!(require_ca_bundle_for(["http://127.0.0.1/a", "file:///b", "s3://c/d"]), Ok(()));
    }

    #[test]
    fn a_client_can_be_configured_on_any_host() {
        install_provider();
        install_provider();
        client_config().unwrap();
    }
}
