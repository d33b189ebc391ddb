//! Self-signed certificates: short-lived ones for the challenge server of the bootstrap protocol, and certificate authorities of
//! add-ons.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SerialNumber,
};
use time::{Duration, OffsetDateTime};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::error::CertificateError;
use crate::pem::PemPair;

/// The validity of a certificate: it begins `backdated` before the time of issue, and ends `lifetime` after that time.
struct Life {
    backdated: Duration,
    lifetime: Duration,
}

/// The validity of a serving certificate (pkg/bootstrap/challenge_server.go).
const SERVING: Life = Life { backdated: Duration::minutes(15), lifetime: Duration::minutes(45) };

/// The validity of an add-on's authority (upstream: `signNewCertificate` in pkg/pki/csr.go).
const AUTHORITY: Life = Life { backdated: Duration::hours(48), lifetime: Duration::days(10 * 365) };

/// A self-signed serving certificate for `name`. It cannot sign other certificates.
pub fn self_signed(name: &str, now: OffsetDateTime) -> Result<PemPair, CertificateError> {
    signed_by_its_own_key(name, now, SERVING, |params| {
        params.serial_number = Some(SerialNumber::from(1));
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    })
}

/// A self-signed certificate authority, as kOps makes one for an add-on. `name` is both the common name and the DNS name of the authority.
pub fn self_signed_authority(name: &str, now: OffsetDateTime) -> Result<PemPair, CertificateError> {
    signed_by_its_own_key(name, now, AUTHORITY, |params| {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::CrlSign, KeyUsagePurpose::KeyCertSign];
    })
}

fn signed_by_its_own_key(
    name: &str,
    now: OffsetDateTime,
    Life { backdated, lifetime }: Life,
    set_usage: impl FnOnce(&mut CertificateParams),
) -> Result<PemPair, CertificateError> {
    let invalid =
        |error: rcgen::Error| CertificateError::Invalid { name: name.to_owned(), reason: error.to_string() };
    let mut params = CertificateParams::new([name.to_owned()]).map_err(invalid)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    set_usage(&mut params);
    let now = now.replace_nanosecond(0).unwrap_or(now);
    (params.not_before, params.not_after) = (now - backdated, now + lifetime);
    let key = KeyPair::generate().map_err(invalid)?;
    let certificate = params.self_signed(&key).map_err(invalid)?.pem();
    Ok(PemPair { certificate, private_key: key.serialize_pem() })
}

/// The common name of a certificate's subject, and whether the certificate is valid at `now`. `None` if `der` is not a
/// certificate, or does not have exactly one common name.
pub fn common_name_and_validity(der: &[u8], now: OffsetDateTime) -> Option<(String, bool)> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let mut names = certificate.subject().iter_common_name();
    let name = names.next().filter(|_| names.next().is_none())?.as_str().ok()?.to_owned();
    let validity = certificate.validity();
    let is_valid = validity.not_before.to_datetime() <= now && now < validity.not_after.to_datetime();
    Some((name, is_valid))
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;
    use crate::pem::first_der;

    #[test]
    fn an_authority_signs_for_ten_years() {
        let now = datetime!(2026-11-22 12:00 UTC);
        let PemPair { certificate, private_key } =
            self_signed_authority("metrics-server.addons.k8s.io", now).unwrap();
        let der = first_der(&certificate).unwrap();
        let (_, read) = X509Certificate::from_der(&der).unwrap();
        let usage = read.key_usage().unwrap().unwrap().value;
        assert!(read.is_ca() && usage.key_cert_sign() && usage.crl_sign() && !usage.digital_signature());
        let validity = read.validity();
        assert_eq!(validity.not_before.to_datetime(), now - Duration::days(2));
        assert_eq!(validity.not_after.to_datetime(), now + Duration::days(3650));
        assert_eq!(
            common_name_and_validity(&der, now),
            Some(("metrics-server.addons.k8s.io".to_owned(), true))
        );
        let pair = PemPair { certificate, private_key };
        assert!(
            crate::Authority::load("a", "1", pair, now).is_ok(),
            "the authority has its key, and may sign"
        );
    }

    #[test]
    fn a_serving_certificate_has_its_name_and_lives_for_an_hour() {
        let now = datetime!(2026-11-22 12:00 UTC);
        let der =
            first_der(&self_signed("challenge-server.c.example.com", now).unwrap().certificate).unwrap();
        let at = |time| common_name_and_validity(&der, time).unwrap();
        assert_eq!(at(now), ("challenge-server.c.example.com".to_owned(), true));
        assert!(at(now - Duration::minutes(15)).1 && !at(now - Duration::minutes(16)).1);
        assert!(!at(now + Duration::minutes(45)).1);
        let (_, certificate) = X509Certificate::from_der(&der).unwrap();
        assert!(!certificate.is_ca());
        assert_eq!(common_name_and_validity(b"no certificate", now), None);
    }
}
