//! The private key of a node, for a certificate that kops-controller signs.

use std::fmt;

use rcgen::{KeyPair, PKCS_RSA_SHA256, RsaKeySize};

use crate::error::CertificateError;
use crate::pem::PemPair;

/// A private key of this node. kops-controller signs a certificate for this key. The key does not leave the machine.
pub struct NodeKey(KeyPair);

impl fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeKey(redacted)")
    }
}

impl NodeKey {
    /// Generates the key for the certificate `name`: RSA with 2048 bits, the only kind that upstream's
    /// kops-controller signs (`pkg/pki/privatekey.go`).
    pub fn generate(name: &str) -> Result<NodeKey, CertificateError> {
        KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).map(NodeKey).map_err(|error| {
            CertificateError::Invalid { name: name.into(), reason: format!("no key could be made: {error}") }
        })
    }

    /// The public key in PEM, as the bootstrap protocol requires: the label of PKCS #1, but a SubjectPublicKeyInfo as
    /// the content (`upup/pkg/fi/nodeup/nodetasks/bootstrap_client.go`).
    pub fn public_pem(&self) -> String {
        self.0.public_key_pem().replace(" PUBLIC KEY-----", " RSA PUBLIC KEY-----")
    }

    /// The key with its certificate (PEM).
    pub fn with_certificate(&self, certificate: &str) -> PemPair {
        PemPair { certificate: certificate.to_owned(), private_key: self.0.serialize_pem() }
    }
}
