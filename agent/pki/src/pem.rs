//! Certificates as texts in PEM.

use std::fmt;

use rcgen::{KeyPair, PublicKeyData as _};
use time::OffsetDateTime;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The last line of a certificate in PEM.
const END: &str = "-----END CERTIFICATE-----";

/// A certificate and its private key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct PemPair {
    /// The certificate. More certificates may follow it.
    pub certificate: String,
    /// The private key, as PKCS#8, PKCS#1 or SEC1.
    pub private_key: String,
}

impl fmt::Debug for PemPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PemPair").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

impl PemPair {
    /// Whether the private key is the key of the certificate.
    pub fn has_its_key(&self) -> bool {
        self.read(|certificate| is_key_of(certificate, &self.private_key)).unwrap_or_default()
    }

    /// The start and the end of the certificate's validity; `None` if the certificate cannot be read.
    pub fn validity(&self) -> Option<[OffsetDateTime; 2]> {
        self.read(|certificate| {
            let validity = certificate.validity();
            [validity.not_before, validity.not_after].map(|time| time.to_datetime())
        })
    }

    fn read<T>(&self, of: impl FnOnce(&X509Certificate<'_>) -> T) -> Option<T> {
        let der = first_der(&self.certificate)?;
        let (_, certificate) = X509Certificate::from_der(&der).ok()?;
        Some(of(&certificate))
    }
}

/// Whether `private_key` (PEM) is the key of the certificate.
pub fn is_key_of(certificate: &X509Certificate<'_>, private_key: &str) -> bool {
    KeyPair::from_pem(private_key)
        .is_ok_and(|key| key.subject_public_key_info() == certificate.public_key().raw)
}

/// The DER bytes of every certificate in a PEM text.
pub fn ders(pem: &str) -> Vec<Vec<u8>> {
    Pem::iter_from_buffer(pem.as_bytes())
        .filter_map(Result::ok)
        .filter(|block| block.label == "CERTIFICATE")
        .map(|block| block.contents)
        .collect()
}

/// The DER bytes of the first certificate in a PEM text.
pub fn first_der(pem: &str) -> Option<Vec<u8>> {
    ders(pem).into_iter().next()
}

/// Splits a PEM text into one text per certificate.
pub fn split(pem: &str) -> impl Iterator<Item = String> {
    pem.split_inclusive(END).filter(|one| first_der(one).is_some()).map(|one| format!("{}\n", one.trim()))
}

/// Appends the certificates of `others` to `first`, except certificates that equal `first`.
pub fn with_others(first: &str, others: &str) -> String {
    let known = first_der(first);
    let mut all = first.to_owned();
    for other in others.split_inclusive(END) {
        if first_der(other).is_some_and(|der| Some(&der) != known.as_ref()) {
            all.push_str(other.trim_start());
            all.push('\n');
        }
    }
    all
}

/// The first certificate of a PEM text, in PEM. A text without a certificate is returned unchanged.
pub fn first_pem(pem: &str) -> String {
    match pem.split_once(END) {
        Some((first, _)) => format!("{}{END}\n", first.trim_start()),
        None => pem.to_owned(),
    }
}

/// The PEM text with exactly one newline at its end.
pub fn with_newline(pem: &str) -> String {
    format!("{}\n", pem.trim_end())
}
