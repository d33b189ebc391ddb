//! A test's certificate authority, for certificates whose authority is not a kOps keyset (`example_keys`).

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_RSA_SHA256, RsaKeySize, date_time_ymd,
};
use time::OffsetDateTime;

/// A certificate and its private key, both in PEM.
#[derive(Clone)]
pub struct Pair {
    pub certificate: String,
    /// PEM, in the format PKCS #8.
    pub private_key: String,
}

/// A self-signed CA.
pub struct Authority {
    pub pem: String,
    /// The CA's private key, in PEM.
    pub key: String,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

impl Authority {
    /// Makes a CA with this common name. The CA is valid for centuries, so no test depends on the date.
    pub fn new(name: &str) -> anyhow::Result<Authority> {
        Authority::lasting(name, KeyPair::generate()?)
    }

    /// Like `new`, but with an RSA key, like the CAs of kOps. An API server verifies a client's certificate at each request. The
    /// duration of this verification depends on the type of the CA's key.
    pub fn of_rsa(name: &str) -> anyhow::Result<Authority> {
        Authority::lasting(name, KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)?)
    }

    fn lasting(name: &str, key: KeyPair) -> anyhow::Result<Authority> {
        Authority::of_key(name, key, date_time_ymd(1975, 1, 1), date_time_ymd(4096, 1, 1))
    }

    /// Makes a CA with this common name and key, valid between two times.
    pub fn of_key(
        name: &str,
        key: KeyPair,
        from: OffsetDateTime,
        to: OffsetDateTime,
    ) -> anyhow::Result<Authority> {
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        (params.not_before, params.not_after) = (from, to);
        let pem = params.self_signed(&key)?.pem();
        Ok(Authority { pem, key: key.serialize_pem(), issuer: Issuer::new(params, key) })
    }

    /// The CA's own certificate and key.
    pub fn pair(&self) -> Pair {
        Pair { certificate: self.pem.clone(), private_key: self.key.clone() }
    }

    /// Issues a certificate with these parameters and a new key.
    pub fn issue(&self, params: &CertificateParams) -> anyhow::Result<Pair> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Pair { certificate, private_key: key.serialize_pem() })
    }
}

/// A subject with only this common name. rcgen's default subject has a different common name.
pub fn common_name(name: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    subject
}
