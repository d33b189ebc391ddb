//! Decides whether an existing certificate is still good.

use std::collections::BTreeSet;
use std::net::IpAddr;

use kops_agent_pki::{PemPair, ders, first_der, is_key_of, split};
use kops_agent_plan::resource::{Certificate, CertificateType, Issuer};
use kops_agent_spec::digest::sha256_hex;
use time::OffsetDateTime;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The divisor of the lifetime: a certificate is renewed when at most a third of its lifetime remains.
const RENEWED_BEFORE: i32 = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// The certificate does not fit its purpose.
    Unfit(String),
    Expired,
    /// The certificate is still good, but is due for renewal.
    Renewal(String),
}

impl Reason {
    pub(super) fn text(self) -> String {
        match self {
            Reason::Unfit(text) | Reason::Renewal(text) => text,
            Reason::Expired => "it has expired".to_owned(),
        }
    }

    /// Whether the only problem of the certificate is that it has expired or needs a renewal.
    pub(super) fn is_due(&self) -> bool {
        matches!(self, Reason::Expired | Reason::Renewal(_))
    }
}

/// Why `present` must be replaced. `None` if it is good. `signers` are CA certificates in PEM.
pub(super) fn why_replace(
    present: &PemPair,
    wanted: &Certificate,
    signers: &str,
    now: OffsetDateTime,
) -> Option<Reason> {
    let unreadable = || Some(Reason::Unfit("it cannot be read".into()));
    let Some(der) = first_der(&present.certificate) else { return unreadable() };
    let Ok((_, certificate)) = X509Certificate::from_der(&der) else { return unreadable() };
    let signers: Vec<Vec<u8>> = ders(signers);
    match why_unfit(&certificate, present, wanted, &signers, now) {
        Ok(signer) => why_renew(&certificate, signer.validity().not_after.to_datetime(), now)
            .or_else(|| why_signed_anew(&signer, wanted, &signers)),
        Err(why) => Some(why),
    }
}

/// Returns a reason to renew a certificate if its CA is still trusted, but another trusted CA signs now. `kops promote keypair` changes the
/// signing CA. Certificates of the old CA must be replaced before `kops distrust keypair` removes the old CA.
///
/// A worker only knows the ID of the signing CA. If kOps chose the serial number of the CA's certificate, this number is the ID (upstream:
/// `AddItem` in `upup/pkg/fi/ca.go`). If no trusted CA has this serial number, every trusted CA is accepted.
fn why_signed_anew(
    signer: &X509Certificate<'_>,
    wanted: &Certificate,
    signers: &[Vec<u8>],
) -> Option<Reason> {
    let signs_now = |signer: &X509Certificate<'_>| signer.serial.to_string() == wanted.keypair_id;
    let is_known =
        || signers.iter().flat_map(|der| X509Certificate::from_der(der)).any(|(_, other)| signs_now(&other));
    (!signs_now(signer) && is_known()).then(|| {
        Reason::Renewal(format!(
            "it is signed by an old {} that is still trusted but no longer signs",
            wanted.signer
        ))
    })
}

/// Why a certificate does not fit its purpose. If the certificate fits, returns the CA that signed it.
fn why_unfit<'a>(
    certificate: &X509Certificate<'_>,
    present: &PemPair,
    wanted: &Certificate,
    signers: &'a [Vec<u8>],
    now: OffsetDateTime,
) -> Result<X509Certificate<'a>, Reason> {
    let unfit = |why: &str| Err(Reason::Unfit(why.to_owned()));
    if !is_key_of(certificate, &present.private_key) {
        return unfit("its key does not belong to it");
    }
    // Do not compare the names of a certificate from the bootstrap server, which takes the names from the cloud.
    if wanted.issuer == Issuer::Local && names_of(certificate) != Some(wanted_names(wanted)) {
        return unfit("its names are wrong");
    }
    if subject_of(certificate) != Some(wanted_subject(wanted)) {
        return unfit("its subject is wrong");
    }
    if type_of(certificate) != Some(wanted.certificate_type) || certificate.is_ca() {
        return unfit("its key usages are wrong, or it is a CA certificate");
    }
    let Some(signer) = signers.iter().find_map(|der| signer_of(certificate, der)) else {
        return unfit(&format!("it is not signed by a trusted {}", wanted.signer));
    };
    let (begins, ends) = life_of(certificate);
    if now < begins {
        return unfit("it is not valid yet by this machine's clock");
    }
    if now >= ends {
        return Err(Reason::Expired);
    }
    Ok(signer)
}

