//! Which certificate a name stands for that a machine asks kops-controller for: its subject, its purpose, and its
//! signer. The machine gives a public key and nothing else; what the certificate says comes from what the cloud verifies.
//!
//! Source: upstream's `cmd/kops-controller/pkg/server/server.go` (`issueCert`). Upstream certifies whatever key is
//! under the right label; here it must be one that is strong enough.

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

use crate::resource::{Certificate, CertificateType, Issuer, Subject};
use kops_agent_spec::fnv::fnv32;

/// The label of a public key's PEM, whatever kind of key it holds; what is inside is a `SubjectPublicKeyInfo`.
pub const PUBLIC_KEY_LABEL: &str = "RSA PUBLIC KEY";

const KUBERNETES_CA: &str = "kubernetes-ca";
const CILIUM_ETCD_CA: &str = "etcd-clients-ca-cilium";

/// Certificates of nodes live up to a month longer than those of others, so that not all run out on one day.
const HOURS_OF_A_MONTH: u32 = 30 * 24;
/// What an uncompressed point begins with (SEC 1, section 2.3.3).
const UNCOMPRESSED: u8 = 4;
const FEWEST_RSA_BITS: usize = 2048;
const MOST_RSA_BITS: usize = 8192;

#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// The name of its Node.
    pub node_name: &'a str,
    /// The names and addresses that the cloud knows it by.
    pub certificate_names: &'a [String],
}

/// What the server does for machines.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    /// The certificates that may be asked for (`server.certNames`).
    pub cert_names: &'a BTreeSet<String>,
    /// For each authority, the id of the key pair that signs here.
    pub keypair_ids: &'a BTreeMap<String, String>,
}

/// A certificate to be signed, and the key that it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    pub certificate: Certificate,
    /// The public key: `SubjectPublicKeyInfo` in DER.
    pub public_key_der: Vec<u8>,
}

/// Why a certificate is not issued. It is told to the machine.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CertificateRefusal {
    /// There is no such certificate, or the cluster does not have it.
    #[error("no certificate of that name is issued in this cluster")]
    NotEnabled,
    /// The key cannot be read.
    #[error("the public key is not a SubjectPublicKeyInfo in a PEM block titled {PUBLIC_KEY_LABEL}")]
    NoKey,
    /// The key is too weak, or of a kind that nodes do not have.
    #[error(
        "the public key is neither RSA of {FEWEST_RSA_BITS} to {MOST_RSA_BITS} bits nor EC with a point of P-256 or P-384"
    )]
    UnfitKey,
    /// The machine trusts another authority than signs here.
    #[error(
        "the machine trusts the key pair {asked:?} of {signer}, and this control plane signs with {own:?}: one of them \
         has not been updated yet"
    )]
    OtherKeypair {
        signer: &'static str,
        /// The id that the machine knows.
        asked: String,
        /// The id of the key pair that signs here.
        own: String,
    },
}

/// By how many hours a machine's certificates live longer than the least.
pub fn extra_hours(node_name: &str) -> u32 {
    fnv32(node_name.as_bytes()) % HOURS_OF_A_MONTH
}

/// What to sign for a machine that asks for the certificate `name` with this public key, and says which key pairs it
/// trusts. One that says nothing of them (before kOps 1.22) is not held to it.
///
/// # Errors
/// Why nothing is signed.
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

/// The key in a PEM text, if nodes may have such a one.
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
            // A public exponent of 1 would leave what is encrypted as it is.
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

/// Whether an uncompressed point is one of P-256 or P-384: what reads a certificate with another takes it for damaged, or computes
/// with a weaker curve.
fn is_on_curve(curve: Option<&Oid<'_>>, point: &[u8]) -> bool {
    let (algorithm, length): (&'static dyn VerificationAlgorithm, _) = match curve {
        Some(curve) if *curve == OID_EC_P256 => (&ECDSA_P256_SHA256_ASN1, 65),
        Some(curve) if *curve == OID_NIST_EC_P384 => (&ECDSA_P384_SHA384_ASN1, 97),
        _ => return false,
    };
    point.len() == length && point[0] == UNCOMPRESSED && ParsedPublicKey::new(algorithm, point).is_ok()
}

/// How many bits a number has that is written with zeros before it, or not.
fn bits(number: &[u8]) -> usize {
    let first = number.iter().position(|byte| *byte != 0).unwrap_or(number.len());
    let digits = &number[first..];
    digits.len() * 8 - digits.first().map_or(0, |byte| byte.leading_zeros() as usize)
}

#[cfg(test)]
mod tests;
