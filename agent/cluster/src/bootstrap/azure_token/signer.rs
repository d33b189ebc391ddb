//! Signed data with one signer, whose certificate is included (CMS: RFC 5652, section 5).
//!
//! Parsing checks no signature, because a stranger may send such data repeatedly. [`Signer::has_signed`] checks the signature later, when
//! the server admits the request.

use cms::cert::CertificateChoices;
use cms::content_info::ContentInfo;
use cms::signed_data::{SignedAttributes, SignedData, SignerIdentifier, SignerInfo};
use der::asn1::{ObjectIdentifier, OctetString};
use der::{Decode as _, Encode as _};
use sha2::{Digest, Sha256, Sha384, Sha512};
use x509_parser::asn1_rs::{Any, BitString, Oid};
use x509_parser::oid_registry::{OID_PKCS1_SHA256WITHRSA, OID_PKCS1_SHA384WITHRSA, OID_PKCS1_SHA512WITHRSA};
use x509_parser::prelude::{AlgorithmIdentifier, FromDer as _, X509Certificate};
use x509_parser::verify::verify_signature;

/// The maximum size of a document, in bytes. Azure's documents have about 3,000 bytes, and 1,600 more for each issuer's certificate.
const LONGEST: usize = 8 * 1024;
/// The maximum number of certificates in a document: the signer's, and two issuers'.
const MOST_CERTIFICATES: usize = 3;

const SIGNED_DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.7.2");
const CONTENT_TYPE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.3");
const MESSAGE_DIGEST: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.4");
const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");

/// The signed content, and its claimed signer.
pub(super) struct Statement {
    pub(super) content: Vec<u8>,
    pub(super) by: Signer,
}

/// The document is not signed data in Azure's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotSignedData;

impl From<der::Error> for NotSignedData {
    fn from(_: der::Error) -> NotSignedData {
        NotSignedData
    }
}

