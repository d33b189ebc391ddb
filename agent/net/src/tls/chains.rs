//! Verifies certificate chains. Only this module calls webpki's verifiers (`tests/lints/one-verifier`).
//!
//! webpki tries the certificates of a peer in every order, and gives up after 200,000 steps. So a few kilobytes of certificates with one
//! name cost seconds of CPU before the peer has proven anything. Every function here counts the certificates first.

use std::fmt;
use std::sync::Arc;

use kops_agent_spec::invalid::Invalid;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier as _};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, Error, OtherError, RootCertStore};
use webpki::{EndEntityCert, ExtendedKeyUsageValidator, KeyPurposeIdIter};

use super::provider;

/// Maximum number of certificates that a server may send in addition to its own. Public servers send one to three
/// such certificates. With five certificates of the same name, webpki takes 325 steps, which is a few milliseconds.
const MOST_OF_SERVER: usize = 5;
/// Maximum number of certificates between the certificate of a document's signer and a trusted authority.
pub const MOST_OF_DOCUMENT: usize = 2;

/// A peer sends more certificates than the limit allows.
#[derive(Clone, Copy, PartialEq, Eq)]
struct TooMany {
    shown: usize,
    accepted: usize,
}

impl TooMany {
    fn check(between: &[CertificateDer<'_>], accepted: usize) -> Result<(), TooMany> {
        let shown = between.len();
        if shown > accepted { Err(TooMany { shown, accepted }) } else { Ok(()) }
    }
}

impl fmt::Display for TooMany {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TooMany { shown, accepted } = self;
        let others = if *shown == 1 { "1 certificate" } else { &format!("{shown} certificates") };
        match accepted {
            0 => write!(
                formatter,
                "{others} came in addition to the client's own, and none is accepted: show only the client's certificate"
            ),
            most => write!(
                formatter,
                "{others} came in addition to the server's own, and at most {most} are accepted"
            ),
        }
    }
}

// The `Debug` text is the error message, because rustls formats this error with `Debug`.
impl fmt::Debug for TooMany {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl std::error::Error for TooMany {}

impl From<TooMany> for Error {
    fn from(problem: TooMany) -> Error {
        CertificateError::Other(OtherError(Arc::new(problem))).into()
    }
}

/// Returns the current authorities for client certificates. `None` if there are none.
type Vouching = dyn Fn() -> Option<Arc<RootCertStore>> + Send + Sync;

/// Accepts clients whose certificate was signed directly by an authority. Certificates of kubelets and
/// kops-controllers are signed directly. So a client that sends more certificates than its own is refused.
pub struct Clients {
    authorities: Box<Vouching>,
    /// Whether a client without a certificate is refused.
    is_mandatory: bool,
}

impl Clients {
    /// A verifier that accepts only clients with a certificate that one of `authorities` has signed.
    pub fn verifier(authorities: RootCertStore) -> Arc<dyn ClientCertVerifier> {
        let authorities = Arc::new(authorities);
        Arc::new(Clients { authorities: Box::new(move || Some(authorities.clone())), is_mandatory: true })
    }

    /// A verifier that accepts clients without a certificate. A client with a certificate is refused unless a current
    /// authority has signed the certificate. `authorities` is called for each client, because the authorities may
    /// change while the server runs.
    pub fn of_current(
        authorities: impl Fn() -> Option<Arc<RootCertStore>> + Send + Sync + 'static,
    ) -> Arc<dyn ClientCertVerifier> {
        Arc::new(Clients { authorities: Box::new(authorities), is_mandatory: false })
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Clients").field("is_mandatory", &self.is_mandatory).finish_non_exhaustive()
    }
}

impl ClientCertVerifier for Clients {
    fn client_auth_mandatory(&self) -> bool {
        self.is_mandatory
    }

    /// The server sends no names of authorities to clients, because the authorities may change before the next
    /// connection.
    fn root_hint_subjects(&self) -> &[rustls::DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        TooMany::check(intermediates, 0)?;
        let authorities = (self.authorities)().ok_or(CertificateError::UnknownIssuer)?;
        WebPkiClientVerifier::builder_with_provider(authorities, provider())
            .build()
            .map_err(|error| Error::General(error.to_string()))?
            .verify_client_cert(end_entity, &[], now)
    }

