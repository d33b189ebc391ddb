//! Judges servers by the host's CA bundle, which is read when there is a server to judge: it is some hundred files, and a
//! run that finds nothing to do may speak TLS to none.

use std::sync::{Arc, OnceLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};

use super::{CaBundle, NoCaBundle};

/// Trusts servers that the bundle vouches for. Where there is none, every server is refused, with that as the reason:
/// rustls' own answer without roots is "unknown issuer", which leads astray.
#[derive(Debug)]
pub(super) struct HostVerifier {
    read: fn() -> Result<Arc<CaBundle>, NoCaBundle>,
    verifier: OnceLock<Result<Arc<WebPkiServerVerifier>, String>>,
    provider: Arc<CryptoProvider>,
}

impl HostVerifier {
    /// By the bundle that `read` gives.
    pub(super) fn reading(
        read: fn() -> Result<Arc<CaBundle>, NoCaBundle>,
        provider: Arc<CryptoProvider>,
    ) -> HostVerifier {
        HostVerifier { read, verifier: OnceLock::new(), provider }
    }

    fn verifier(&self) -> Result<&WebPkiServerVerifier, rustls::Error> {
        let verifier = self.verifier.get_or_init(|| {
            let bundle = (self.read)().map_err(|error| error.to_string())?;
            WebPkiServerVerifier::builder_with_provider(bundle.roots(), self.provider.clone())
                .build()
                .map_err(|error| error.to_string())
        });
        verifier.as_deref().map_err(|reason| rustls::Error::General(reason.clone()))
    }
}

impl ServerCertVerifier for HostVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.verifier()?.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kops_agent_tests::authority::Authority;
    use rcgen::CertificateParams;
    use rustls::pki_types::pem::PemObject as _;
    use rustls_native_certs::CertificateResult;

    use super::super::provider;
    use super::*;

    const NAME: &str = "example.com";

    fn server_of(authority: &Authority) -> CertificateDer<'static> {
        let pair = authority.issue(&CertificateParams::new(vec![NAME.to_owned()]).unwrap()).unwrap();
        CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap()
    }

    fn judge(verifier: &HostVerifier, certificate: &CertificateDer<'_>) -> Result<(), String> {
        let name = ServerName::try_from(NAME).unwrap();
        let judged = verifier.verify_server_cert(certificate, &[], &name, &[], UnixTime::now());
        judged.map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn servers_are_judged_by_a_bundle_that_is_read_once_and_not_before() {
        static READ: AtomicUsize = AtomicUsize::new(0);
        static TRUSTED: LazyLock<Authority> = LazyLock::new(|| Authority::new("trusted").unwrap());
        let read = || {
            READ.fetch_add(1, Ordering::Relaxed);
            let certs = vec![CertificateDer::from_pem_slice(TRUSTED.pem.as_bytes()).unwrap()];
            let mut found = CertificateResult::default();
            found.certs = certs;
            CaBundle::from_found(found).map(Arc::new)
        };
        let verifier = HostVerifier::reading(read, provider());
        assert!(!verifier.supported_verify_schemes().is_empty());
        assert_eq!(READ.load(Ordering::Relaxed), 0);
        assert_eq!(judge(&verifier, &server_of(&TRUSTED)), Ok(()));
        let refused = judge(&verifier, &server_of(&Authority::new("other").unwrap())).unwrap_err();
        assert!(refused.contains("UnknownIssuer"), "{refused}");
        assert_eq!(READ.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn without_a_bundle_a_server_is_refused_for_that_reason() {
        let read = || CaBundle::from_found(CertificateResult::default()).map(Arc::new);
        let verifier = HostVerifier::reading(read, provider());
        let refused = judge(&verifier, &CertificateDer::from(vec![])).unwrap_err();
        assert!(refused.contains("install ca-certificates"), "{refused}");
    }
}
