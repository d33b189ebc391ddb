//! Issuing a certificate, with a new key or for one that is there.

use std::net::IpAddr;

use kops_agent_plan::resource::{Certificate, CertificateType};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
    PublicKeyData, SanType, SerialNumber,
};
use sha2::{Digest, Sha256};
use time::{Duration, OffsetDateTime};

use crate::authority::Authority;
use crate::error::CertificateError;
use crate::pem::PemPair;

/// How long a certificate lives (upup/pkg/fi/nodeup/nodetasks/issue_cert.go).
const LIFETIME: Duration = Duration::days(455);
/// How far back its life begins, for clocks that are slow (pkg/pki/csr.go).
const BACKDATED: Duration = Duration::hours(48);

/// The object identifier of an organization's name, for every one after the first.
const ORGANIZATION: [u64; 4] = [2, 5, 4, 10];

/// How long a certificate of a node lives, which is by so many hours longer than others do.
pub fn lifetime(extra_hours: u32) -> Duration {
    LIFETIME + Duration::hours(extra_hours.into())
}

/// Issues a certificate that says all that `wanted` says and nothing else.
pub(crate) fn issue(
    wanted: &Certificate,
    authority: &Authority,
    now: OffsetDateTime,
    lifetime: Duration,
) -> Result<PemPair, CertificateError> {
    let key =
        KeyPair::generate().map_err(|error| invalid(wanted, format!("no key could be made: {error}")))?;
    // As random as the key, which is made for this one certificate.
    let hash = Sha256::digest(key.subject_public_key_info());
    let mut random = [0; 16];
    random.copy_from_slice(&hash[..16]);
    let certificate = sign(wanted, &key, random, authority, now, lifetime)?;
    Ok(PemPair { certificate, private_key: key.serialize_pem() })
}

/// Signs a certificate for this key, and gives it in PEM.
pub(crate) fn sign(
    wanted: &Certificate,
    key: &impl PublicKeyData,
    random: [u8; 16],
    authority: &Authority,
    now: OffsetDateTime,
    lifetime: Duration,
) -> Result<String, CertificateError> {
    let (authority_begins, authority_ends) = authority.validity();
    let now = now.replace_nanosecond(0).unwrap_or(now);

    let mut params = CertificateParams::default();
    params.not_before = (now - BACKDATED).max(authority_begins);
    params.not_after = (now + lifetime).min(authority_ends);
    params.serial_number = Some(serial(random));
    params.distinguished_name = subject(wanted).map_err(|problem| invalid(wanted, problem))?;
    params.subject_alt_names = names(&wanted.sans).map_err(|problem| invalid(wanted, problem))?;
    params.is_ca = IsCa::ExplicitNoCa;
    (params.key_usages, params.extended_key_usages) = usages(wanted.certificate_type);
    params.use_authority_key_identifier_extension = true;

    let certificate = params
        .signed_by(key, authority.issuer())
        .map_err(|error| invalid(wanted, format!("it could not be signed: {error}")))?;
    Ok(certificate.pem())
}

/// What is not to be had of a certificate.
pub(crate) fn invalid(wanted: &Certificate, reason: String) -> CertificateError {
    CertificateError::Invalid { name: wanted.name.clone(), reason }
}

fn serial(mut random: [u8; 16]) -> SerialNumber {
    // Positive, and of the same length whatever the first bits are.
    random[0] = random[0] & 0x7f | 0x40;
    SerialNumber::from_slice(&random)
}

fn subject(wanted: &Certificate) -> Result<DistinguishedName, String> {
    let mut name = DistinguishedName::new();
    // rcgen holds one value for each type, and this type can be named in two ways.
    let types = [DnType::OrganizationName, DnType::CustomDnType(ORGANIZATION.to_vec())];
    if wanted.subject.organization.len() > types.len() {
        return Err("more than two organizations cannot be written into a certificate".into());
    }
    for (kind, organization) in types.into_iter().zip(&wanted.subject.organization) {
        name.push(kind, organization.as_str());
    }
    name.push(DnType::CommonName, wanted.subject.common_name.as_str());
    Ok(name)
}

/// The names that a certificate is for: what reads as an address is one.
pub(crate) fn names(sans: &[String]) -> Result<Vec<SanType>, String> {
    let name = |san: &str| match san.parse::<IpAddr>() {
        Ok(address) => Ok(SanType::IpAddress(address)),
        Err(_) => {
            let name = san.try_into().map_err(|_| format!("{san:?} is neither an address nor a DNS name"))?;
            Ok(SanType::DnsName(name))
        }
    };
    sans.iter().map(|san| san.trim()).filter(|san| !san.is_empty()).map(name).collect()
}

/// What the key may be used for (pkg/pki/issue.go, `wellKnownCertificateTypes`).
fn usages(kind: CertificateType) -> (Vec<KeyUsagePurpose>, Vec<ExtendedKeyUsagePurpose>) {
    use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
    use KeyUsagePurpose::{DigitalSignature, KeyEncipherment};
    match kind {
        CertificateType::Client => (vec![DigitalSignature], vec![ClientAuth]),
        CertificateType::Server => (vec![DigitalSignature, KeyEncipherment], vec![ServerAuth]),
        CertificateType::ClientServer => {
            (vec![DigitalSignature, KeyEncipherment], vec![ClientAuth, ServerAuth])
        }
    }
}
