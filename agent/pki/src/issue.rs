//! Issues certificates, with a new key or for an existing key.

use std::net::IpAddr;

use kops_agent_spec::certificate::{Certificate, CertificateType};
use kops_agent_spec::invalid::Invalid;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
    PublicKeyData, SanType, SerialNumber,
};
use sha2::{Digest, Sha256};
use time::{Duration, OffsetDateTime};

use crate::authority::Authority;
use crate::error::CertificateError;
use crate::pem::PemPair;

/// The default lifetime of a certificate (upstream: upup/pkg/fi/nodeup/nodetasks/issue_cert.go).
const LIFETIME: Duration = Duration::days(455);
/// A certificate becomes valid this long before its issue, so that machines with slow clocks accept it. But no certificate becomes valid
/// before its authority (upstream: pkg/pki/csr.go).
pub const BACKDATED: Duration = Duration::hours(48);

/// The object identifier of `organizationName`. The second organization of a subject needs it, because rcgen stores one value per type of
/// name.
const ORGANIZATION: [u64; 4] = [2, 5, 4, 10];

/// The lifetime of a node's certificate: the default lifetime plus `extra_hours`.
pub fn lifetime(extra_hours: u32) -> Duration {
    LIFETIME + Duration::hours(extra_hours.into())
}

/// Issues a certificate with exactly the content of `wanted`, and with a new key.
pub(crate) fn issue(
    wanted: &Certificate,
    authority: &Authority,
    now: OffsetDateTime,
    lifetime: Duration,
) -> Result<PemPair, CertificateError> {
    let key =
        KeyPair::generate().map_err(|error| invalid(wanted, format!("no key could be made: {error}")))?;
    // The key is new and random, so the hash of its public part is a random serial number.
    let hash = Sha256::digest(key.subject_public_key_info());
    let mut random = [0; 16];
    random.copy_from_slice(&hash[..16]);
    let certificate = sign(wanted, &key, random, authority, now, lifetime)?;
    Ok(PemPair { certificate, private_key: key.serialize_pem() })
}

/// Signs a certificate for the public key `key`. Returns the certificate in PEM.
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

/// The error for a certificate that cannot be made.
pub(crate) fn invalid(wanted: &Certificate, reason: impl Into<String>) -> CertificateError {
    CertificateError::Invalid { name: wanted.name.clone(), reason: reason.into() }
}

fn serial(mut random: [u8; 16]) -> SerialNumber {
    // The sign bit is 0 and the next bit is 1, so the number is positive, and its encoding always has 16 bytes.
    random[0] = random[0] & 0x7f | 0x40;
    SerialNumber::from_slice(&random)
}

fn subject(wanted: &Certificate) -> Result<DistinguishedName, Invalid> {
    let mut name = DistinguishedName::new();
    // rcgen stores one value per type of name. An organization can have one of two types, so a subject has at most two organizations.
    let types = [DnType::OrganizationName, DnType::CustomDnType(ORGANIZATION.to_vec())];
    if wanted.subject.organization.len() > types.len() {
        return Err(Invalid::new("more than two organizations cannot be written into a certificate"));
    }
    for (kind, organization) in types.into_iter().zip(&wanted.subject.organization) {
        name.push(kind, organization.as_str());
    }
    name.push(DnType::CommonName, wanted.subject.common_name.as_str());
    Ok(name)
}

/// The subject alternative names. An entry that parses as an IP address becomes an address, any other entry a
/// DNS name.
pub(crate) fn names(sans: &[String]) -> Result<Vec<SanType>, Invalid> {
    let name = |san: &str| match san.parse::<IpAddr>() {
        Ok(address) => Ok(SanType::IpAddress(address)),
        Err(_) => {
            let name = san.try_into().map_err(|_| format!("{san:?} is neither an address nor a DNS name"))?;
            Ok(SanType::DnsName(name))
        }
    };
    sans.iter().map(|san| san.trim()).filter(|san| !san.is_empty()).map(name).collect()
}

/// The allowed uses of the key (pkg/pki/issue.go, `wellKnownCertificateTypes`).
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
