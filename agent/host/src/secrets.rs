//! The source of private keys and secrets while a plan is applied.

use kops_agent_pki::PemPair;
use kops_agent_plan::resource::{Certificate, Content, File, Issuer, Resource, SecretPiece};

/// A secret of the state store or of the agent's environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Material<'a> {
    /// The name of a secret.
    Secret(&'a str),
    /// The name of a keyset, including its private keys.
    Keyset(&'a str),
    /// The names of variables. The first variable with a value is used.
    Environment(&'a [String]),
}

/// The secret part of the state store.
pub trait Secrets: Sync {
    /// A keyset item with its private key. This is the item `id`, or the primary item if `id` is empty. `None` if the item does not exist,
    /// or if this node may not read its key.
    fn keyset_item(&self, keyset: &str, id: &str) -> Option<PemPair>;

    /// The certificates of all trusted items of a keyset, in PEM.
    fn trusted_certificates(&self, keyset: &str) -> Option<String>;

    /// The decoded bytes of `secrets/<name>`.
    fn secret(&self, name: &str) -> Option<Vec<u8>>;

    /// A value from the agent's environment. If several variables in `names` have a value, the first one counts. Empty if no variable has a
    /// value; `None` if the environment is unknown. Use this only for variables that kOps itself sets.
    fn environment(&self, names: &[String]) -> Option<String> {
        let _ = names;
        None
    }

    /// The value of this variable in the agent's environment, if it has a value. Use this only for variables that kOps itself sets.
    fn variable(&self, name: &str) -> Option<String> {
        let _ = name;
        None
    }

    /// A certificate for this node from a control plane's bootstrap server.
    fn bootstrap_certificate(&self, name: &str) -> Option<PemPair>;

    /// Why a secret or keyset is unknown, for example because the store denies access or is unreachable. `None` if it is known, or known to
    /// be missing.
    fn why_unknown(&self, material: Material<'_>) -> Option<String> {
        let _ = material;
        None
    }

    /// Why this certificate cannot be issued now, although a later run may be able to issue it. `None` if it can be issued now, or if the
    /// configuration does not allow issuing it at all.
    fn why_unissuable(&self, certificate: &Certificate) -> Option<String> {
        match certificate.issuer {
            Issuer::Local => self.why_unknown(Material::Keyset(&certificate.signer)),
            Issuer::Bootstrap => None,
        }
    }

    /// The PEM certificate of a keyset item, even if the item's private key is not available.
    fn item_certificate(&self, keyset: &str, id: &str) -> Option<String> {
        Some(self.keyset_item(keyset, id)?.certificate)
    }

    /// Whether a certificate that is due for renewal stays in use while it is valid, because it cannot be renewed now.
    fn keeps_certificate(&self, name: &str) -> bool {
        let _ = name;
        false
    }
}

/// A store without keys and secrets, for resources that need neither.
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

/// The names of the secrets in a file.
pub(crate) fn secrets_of(resource: &Resource) -> impl Iterator<Item = &str> {
    pieces(resource)
        .iter()
        .filter_map(|piece| if let SecretPiece::Secret(name) = piece { Some(name.as_str()) } else { None })
}

/// The pieces of a file's secret text. Empty if the resource has no secret text.
pub(crate) fn pieces(resource: &Resource) -> &[SecretPiece] {
    match resource {
        Resource::File(File { content: Content::SecretText(pieces), .. }) => pieces,
        _ => &[],
    }
}
