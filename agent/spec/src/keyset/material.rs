//! The content of key sets and secrets: certificates, which are public, and private keys, which no output
//! shows.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, de};
use x509_parser::pem::Pem;

use crate::invalid::Invalid;

/// Private key material. Debug output does not show its content, and it cannot be serialized.
#[derive(Clone)]
pub struct PrivateMaterial(Vec<u8>);

impl PrivateMaterial {
    pub(super) fn new(bytes: Vec<u8>) -> PrivateMaterial {
        PrivateMaterial(bytes)
    }

    /// The PEM text of the key. Call this function only to write the key to its file or to sign with the key.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for PrivateMaterial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateMaterial(redacted)")
    }
}

#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    der: Vec<u8>,
    public_key_der: Vec<u8>,
}

impl Certificate {
    /// Reads the first certificate in a PEM text.
    pub(super) fn parse(pem: &[u8]) -> Result<Certificate, Invalid> {
        let block = Pem::iter_from_buffer(pem)
            .filter_map(Result::ok)
            .find(|block| block.label == "CERTIFICATE")
            .ok_or_else(|| Invalid::new("it holds no PEM block titled CERTIFICATE"))?;
        let certificate =
            block.parse_x509().map_err(|error| format!("its certificate cannot be read: {error}"))?;
        let public_key_der = certificate.public_key().raw.to_vec();
        Ok(Certificate { public_key_der, der: block.contents })
    }

    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// The public key and its algorithm, as `SubjectPublicKeyInfo` in DER.
    pub fn public_key_der(&self) -> &[u8] {
        &self.public_key_der
    }

    /// Only the certificate as a PEM block, without the other text of its file.
    pub fn pem(&self) -> String {
        pem_block("CERTIFICATE", &self.der)
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificate({} bytes)", self.der.len())
    }
}

/// Formats a PEM block as Go's `encoding/pem` does: with 64 characters in each line.
pub(super) fn pem_block(title: &str, der: &[u8]) -> String {
    let encoded = STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {title}-----\n");
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, below) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = below;
    }
    pem.push_str(&format!("-----END {title}-----\n"));
    pem
}

/// Bytes that are standard base64 in JSON (Go's `[]byte`).
#[derive(Default)]
pub(crate) struct Base64(pub(crate) Vec<u8>);

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Base64, D::Error> {
        let text = String::deserialize(deserializer)?;
        // The decoder's own message would contain a byte of the text, which may be secret.
        STANDARD.decode(text.trim()).map(Base64).map_err(|_| de::Error::custom("it is not base64"))
    }
}
