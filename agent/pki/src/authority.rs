//! A certificate authority from the state store, checked before it signs.

use rcgen::{Issuer, KeyPair, PublicKeyData as _};
use time::OffsetDateTime;
use time::macros::format_description;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::error::CertificateError;
use crate::pem::{PemPair, first_der, with_newline};

/// A certificate authority with the private key of its certificate. [`Authority::load`] has checked that the
/// certificate is valid.
pub struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
    not_before: OffsetDateTime,
    not_after: OffsetDateTime,
}

impl Authority {
    /// Makes an authority from the item `id` of a keyset. Fails if the item's key does not belong to its certificate, or if
    /// the certificate is not a CA or is not valid at `now`.
    pub fn load(
        keyset: &str,
        id: &str,
        item: PemPair,
        now: OffsetDateTime,
    ) -> Result<Authority, CertificateError> {
        let bad =
            |what: String| CertificateError::BadAuthority { keyset: keyset.into(), id: id.into(), what };
        let not_now =
            |what: String| CertificateError::NotValidNow { keyset: keyset.into(), id: id.into(), what };
        let der = first_der(&item.certificate).ok_or_else(|| bad("holds no PEM certificate".into()))?;
        let (_, certificate) =
            X509Certificate::from_der(&der).map_err(|error| bad(format!("cannot be read: {error}")))?;
        let key = KeyPair::from_pem(&item.private_key)
            .map_err(|_| bad("has a private key that is neither RSA nor EC in PEM".into()))?;
        if key.subject_public_key_info() != certificate.public_key().raw {
            return Err(bad("has a private key that does not belong to its certificate".into()));
        }
        if !certificate.is_ca() {
            return Err(bad("is not a certificate authority: its certificate may not sign others".into()));
        }
        let validity = certificate.validity();
        let (not_before, not_after) = (validity.not_before.to_datetime(), validity.not_after.to_datetime());
        if now < not_before {
            let (from, now) = (day(not_before), day(now));
            return Err(not_now(format!(
                "is valid only from {from}, and this machine's clock says {now}: set the clock"
            )));
        }
        if now >= not_after {
            return Err(not_now(format!(
                "expired on {}: replace it with `kops create keypair {keyset} --primary`, and check that this \
                 machine's clock is right",
                day(not_after)
            )));
        }
        let issuer = Issuer::from_ca_cert_der(&der.clone().into(), key)
            .map_err(|error| bad(format!("cannot be used: {error}")))?;
        Ok(Authority { pem: with_newline(&item.certificate), issuer, not_before, not_after })
    }

    /// The certificate in PEM, with a newline at its end.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    pub(crate) fn issuer(&self) -> &Issuer<'static, KeyPair> {
        &self.issuer
    }

    /// The times `notBefore` and `notAfter` of the certificate.
    pub(crate) fn validity(&self) -> (OffsetDateTime, OffsetDateTime) {
        (self.not_before, self.not_after)
    }
}

fn day(at: OffsetDateTime) -> String {
    at.format(format_description!("[year]-[month]-[day] [hour]:[minute] UTC"))
        .unwrap_or_else(|_| at.to_string())
}
