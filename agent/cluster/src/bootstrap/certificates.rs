//! Decides the certificate for a name that a machine requests from kops-controller: its subject, its purpose, and its signer. The machine
//! only provides a public key. The contents of the certificate come from the cloud's verification.
//!
//! Source: upstream's `cmd/kops-controller/pkg/server/server.go` (`issueCert`). Upstream certifies any key with the right PEM label. This
//! module requires a strong key.

use std::collections::{BTreeMap, BTreeSet};

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ParsedPublicKey, VerificationAlgorithm,
};
use thiserror::Error;
use x509_parser::der_parser::asn1_rs::Oid;
use x509_parser::oid_registry::{OID_EC_P256, OID_NIST_EC_P384};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer as _;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use kops_agent_spec::certificate::{Certificate, CertificateType, Issuer, Subject};
use kops_agent_spec::fnv::fnv32;

/// The PEM label of a public key. Despite this label, the key may be of any type. The contents are a `SubjectPublicKeyInfo`.
pub const PUBLIC_KEY_LABEL: &str = "RSA PUBLIC KEY";

const KUBERNETES_CA: &str = "kubernetes-ca";
const CILIUM_ETCD_CA: &str = "etcd-clients-ca-cilium";

/// The maximum extra lifetime of a node's certificates, in hours. The extra lifetime spreads the expiry of certificates over a month.
const HOURS_OF_A_MONTH: u32 = 30 * 24;
/// The first byte of an uncompressed point (SEC 1, section 2.3.3).
const UNCOMPRESSED: u8 = 4;
const FEWEST_RSA_BITS: usize = 2048;
const MOST_RSA_BITS: usize = 8192;

#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    pub node_name: &'a str,
    /// The names and addresses that the cloud reports for the machine.
    pub certificate_names: &'a [String],
}

/// The certificates that this server issues.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    /// The names of certificates that machines may request (`server.certNames`).
    pub cert_names: &'a BTreeSet<String>,
    /// For each authority, the id of the signing key pair.
    pub keypair_ids: &'a BTreeMap<String, String>,
}

/// A certificate to sign, and its public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    pub certificate: Certificate,
    /// The public key: `SubjectPublicKeyInfo` in DER.
    pub public_key_der: Vec<u8>,
}

/// Why a certificate is not issued. The machine gets this message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CertificateRefusal {
    /// The certificate does not exist, or is not enabled in this cluster.
    #[error("no certificate of that name is issued in this cluster")]
    NotEnabled,
    #[error("the public key is not a SubjectPublicKeyInfo in a PEM block titled {PUBLIC_KEY_LABEL}")]
    NoKey,
    /// The key is too weak, or of a type that nodes do not use.
    #[error(
        "the public key is neither an RSA key of {FEWEST_RSA_BITS} to {MOST_RSA_BITS} bits nor an EC key on P-256 or P-384"
    )]
    UnfitKey,
    #[error(
        "the machine trusts the key pair {asked:?} of {signer}, but this control plane signs with {own:?}: \
         one of them has not been updated yet"
    )]
    OtherKeypair {
        signer: &'static str,
        /// The key pair id that the machine trusts.
        asked: String,
        /// The id of the signing key pair.
        own: String,
    },
}

/// The extra lifetime of a machine's certificates, in hours.
pub fn extra_hours(node_name: &str) -> u32 {
    fnv32(node_name.as_bytes()) % HOURS_OF_A_MONTH
}

