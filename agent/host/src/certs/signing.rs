//! Signing certificates for others, whose keys stay with them.

use kops_agent_plan::resource::Certificate;
use rcgen::SubjectPublicKeyInfo;
use time::{Duration, OffsetDateTime};

use super::CertificateError;
use super::authority::Authority;
use super::issue::{invalid, issue, lifetime, sign};
use crate::secrets::PemPair;

/// An authority that signs for machines that ask for it.
pub struct SigningAuthority(Authority);

impl SigningAuthority {
    /// Checks the key pair of an authority: the item `id` of a keyset.
    ///
    /// # Errors
    /// If it cannot be read, is no authority, or not valid at this time.
    pub fn load(
        keyset: &str,
        id: &str,
        pair: PemPair,
        now: OffsetDateTime,
    ) -> Result<SigningAuthority, CertificateError> {
        Authority::load(keyset, id, pair, now).map(SigningAuthority)
    }

    /// Signs a certificate that says all that `wanted` says and nothing else, for a public key
    /// (`SubjectPublicKeyInfo` in DER), and gives it in PEM. `random` makes its serial number. It lives as long as any
    /// certificate of a node, by `extra_hours` longer, but no longer than the authority.
    ///
    /// # Errors
    /// If the key is of a kind that cannot be certified, what is wanted cannot be written into a certificate, or the
    /// authority has expired.
    pub fn sign(
        &self,
        wanted: &Certificate,
        public_key_der: &[u8],
        random: [u8; 16],
        now: OffsetDateTime,
        extra_hours: u32,
    ) -> Result<String, CertificateError> {
        self.check_validity(wanted, now)?;
        let key = SubjectPublicKeyInfo::from_der(public_key_der)
            .map_err(|error| invalid(wanted, format!("its public key cannot be certified: {error}")))?;
        sign(wanted, &key, random, &self.0, now, lifetime(extra_hours))
    }

    /// Issues a certificate that says all that `wanted` says and nothing else, with a new key, to whoever holds the
    /// authority himself. It lives for so long, but no longer than the authority.
    ///
    /// # Errors
    /// If what is wanted cannot be written into a certificate, no key can be made, or the authority has expired.
    pub fn issue(
        &self,
        wanted: &Certificate,
        now: OffsetDateTime,
        lifetime: Duration,
    ) -> Result<PemPair, CertificateError> {
        self.check_validity(wanted, now)?;
        issue(wanted, &self.0, now, lifetime)
    }

    fn check_validity(&self, wanted: &Certificate, now: OffsetDateTime) -> Result<(), CertificateError> {
        match now >= self.0.validity().1 {
            true => Err(invalid(wanted, format!("its authority {} has expired", wanted.signer))),
            false => Ok(()),
        }
    }
}
