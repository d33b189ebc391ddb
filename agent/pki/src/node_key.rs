//! A node's part in a certificate that kops-controller signs: the key.

use std::fmt;

use rcgen::{KeyPair, PKCS_RSA_SHA256, RsaKeySize};

use crate::error::CertificateError;
use crate::pem::PemPair;

/// A key of this node whose certificate kops-controller signs. It does not leave the machine.
pub struct NodeKey(KeyPair);

impl fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeKey(redacted)")
    }
}

impl NodeKey {
    /// Makes one for the certificate of this name: RSA of 2048 bits, the one kind that upstream's kops-controller
    /// signs (`pkg/pki/privatekey.go`).
    ///
    /// # Errors
    /// If there is no randomness to be had.
    pub fn generate(name: &str) -> Result<NodeKey, CertificateError> {
        KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).map(NodeKey).map_err(|error| {
            CertificateError::Invalid { name: name.into(), reason: format!("no key could be made: {error}") }
        })
    }

    /// Its public half in PEM, as the bootstrap protocol has it: labelled as PKCS #1, and holding a
    /// SubjectPublicKeyInfo (`upup/pkg/fi/nodeup/nodetasks/bootstrap_client.go`).
    pub fn public_pem(&self) -> String {
        self.0.public_key_pem().replace(" PUBLIC KEY-----", " RSA PUBLIC KEY-----")
    }

    /// The key with its certificate, which is in PEM.
    pub fn with_certificate(&self, certificate: &str) -> PemPair {
        PemPair { certificate: certificate.to_owned(), private_key: self.0.serialize_pem() }
    }
}