/// Decides which certificate to sign if a machine requests the certificate `name` for `public_key`. `trusted` has the ids of the key pairs
/// that the machine trusts. An empty `trusted` (machines before kOps 1.22) is accepted.
pub fn order(
    name: &str,
    public_key: &str,
    trusted: &BTreeMap<String, String>,
    asker: &Asker<'_>,
    offer: &Offer<'_>,
) -> Result<Order, CertificateRefusal> {
    if !offer.cert_names.contains(name) {
        return Err(CertificateRefusal::NotEnabled);
    }
    let client = (KUBERNETES_CA, CertificateType::Client, &[][..]);
    let (common_name, organization, (signer, certificate_type, sans)) = match name {
        "kubelet" => (format!("system:node:{}", asker.node_name), vec!["system:nodes".to_owned()], client),
        "kubelet-server" => {
            let server = (KUBERNETES_CA, CertificateType::Server, asker.certificate_names);
            (asker.node_name.to_owned(), Vec::new(), server)
        }
        "kube-proxy" => ("system:kube-proxy".to_owned(), Vec::new(), client),
        "kube-router" => ("system:kube-router".to_owned(), Vec::new(), client),
        "etcd-client-cilium" => {
            ("cilium".to_owned(), Vec::new(), (CILIUM_ETCD_CA, CertificateType::Client, &[][..]))
        }
        _ => return Err(CertificateRefusal::NotEnabled),
    };
    check_keypair(signer, trusted, offer)?;
    let certificate = Certificate {
        name: name.to_owned(),
        signer: signer.to_owned(),
        keypair_id: offer.keypair_ids.get(signer).cloned().unwrap_or_default(),
        certificate_type,
        subject: Subject { common_name, organization },
        sans: sans.to_vec(),
        issuer: Issuer::Local,
        include_root: false,
    };
    Ok(Order { certificate, public_key_der: fit_key(public_key)? })
}

fn check_keypair(
    signer: &'static str,
    trusted: &BTreeMap<String, String>,
    offer: &Offer<'_>,
) -> Result<(), CertificateRefusal> {
    let (asked, own) = (trusted.get(signer), offer.keypair_ids.get(signer));
    if trusted.is_empty() || asked == own {
        return Ok(());
    }
    let shown = |id: Option<&String>| id.map(|id| id.chars().take(64).collect()).unwrap_or_default();
    Err(CertificateRefusal::OtherKeypair { signer, asked: shown(asked), own: shown(own) })
}

/// The key in a PEM text, if its type and strength are allowed for nodes.
fn fit_key(pem: &str) -> Result<Vec<u8>, CertificateRefusal> {
    let block = Pem::iter_from_buffer(pem.as_bytes())
        .next()
        .and_then(Result::ok)
        .filter(|block| block.label == PUBLIC_KEY_LABEL)
        .ok_or(CertificateRefusal::NoKey)?;
    let (rest, info) =
        SubjectPublicKeyInfo::from_der(&block.contents).map_err(|_| CertificateRefusal::NoKey)?;
    if !rest.is_empty() {
        return Err(CertificateRefusal::NoKey);
    }
    let curve = || info.algorithm.parameters.as_ref()?.as_oid().ok();
    let is_fit = match info.parsed().map_err(|_| CertificateRefusal::NoKey)? {
        PublicKey::RSA(key) => {
            let bits = bits(key.modulus);
            let is_odd = |number: &[u8]| number.last().is_some_and(|byte| byte % 2 == 1);
            // With a public exponent of 1, encryption would not change the plaintext, so the exponent must be at least 3.
            let exponent = key.try_exponent().unwrap_or(0);
            (FEWEST_RSA_BITS..=MOST_RSA_BITS).contains(&bits)
                && is_odd(key.modulus)
                && exponent >= 3
                && exponent % 2 == 1
        }
        PublicKey::EC(point) => is_on_curve(curve().as_ref(), point.data()),
        _ => false,
    };
    match is_fit {
        true => Ok(block.contents),
        false => Err(CertificateRefusal::UnfitKey),
    }
}

/// Whether an uncompressed point is on P-256 or P-384. A program that uses a certificate with an invalid point would fail, or compute on
/// a weaker curve.
fn is_on_curve(curve: Option<&Oid<'_>>, point: &[u8]) -> bool {
    let (algorithm, length): (&'static dyn VerificationAlgorithm, _) = match curve {
        Some(curve) if *curve == OID_EC_P256 => (&ECDSA_P256_SHA256_ASN1, 65),
        Some(curve) if *curve == OID_NIST_EC_P384 => (&ECDSA_P384_SHA384_ASN1, 97),
        _ => return false,
    };
    point.len() == length && point[0] == UNCOMPRESSED && ParsedPublicKey::new(algorithm, point).is_ok()
}

/// The number of bits of a big-endian number, without leading zeros.
fn bits(number: &[u8]) -> usize {
    let first = number.iter().position(|byte| *byte != 0).unwrap_or(number.len());
    let digits = &number[first..];
    digits.len() * 8 - digits.first().map_or(0, |byte| byte.leading_zeros() as usize)
}

#[cfg(test)]
mod tests;