    rustls_signature_checks!();
}

/// Checks that a server's certificate is valid for `name`, and that its chain leads to one of `authorities`. The
/// chain may use the other certificates that the server sends. Fails if the server sends too many certificates.
pub(super) fn verify_server(
    authorities: Arc<RootCertStore>,
    end_entity: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    server_name: &ServerName<'_>,
    now: UnixTime,
) -> Result<ServerCertVerified, Error> {
    TooMany::check(intermediates, MOST_OF_SERVER)?;
    WebPkiServerVerifier::builder_with_provider(authorities, provider())
        .build()
        .map_err(|error| Error::General(error.to_string()))?
        .verify_server_cert(end_entity, intermediates, server_name, &[], now)
}

/// Checks that the certificate of a document's signer chains to one of `authorities` at the current time. There may
/// be at most [`MOST_OF_DOCUMENT`] certificates in between. The key of the signer may have any usage.
pub fn signer_leads_to(
    authorities: &RootCertStore,
    certificate: &[u8],
    between: &[CertificateDer<'_>],
) -> Result<(), Invalid> {
    TooMany::check(between, MOST_OF_DOCUMENT).map_err(|problem| Invalid::new(problem.to_string()))?;
    let der = CertificateDer::from(certificate);
    let judged = EndEntityCert::try_from(&der).and_then(|certificate| {
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms.all;
        let roots = &authorities.roots;
        certificate
            .verify_for_usage(algorithms, roots, between, UnixTime::now(), AnyUsage, None, None)
            .map(drop)
    });
    judged.map_err(|error| Invalid::new(error.to_string()))
}

struct AnyUsage;

impl ExtendedKeyUsageValidator for AnyUsage {
    fn validate(&self, _: KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use parking_lot::Mutex;

    use kops_agent_tests::authority::{Authority, common_name};
    use rcgen::{CertificateParams, ExtendedKeyUsagePurpose};
    use rustls::pki_types::pem::PemObject as _;

    use super::*;

    const NAME: &str = "example.com";

    fn der(pem: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
    }

    fn roots(authority: &Authority) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(der(&authority.pem)).unwrap();
        roots
    }

    /// Authorities with the same name, which have signed nothing. To build a chain, webpki tries them in every order.
    fn decoys(name: &str, count: usize) -> Vec<CertificateDer<'static>> {
        (0..count).map(|_| der(&Authority::new(name).unwrap().pem)).collect()
    }

    fn issued(authority: &Authority, usage: ExtendedKeyUsagePurpose) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
        params.distinguished_name = common_name("one");
        params.extended_key_usages = vec![usage];
        der(&authority.issue(&params).unwrap().certificate)
    }

    #[test]
    fn a_client_may_show_only_its_own_certificate() {
        let authority = Authority::new("ours").unwrap();
        let clients = Clients::verifier(roots(&authority));
        let client = issued(&authority, ExtendedKeyUsagePurpose::ClientAuth);
        let judge = |beside: &[CertificateDer<'_>]| {
            let judged = clients.verify_client_cert(&client, beside, UnixTime::now());
            judged.map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(judge(&[]), Ok(()));
        // A client may send only its own certificate. Not even the authority's certificate is accepted with it, because
        // an exception could be a loophole for a stranger.
        for beside in [vec![der(&authority.pem)], decoys("ours", 20), decoys("other", 1)] {
            let refused = judge(&beside).unwrap_err();
            assert!(refused.contains("show only the client's certificate"), "{refused}");
        }
    }

    #[test]
    fn clients_are_verified_by_the_current_authorities() {
        let (first, second) = (Authority::new("first").unwrap(), Authority::new("second").unwrap());
        let trusted = Arc::new(Mutex::new(None));
        let clients = Clients::of_current({
            let trusted = trusted.clone();
            move || trusted.lock().clone()
        });
        assert!(!clients.client_auth_mandatory() && Clients::verifier(roots(&first)).client_auth_mandatory());
        assert!(!clients.supported_verify_schemes().is_empty());
        let is_accepted = |authority: &Authority| {
            let client = issued(authority, ExtendedKeyUsagePurpose::ClientAuth);
            clients.verify_client_cert(&client, &[], UnixTime::now()).is_ok()
        };
        assert!(!is_accepted(&first), "before the first authorities, every client is refused");
        *trusted.lock() = Some(Arc::new(roots(&first)));
        assert!(is_accepted(&first) && !is_accepted(&second));
        *trusted.lock() = Some(Arc::new(roots(&second)));
        assert!(!is_accepted(&first) && is_accepted(&second));
        *trusted.lock() = Some(Arc::new(RootCertStore::empty()));
        assert!(!is_accepted(&second), "without authorities, no client is accepted");
    }

    #[test]
    fn too_many_certificates_are_refused_before_webpki_runs() {
        let authority = Authority::new("ours").unwrap();
        let server = issued(&authority, ExtendedKeyUsagePurpose::ServerAuth);
        let judge = |beside: usize| {
            let name = ServerName::try_from(NAME).unwrap();
            let trusted = Arc::new(roots(&authority));
            let judged = verify_server(trusted, &server, &decoys("ours", beside), &name, UnixTime::now());
            judged.map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(judge(0), Ok(()));
        assert_eq!(judge(MOST_OF_SERVER), Ok(()));
        let refused = judge(MOST_OF_SERVER + 1).unwrap_err();
        assert!(
            refused
                .contains("6 certificates came in addition to the server's own, and at most 5 are accepted"),
            "{refused}"
        );
    }

    #[test]
    fn a_signer_may_chain_to_an_authority_by_two_certificates() {
        let authority = Authority::new("ours").unwrap();
        let signer = issued(&authority, ExtendedKeyUsagePurpose::TimeStamping);
        let judge =
            |of: &Authority, beside: usize| signer_leads_to(&roots(of), &signer, &decoys("ours", beside));
        assert_eq!(judge(&authority, MOST_OF_DOCUMENT), Ok(()));
        let refused = judge(&authority, MOST_OF_DOCUMENT + 1).unwrap_err().to_string();
        assert!(refused.contains("3 certificates came"), "{refused}");
        assert!(judge(&Authority::new("ours").unwrap(), 0).is_err(), "another key of that name");
    }
}
