//! Signs certificates with an authority: for a public key of another machine, or with a new key.

use kops_agent_spec::certificate::Certificate;
use rcgen::SubjectPublicKeyInfo;
use time::{Duration, OffsetDateTime};

use crate::authority::Authority;
use crate::error::CertificateError;
use crate::issue::{invalid, issue, lifetime, sign};
use crate::pem::PemPair;

impl Authority {
    /// Signs a certificate with exactly the content of `wanted`, for a public key (`SubjectPublicKeyInfo` in DER). Returns the certificate
    /// in PEM. `random` becomes the serial number. The certificate is valid for the default lifetime plus `extra_hours`, but no longer than
    /// the authority. Fails if the type of the key is not supported, or the authority has expired.
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
        sign(wanted, &key, random, self, now, lifetime(extra_hours))
    }

    /// Issues a certificate with exactly the content of `wanted`, and with a new key. The certificate is valid for
    /// `lifetime`, but no longer than the authority. Fails if the authority has expired.
    pub fn issue(
        &self,
        wanted: &Certificate,
        now: OffsetDateTime,
        lifetime: Duration,
    ) -> Result<PemPair, CertificateError> {
        self.check_validity(wanted, now)?;
        issue(wanted, self, now, lifetime)
    }

    fn check_validity(&self, wanted: &Certificate, now: OffsetDateTime) -> Result<(), CertificateError> {
        match now >= self.validity().1 {
            true => Err(invalid(wanted, format!("its authority {} has expired", wanted.signer))),
            false => Ok(()),
        }
    }
}
