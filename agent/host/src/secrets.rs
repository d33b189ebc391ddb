//! Where private keys and secrets come from while a plan is applied.

use std::fmt;

/// A certificate and its private key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct PemPair {
    /// The certificate; others may follow it.
    pub certificate: String,
    /// The private key, as PKCS#8, PKCS#1 or SEC1.
    pub private_key: String,
}

impl fmt::Debug for PemPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PemPair").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// The state store, as far as it is secret.
pub trait Secrets: Sync {
    /// An item of a keyset with its private key: that of this id, or the primary one where `id` is
    /// empty. `None` where there is no such item, or its key may not be read by this node.
    fn keyset_item(&self, keyset: &str, id: &str) -> Option<PemPair>;

    /// The certificates of all trusted items of a keyset, in PEM.
    fn trusted_certificates(&self, keyset: &str) -> Option<String>;

    /// The decoded bytes of `secrets/<name>`.
    fn secret(&self, name: &str) -> Option<Vec<u8>>;

    /// The first of these variables that the agent was given with a value. Only what kOps itself puts
    /// into the agent's environment is asked for.
    fn environment(&self, names: &[String]) -> Option<String> {
        let _ = names;
        None
    }

    /// A certificate that a control plane's bootstrap server has issued for this node.
    fn bootstrap_certificate(&self, name: &str) -> Option<PemPair>;

    /// Whether a certificate that is due to be renewed is kept as long as it is valid, because nobody renews it now.
    fn keeps_certificate(&self, name: &str) -> bool {
        let _ = name;
        false
    }
}
