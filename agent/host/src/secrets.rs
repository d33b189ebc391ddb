//! Where private keys and secrets come from while a plan is applied.

use kops_agent_pki::PemPair;
use kops_agent_plan::resource::{Certificate, Content, File, Issuer, Resource, SecretPiece};

/// Something secret, of the state store or of the agent's environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Material<'a> {
    /// The secret of this name.
    Secret(&'a str),
    /// The keyset of this name, with its private keys.
    Keyset(&'a str),
    /// The first of these variables that has a value.
    Environment(&'a [String]),
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

    /// The first of these variables that the agent was given with a value; empty where none has one, and `None` where that
    /// is not known. Only what kOps itself puts into the agent's environment is asked for.
    fn environment(&self, names: &[String]) -> Option<String> {
        let _ = names;
        None
    }

    /// This variable of the agent's environment; `None` where it has no value. Only what kOps itself puts there is asked for.
    fn variable(&self, name: &str) -> Option<String> {
        let _ = name;
        None
    }

    /// A certificate that a control plane's bootstrap server has issued for this node.
    fn bootstrap_certificate(&self, name: &str) -> Option<PemPair>;

    /// Why nothing is known of a secret or of a keyset: its store denies it, or is out of reach. `None` where it is
    /// known, or known not to be there. What is not known is not absent.
    fn why_unknown(&self, material: Material<'_>) -> Option<String> {
        let _ = material;
        None
    }

    /// Why this certificate cannot be issued now, and may well be at a later time. `None` where it can, and where it
    /// is the configuration's fault that it cannot.
    fn why_unissuable(&self, certificate: &Certificate) -> Option<String> {
        match certificate.issuer {
            Issuer::Local => self.why_unknown(Material::Keyset(&certificate.signer)),
            Issuer::Bootstrap => None,
        }
    }

    /// The certificate of a keyset's item in PEM, also where its private key is not at hand.
    fn item_certificate(&self, keyset: &str, id: &str) -> Option<String> {
        Some(self.keyset_item(keyset, id)?.certificate)
    }

    /// Whether a certificate that is due to be renewed is kept as long as it is valid, because nothing can renew it now.
    fn keeps_certificate(&self, name: &str) -> bool {
        let _ = name;
        false
    }
}

/// A store without any keys and secrets, for resources that need none.
#[derive(Clone, Copy, Debug)]
pub struct NoSecrets;

impl Secrets for NoSecrets {
    fn keyset_item(&self, _: &str, _: &str) -> Option<PemPair> {
        None
    }

    fn trusted_certificates(&self, _: &str) -> Option<String> {
        None
    }

    fn secret(&self, _: &str) -> Option<Vec<u8>> {
        None
    }

    fn bootstrap_certificate(&self, _: &str) -> Option<PemPair> {
        None
    }
}

/// The secrets that are in a file.
pub(crate) fn secrets_of(resource: &Resource) -> impl Iterator<Item = &str> {
    pieces(resource)
        .iter()
        .filter_map(|piece| if let SecretPiece::Secret(name) = piece { Some(name.as_str()) } else { None })
}

/// What a file is made of that has secrets in it; nothing of all others.
pub(crate) fn pieces(resource: &Resource) -> &[SecretPiece] {
    match resource {
        Resource::File(File { content: Content::SecretText(pieces), .. }) => pieces,
        _ => &[],
    }
}
