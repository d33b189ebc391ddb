//! Signed data of one signer, whose certificate is in it (CMS: RFC 5652, section 5).

use sha2::{Digest, Sha256, Sha384, Sha512};
use x509_parser::asn1_rs::{Any, BitString, Class, FromDer, Oid, Tag, oid};
use x509_parser::oid_registry::{
    OID_PKCS1_RSAENCRYPTION, OID_PKCS1_SHA256WITHRSA, OID_PKCS1_SHA384WITHRSA, OID_PKCS1_SHA512WITHRSA,
};
use x509_parser::prelude::{AlgorithmIdentifier, X509Certificate};
use x509_parser::verify::verify_signature;

/// More certificates than a chain could have.
const MOST_CERTIFICATES: usize = 8;

/// Signed data.
pub(super) struct SignedData<'a> {
    /// What is signed.
    pub(super) content: &'a [u8],
    /// The signer's certificate.
    pub(super) certificate: X509Certificate<'a>,
    /// The others (DER).
    pub(super) others: Vec<&'a [u8]>,
    hash: Hash,
    /// The attributes that are signed in the content's place, where there are any.
    attributes: Option<Attributes>,
    signature: &'a [u8],
}

struct Attributes {
    /// As they are signed: as the set that they are.
    set: Vec<u8>,
    /// The hash of the content.
    digest: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

/// It is no signed data, or none of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotSignedData;

impl<'a> SignedData<'a> {
    /// Reads it from its DER.
    pub(super) fn parse(der: &'a [u8]) -> Result<SignedData<'a>, NotSignedData> {
        let mut whole = Reader(der);
        let mut content_info = whole.enter(Class::Universal, Tag::Sequence)?;
        whole.end()?;
        content_info.expect_oid(&oid!(1.2.840.113549.1.7.2))?;
        let mut explicit = content_info.enter(Class::ContextSpecific, Tag(0))?;
        let mut signed_data = explicit.enter(Class::Universal, Tag::Sequence)?;
        signed_data.enter(Class::Universal, Tag::Integer)?;
        signed_data.enter(Class::Universal, Tag::Set)?;

        let mut encapsulated = signed_data.enter(Class::Universal, Tag::Sequence)?;
        let content_type = encapsulated.oid()?;
        let content = encapsulated.enter(Class::ContextSpecific, Tag(0))?.octets()?;
        let certificates = signed_data.optional(0)?.ok_or(NotSignedData)?;
        let _revocations = signed_data.optional(1)?;
        let mut signers = signed_data.enter(Class::Universal, Tag::Set)?;
        let signer = signers.enter(Class::Universal, Tag::Sequence)?;
        signers.end()?;
        Self::of_signer(signer, certificates, content_type, content)
    }

    fn of_signer(
        mut signer: Reader<'a>,
        certificates: Reader<'a>,
        content_type: Oid<'a>,
        content: &'a [u8],
    ) -> Result<SignedData<'a>, NotSignedData> {
        signer.enter(Class::Universal, Tag::Integer)?;
        let mut issuer_and_serial = signer.enter(Class::Universal, Tag::Sequence)?;
        let (issuer, name) = issuer_and_serial.raw()?;
        if name.header.tag() != Tag::Sequence {
            return Err(NotSignedData);
        }
        let serial = issuer_and_serial.enter(Class::Universal, Tag::Integer)?.0;
        let hash = Hash::of(&signer.enter(Class::Universal, Tag::Sequence)?.oid()?).ok_or(NotSignedData)?;
        let attributes = match signer.optional_raw(0)? {
            Some((raw, inner)) => Some(Attributes::parse(raw, inner, &content_type)?),
            None => None,
        };
        let algorithm = signer.enter(Class::Universal, Tag::Sequence)?.oid()?;
        if algorithm != OID_PKCS1_RSAENCRYPTION && algorithm != hash.with_rsa() {
            return Err(NotSignedData);
        }
        let signature = signer.octets()?;

        let (mut certificate, mut others) = (None, Vec::new());
        for der in certificates.all()? {
            let (rest, parsed) = X509Certificate::from_der(der).map_err(|_| NotSignedData)?;
            let is_signers = parsed.issuer().as_raw() == issuer && parsed.raw_serial() == serial;
            match is_signers && rest.is_empty() && certificate.is_none() {
                true => certificate = Some(parsed),
                false => others.push(der),
            }
        }
        let certificate = certificate.ok_or(NotSignedData)?;
        Ok(SignedData { content, certificate, others, hash, attributes, signature })
    }

