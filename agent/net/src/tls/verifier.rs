//! Verifies server certificates by a rule.

use std::fmt;
use std::sync::Arc;

use kops_agent_pki::common_name_and_validity;
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, RootCertStore};
use time::OffsetDateTime;

use super::chains;

/// Returns the current authorities, or the reason why there are none. Without the reason, rustls would report
/// "unknown issuer", which is misleading.
type Authorities = dyn Fn() -> Result<Arc<RootCertStore>, Error> + Send + Sync;

pub(super) enum Rule {
    Nothing(String),
    /// Trusts only this certificate, regardless of its signer. The caller has the certificate from a trusted source.
    Only(CertificateDer<'static>),
    /// Trusts certificates that chain to the authorities that this function returns. The function may read a host's
    /// bundle, which is about a hundred files. So it is called only when a server is verified: a run without changes
    /// may use no TLS at all.
    VouchedForBy(Box<Authorities>),
    /// Trusts any server. Only for operators who request it explicitly.
    Anyone,
}

impl fmt::Debug for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Rule::Nothing(_) => "Nothing",
            Rule::Only(_) => "Only",
            Rule::VouchedForBy(_) => "VouchedForBy",
            Rule::Anyone => "Anyone",
        })
    }
}

/// Decides by a rule which servers to trust. The signature of a handshake is always checked.
#[derive(Debug)]
pub(super) struct RuleVerifier(pub(super) Rule);

impl ServerCertVerifier for RuleVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.0 {
            Rule::Nothing(reason) => Err(Error::General(reason.clone())),
            Rule::Only(certificate) if end_entity != certificate => {
                Err(CertificateError::UnknownIssuer.into())
            }
            Rule::Only(_) => is_of_server(end_entity, server_name, now),
            Rule::VouchedForBy(authorities) => {
                chains::verify_server(authorities()?, end_entity, intermediates, server_name, now)
            }
            Rule::Anyone => Ok(ServerCertVerified::assertion()),
        }
    }

    rustls_signature_checks!();
}

/// Checks that a trusted certificate is valid for the server's name and at the given time.
fn is_of_server(
    certificate: &CertificateDer<'_>,
    server: &ServerName<'_>,
    now: UnixTime,
) -> Result<ServerCertVerified, Error> {
    verify_server_name(&ParsedCertificate::try_from(certificate)?, server)?;
    let now = i64::try_from(now.as_secs()).ok().and_then(|now| OffsetDateTime::from_unix_timestamp(now).ok());
    match now.and_then(|now| common_name_and_validity(certificate, now)) {
        Some((_, true)) => Ok(ServerCertVerified::assertion()),
        Some((_, false)) => Err(CertificateError::Expired.into()),
        None => Err(CertificateError::BadEncoding.into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kops_agent_tests::authority::Authority;
    use parking_lot::Mutex;
    use rcgen::CertificateParams;
    use rustls::pki_types::pem::PemObject as _;

    use super::*;

    const NAME: &str = "example.com";

    fn der(pem: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
    }

    fn server_of(authority: &Authority) -> CertificateDer<'static> {
        let pair = authority.issue(&CertificateParams::new(vec![NAME.to_owned()]).unwrap()).unwrap();
        der(&pair.certificate)
    }

    fn judge(verifier: &RuleVerifier, certificate: &CertificateDer<'_>, name: &str) -> Result<(), String> {
        let name = ServerName::try_from(name).unwrap();
        let judged = verifier.verify_server_cert(certificate, &[], &name, &[], UnixTime::now());
        judged.map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn servers_are_verified_by_the_current_authorities() {
        let (first, second) = (Authority::new("first").unwrap(), Authority::new("second").unwrap());
        let roots = |authority: &Authority| {
            let mut roots = RootCertStore::empty();
            roots.add(der(&authority.pem)).unwrap();
            Arc::new(roots)
        };
        let trusted = Arc::new((Mutex::new(roots(&first)), AtomicUsize::new(0)));
        let verifier = RuleVerifier(Rule::VouchedForBy({
            let trusted = trusted.clone();
            Box::new(move || {
                trusted.1.fetch_add(1, Ordering::Relaxed);
                Ok(trusted.0.lock().clone())
            })
        }));
        assert!(!verifier.supported_verify_schemes().is_empty());
        assert_eq!(trusted.1.load(Ordering::Relaxed), 0);
        assert_eq!(judge(&verifier, &server_of(&first), NAME), Ok(()));
        let refused = judge(&verifier, &server_of(&second), NAME).unwrap_err();
        assert!(refused.contains("UnknownIssuer"), "{refused}");

        *trusted.0.lock() = roots(&second);
        assert_eq!(judge(&verifier, &server_of(&second), NAME), Ok(()));
        assert!(judge(&verifier, &server_of(&first), NAME).is_err());
    }

    #[test]
    fn an_error_without_authorities_names_the_reason() {
        let refused = |rule| judge(&RuleVerifier(rule), &CertificateDer::from(vec![]), NAME).unwrap_err();
        let none = || Err(Error::General("install ca-certificates".into()));
        assert!(refused(Rule::VouchedForBy(Box::new(none))).contains("install ca-certificates"));
        assert!(refused(Rule::Nothing("it is link-local".into())).contains("it is link-local"));
        let empty = || Ok(Arc::new(RootCertStore::empty()));
        assert!(refused(Rule::VouchedForBy(Box::new(empty))).contains("no root trust anchors"));
    }

    #[test]
    fn a_pinned_certificate_is_trusted_and_others_of_its_authority_are_not() {
        let authority = Authority::new("any").unwrap();
        let (ours, other) = (server_of(&authority), server_of(&authority));
        let verifier = RuleVerifier(Rule::Only(ours.clone()));
        assert_eq!(judge(&verifier, &ours, NAME), Ok(()));
        assert!(judge(&verifier, &ours, "example.org").is_err());
        assert!(judge(&verifier, &other, NAME).unwrap_err().contains("UnknownIssuer"));
    }
}
