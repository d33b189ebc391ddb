//! The node's part in a certificate that kops-controller signs: the key, and a look at what comes back.

use std::fmt;

use kops_agent_plan::resource::Certificate;
use rcgen::{KeyPair, PKCS_RSA_SHA256, RsaKeySize};

use super::keep::{Reason, why_replace};
use super::{CertificateError, trusted};
use crate::host::Host;
use crate::secrets::{PemPair, Secrets};

/// A key of this node whose certificate somebody else signs. It does not leave the machine.
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

impl Host {
    /// Why a certificate that somebody else has issued is not the one that is wanted; `None` where it is.
    ///
    /// # Errors
    /// If it is not known who may sign it.
    pub fn why_unfit(
        &self,
        issued: &PemPair,
        wanted: &Certificate,
        secrets: &dyn Secrets,
    ) -> Result<Option<String>, CertificateError> {
        match why_replace(issued, wanted, &trusted(secrets, wanted)?, self.now()) {
            Some(why @ (Reason::Unfit(_) | Reason::Expired)) => Ok(Some(why.text())),
            // However long it lives, there is no better one to be had.
            Some(Reason::Renewal(_)) | None => Ok(None),
        }
    }
}