    /// Whether the key of the certificate that comes with it has signed it: RSASSA-PKCS1-v1_5. That says nothing of whose the
    /// certificate is.
    pub(super) fn is_signed_by_its_certificate(&self) -> bool {
        let signed = match &self.attributes {
            None => self.content,
            Some(Attributes { set, digest }) if *digest == self.hash.digest(self.content) => set,
            Some(_) => return false,
        };
        let algorithm = AlgorithmIdentifier::new(self.hash.with_rsa(), None::<Any<'_>>);
        let signature = BitString::new(0, self.signature);
        verify_signature(self.certificate.public_key(), &algorithm, &signature, signed).is_ok()
    }
}

impl Attributes {
    /// Reads attributes, which are tagged otherwise here than they are signed (RFC 5652, section 5.4).
    fn parse(raw: &[u8], inner: Reader<'_>, content_type: &Oid<'_>) -> Result<Attributes, NotSignedData> {
        let mut set = raw.to_vec();
        *set.first_mut().ok_or(NotSignedData)? = 0x31;
        let mut digest = None;
        let mut rest = inner;
        while !rest.0.is_empty() {
            let mut attribute = rest.enter(Class::Universal, Tag::Sequence)?;
            let kind = attribute.oid()?;
            let mut values = attribute.enter(Class::Universal, Tag::Set)?;
            if kind == oid!(1.2.840.113549.1.9.3) {
                values.expect_oid(content_type)?;
            } else if kind == oid!(1.2.840.113549.1.9.4) {
                let found = values.octets()?.to_vec();
                values.end()?;
                // Two of them would be a choice.
                if digest.replace(found).is_some() {
                    return Err(NotSignedData);
                }
            }
        }
        Ok(Attributes { set, digest: digest.ok_or(NotSignedData)? })
    }
}

impl Hash {
    /// The hash of an algorithm. Azure's metadata service has named that of the signature in its place.
    fn of(algorithm: &Oid<'_>) -> Option<Hash> {
        [
            (oid!(2.16.840.1.101.3.4.2.1), Hash::Sha256),
            (oid!(2.16.840.1.101.3.4.2.2), Hash::Sha384),
            (oid!(2.16.840.1.101.3.4.2.3), Hash::Sha512),
        ]
        .into_iter()
        .find_map(|(oid, hash)| (*algorithm == oid || *algorithm == hash.with_rsa()).then_some(hash))
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

/// What is left of the content of a value.
#[derive(Clone, Copy)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// The next value, and its bytes with their header.
    fn raw(&mut self) -> Result<(&'a [u8], Any<'a>), NotSignedData> {
        let before = self.0;
        let (rest, any) = Any::from_der(before).map_err(|_| NotSignedData)?;
        self.0 = rest;
        Ok((&before[..before.len() - rest.len()], any))
    }

    /// Into the next value, which has this tag.
    fn enter(&mut self, class: Class, tag: Tag) -> Result<Reader<'a>, NotSignedData> {
        let (_, any) = self.raw()?;
        let is_wanted = any.header.class() == class && any.header.tag() == tag;
        if is_wanted { Ok(Reader(any.data)) } else { Err(NotSignedData) }
    }

    /// Into the next value, if it has this tag of the context.
    fn optional(&mut self, tag: u32) -> Result<Option<Reader<'a>>, NotSignedData> {
        Ok(self.optional_raw(tag)?.map(|(_, inner)| inner))
    }

    fn optional_raw(&mut self, tag: u32) -> Result<Option<(&'a [u8], Reader<'a>)>, NotSignedData> {
        let mut ahead = *self;
        let (raw, any) = ahead.raw()?;
        if any.header.class() != Class::ContextSpecific || any.header.tag() != Tag(tag) {
            return Ok(None);
        }
        *self = ahead;
        Ok(Some((raw, Reader(any.data))))
    }

    fn oid(&mut self) -> Result<Oid<'a>, NotSignedData> {
        let (_, any) = self.raw()?;
        any.oid().map_err(|_| NotSignedData)
    }

    fn expect_oid(&mut self, expected: &Oid<'_>) -> Result<(), NotSignedData> {
        if self.oid()? == *expected { Ok(()) } else { Err(NotSignedData) }
    }

    fn octets(&mut self) -> Result<&'a [u8], NotSignedData> {
        Ok(self.enter(Class::Universal, Tag::OctetString)?.0)
    }

    /// Each value that is left, with its header.
    fn all(mut self) -> Result<Vec<&'a [u8]>, NotSignedData> {
        let mut all = Vec::new();
        while !self.0.is_empty() {
            if all.len() == MOST_CERTIFICATES {
                return Err(NotSignedData);
            }
            all.push(self.raw()?.0);
        }
        Ok(all)
    }

    fn end(self) -> Result<(), NotSignedData> {
        if self.0.is_empty() { Ok(()) } else { Err(NotSignedData) }
    }
}