fn why_renew(
    certificate: &X509Certificate<'_>,
    signer_ends: OffsetDateTime,
    now: OffsetDateTime,
) -> Option<Reason> {
    let (begins, ends) = life_of(certificate);
    // If a certificate expires together with its CA, a new certificate would also expire at that time.
    let is_renewable = ends < signer_ends;
    (is_renewable && ends - now <= (ends - begins) / RENEWED_BEFORE)
        .then(|| Reason::Renewal("less than a third of its life is left".into()))
}

/// The identity of a certificate: its CA, subject, names and uses. Certificates with equal identities can replace each other. Also returns
/// when the certificate is due for renewal, in seconds since 1970. `signers` are in PEM.
pub(super) fn identity(certificate: &str, signers: &str) -> Option<(String, u64)> {
    let der = first_der(certificate)?;
    let (_, certificate) = X509Certificate::from_der(&der).ok()?;
    let signers = ders(signers);
    let der_of_signer = signers.iter().find(|der| signer_of(&certificate, der).is_some())?;
    let signer = signer_of(&certificate, der_of_signer)?;
    let (begins, ends) = life_of(&certificate);
    let due = match ends < signer.validity().not_after.to_datetime() {
        true => ends - (ends - begins) / RENEWED_BEFORE,
        false => ends,
    };
    let about = (subject_of(&certificate)?, names_of(&certificate)?, type_of(&certificate)?);
    let identity = format!("{} {about:?}", sha256_hex(der_of_signer));
    Some((identity, u64::try_from(due.unix_timestamp()).ok()?))
}

/// The CAs in PEM, except CAs that are younger than the CA `signer`.
pub(super) fn not_younger(authorities: &str, signer: &str) -> String {
    // Compare serial numbers, which kOps derives from the time (upup/pkg/fi/ca.go, `AddItem`).
    let age = |pem: &str| {
        let der = first_der(pem)?;
        let (_, certificate) = X509Certificate::from_der(&der).ok()?;
        Some((life_of(&certificate).0, certificate.serial.clone()))
    };
    let Some(of_signer) = age(signer) else { return authorities.to_owned() };
    split(authorities).filter(|one| age(one).is_none_or(|age| age <= of_signer)).collect()
}

fn life_of(certificate: &X509Certificate<'_>) -> (OffsetDateTime, OffsetDateTime) {
    let validity = certificate.validity();
    (validity.not_before.to_datetime(), validity.not_after.to_datetime())
}

fn signer_of<'a>(certificate: &X509Certificate<'_>, signer: &'a [u8]) -> Option<X509Certificate<'a>> {
    let (_, signer) = X509Certificate::from_der(signer).ok()?;
    let is_signed = certificate.issuer().as_raw() == signer.subject().as_raw()
        && certificate.verify_signature(Some(signer.public_key())).is_ok();
    is_signed.then_some(signer)
}

type Subject = (String, BTreeSet<String>);

fn wanted_subject(wanted: &Certificate) -> Subject {
    (wanted.subject.common_name.clone(), wanted.subject.organization.iter().cloned().collect())
}

fn subject_of(certificate: &X509Certificate<'_>) -> Option<Subject> {
    let subject = certificate.subject();
    let common_name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let organizations = subject
        .iter_organization()
        .map(|name| Some(name.as_str().ok()?.to_owned()))
        .collect::<Option<_>>()?;
    Some((common_name, organizations))
}

fn wanted_names(wanted: &Certificate) -> BTreeSet<String> {
    let name =
        |san: &str| san.parse::<IpAddr>().map_or_else(|_| san.to_owned(), |address| address.to_string());
    wanted.sans.iter().map(|san| san.trim()).filter(|san| !san.is_empty()).map(name).collect()
}

fn names_of(certificate: &X509Certificate<'_>) -> Option<BTreeSet<String>> {
    let Some(extension) = certificate.subject_alternative_name().ok()? else { return Some(BTreeSet::new()) };
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => Some(IpAddr::from(<[u8; 4]>::try_from(*bytes).ok()?).to_string()),
            16 => Some(IpAddr::from(<[u8; 16]>::try_from(*bytes).ok()?).to_string()),
            _ => None,
        },
        _ => None,
    };
    extension.value.general_names.iter().map(name).collect()
}

fn type_of(certificate: &X509Certificate<'_>) -> Option<CertificateType> {
    let usage = certificate.extended_key_usage().ok()??.value;
    match (usage.client_auth, usage.server_auth) {
        (true, true) => Some(CertificateType::ClientServer),
        (true, false) => Some(CertificateType::Client),
        (false, true) => Some(CertificateType::Server),
        (false, false) => None,
    }
}