/// The certificate of a document's signer, the other certificates, and the signature, which is not checked yet.
#[derive(Clone, PartialEq, Eq)]
pub struct Signer {
    /// The signer's certificate (DER). It names Azure's metadata service.
    pub certificate: Vec<u8>,
    /// The certificates of the document (DER) except the signer's, at most two.
    pub others: Vec<Vec<u8>>,
    hash: Hash,
    /// The bytes that the signature covers.
    signed: Vec<u8>,
    /// Whether the signed bytes are the content itself. Otherwise, they contain the content's hash.
    is_of_content: bool,
    signature: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

impl Statement {
    /// Parses a document (DER) without checking its signature.
    pub(super) fn parse(document: &[u8]) -> Result<Statement, NotSignedData> {
        if document.len() > LONGEST {
            return Err(NotSignedData);
        }
        let whole = ContentInfo::from_der(document)?;
        if whole.content_type != SIGNED_DATA {
            return Err(NotSignedData);
        }
        let data: SignedData = whole.content.decode_as()?;
        let [signer] = data.signer_infos.0.as_slice() else { return Err(NotSignedData) };
        let content = data.encap_content_info.econtent.ok_or(NotSignedData)?;
        let content = content.decode_as::<OctetString>()?.into_bytes().into_vec();
        let hash = Hash::from_algorithm(&signer.digest_alg.oid).ok_or(NotSignedData)?;
        let algorithm = signer.signature_algorithm.oid;
        if algorithm != RSA && Hash::from_algorithm(&algorithm) != Some(hash) {
            return Err(NotSignedData);
        }
        let (signed, is_of_content) = match &signer.signed_attrs {
            None => (content.clone(), true),
            // `to_der` writes the attributes with the tag that the signature covers, which differs from their tag in the document (RFC
            // 5652, section 5.4).
            Some(attributes) => {
                let digest = digest_of(attributes, data.encap_content_info.econtent_type)?;
                (attributes.to_der()?, digest == hash.digest(&content))
            }
        };
        let certificates = data.certificates.ok_or(NotSignedData)?;
        let (certificate, others) = certificates_of(signer, certificates.0.as_slice())?;
        let signature = signer.signature.as_bytes().to_vec();
        let by = Signer { certificate, others, hash, signed, is_of_content, signature };
        Ok(Statement { content, by })
    }
}

/// Returns the signer's certificate, and all other certificates in `all`.
fn certificates_of(
    signer: &SignerInfo,
    all: &[CertificateChoices],
) -> Result<(Vec<u8>, Vec<Vec<u8>>), NotSignedData> {
    let SignerIdentifier::IssuerAndSerialNumber(wanted) = &signer.sid else { return Err(NotSignedData) };
    if all.len() > MOST_CERTIFICATES {
        return Err(NotSignedData);
    }
    let (mut of_signer, mut others) = (None, Vec::new());
    for one in all {
        let CertificateChoices::Certificate(certificate) = one else { return Err(NotSignedData) };
        let names = certificate.tbs_certificate();
        let is_signers = *names.issuer() == wanted.issuer && *names.serial_number() == wanted.serial_number;
        match is_signers && of_signer.is_none() {
            true => of_signer = Some(certificate.to_der()?),
            false => others.push(certificate.to_der()?),
        }
    }
    Ok((of_signer.ok_or(NotSignedData)?, others))
}

/// Reads the content's hash from the signed attributes.
fn digest_of(
    attributes: &SignedAttributes,
    content_type: ObjectIdentifier,
) -> Result<Vec<u8>, NotSignedData> {
    let mut digest = None;
    for attribute in attributes.iter() {
        let [value] = attribute.values.as_slice() else { continue };
        if attribute.oid == CONTENT_TYPE && value.decode_as::<ObjectIdentifier>()? != content_type {
            return Err(NotSignedData);
        }
        // With two hashes, a signer could choose between two contents, so only one hash is allowed.
        if attribute.oid == MESSAGE_DIGEST && digest.replace(value.decode_as::<OctetString>()?).is_some() {
            return Err(NotSignedData);
        }
    }
    Ok(digest.ok_or(NotSignedData)?.into_bytes().into_vec())
}

impl Signer {
    /// Whether the key of the certificate signed the document (RSASSA-PKCS1-v1_5). This does not prove who issued the certificate. The
    /// check takes about 0.1 ms, and 0.5 ms with the largest key.
    pub fn has_signed(&self) -> bool {
        let Ok((_, certificate)) = X509Certificate::from_der(&self.certificate) else { return false };
        let algorithm = AlgorithmIdentifier::new(self.hash.with_rsa(), None::<Any<'_>>);
        let signature = BitString::new(0, &self.signature);
        self.is_of_content
            && verify_signature(certificate.public_key(), &algorithm, &signature, &self.signed).is_ok()
    }
}

impl Hash {
    /// The hash algorithm with this object identifier. The field for the hash algorithm may contain the identifier of a signature algorithm
    /// instead, because Azure's metadata service has sent such documents. So both identifiers are accepted.
    fn from_algorithm(algorithm: &ObjectIdentifier) -> Option<Hash> {
        [
            ("2.16.840.1.101.3.4.2.1", "1.2.840.113549.1.1.11", Hash::Sha256),
            ("2.16.840.1.101.3.4.2.2", "1.2.840.113549.1.1.12", Hash::Sha384),
            ("2.16.840.1.101.3.4.2.3", "1.2.840.113549.1.1.13", Hash::Sha512),
        ]
        .into_iter()
        .find_map(|(hash, with_rsa, of)| {
            let is = |name| *algorithm == ObjectIdentifier::new_unwrap(name);
            (is(hash) || is(with_rsa)).then_some(of)
        })
    }

    fn with_rsa(self) -> Oid<'static> {
        match self {
            Hash::Sha256 => OID_PKCS1_SHA256WITHRSA,
            Hash::Sha384 => OID_PKCS1_SHA384WITHRSA,
            Hash::Sha512 => OID_PKCS1_SHA512WITHRSA,
        }
    }

    fn digest(self, content: &[u8]) -> Vec<u8> {
        match self {
            Hash::Sha256 => Sha256::digest(content).to_vec(),
            Hash::Sha384 => Sha384::digest(content).to_vec(),
            Hash::Sha512 => Sha512::digest(content).to_vec(),
        }
    }
}
