//! The keys and secrets that a desired state refers to, kept apart from it until it is applied.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, Result};
use kops_agent_host::{PemPair, Secrets};
use kops_agent_plan::resource::SecretPiece;
use kops_agent_plan::spec::{Keyset, Secret};

use crate::source::NodeSpec;

/// What was read of the store's `pki/` and `secrets/` for one node.
#[derive(Clone, Default)]
pub struct Materials {
    keysets: BTreeMap<String, Keyset>,
    secrets: BTreeMap<String, Secret>,
    cas: BTreeMap<String, String>,
}

impl fmt::Debug for Materials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Materials")
            .field("keysets", &self.keysets.keys())
            .field("secrets", &self.secrets.keys())
            .finish_non_exhaustive()
    }
}

impl Materials {
    /// The materials of a node.
    pub fn new(spec: &NodeSpec) -> Materials {
        Materials {
            keysets: spec.inputs.keysets.clone(),
            secrets: spec.secrets.clone(),
            cas: spec.inputs.config.cas.clone(),
        }
    }

    /// A secret text with its references resolved.
    ///
    /// # Errors
    /// The first reference to something that the store does not have, or that is not text.
    pub fn text(&self, pieces: &[SecretPiece]) -> Result<String> {
        pieces.iter().map(|piece| self.piece(piece)).collect()
    }

    fn piece(&self, piece: &SecretPiece) -> Result<String> {
        match piece {
            SecretPiece::Text(text) => Ok(text.clone()),
            SecretPiece::Secret(name) => {
                let bytes =
                    Secrets::secret(self, name).with_context(|| format!("the store has no secret {name}"))?;
                String::from_utf8(bytes).ok().with_context(|| format!("secret {name} is not text"))
            }
            SecretPiece::Environment(names) => Ok(self.environment(names).unwrap_or_default()),
            SecretPiece::KeysetPrivateKey { keyset, id } => self
                .keyset_item(keyset, id)
                .map(|pair| pair.private_key)
                .with_context(|| format!("the store has no private key {id} of keyset {keyset}")),
        }
    }
}

impl Secrets for Materials {
    fn keyset_item(&self, keyset: &str, id: &str) -> Option<PemPair> {
        let keyset = self.keysets.get(keyset)?;
        let item = if id.is_empty() { keyset.primary()? } else { keyset.item(id)? };
        Some(PemPair {
            certificate: item.certificate.as_ref()?.pem(),
            private_key: String::from_utf8(item.private_material.as_ref()?.expose().to_vec()).ok()?,
        })
    }

    fn trusted_certificates(&self, keyset: &str) -> Option<String> {
        // What the configuration gives is what kOps vouched for; the store may be newer.
        let given = self.cas.get(keyset).filter(|certificates| !certificates.is_empty());
        given.cloned().or_else(|| Some(self.keysets.get(keyset)?.trusted_certificates_pem()))
    }

    fn secret(&self, name: &str) -> Option<Vec<u8>> {
        Some(self.secrets.get(name)?.expose().to_vec())
    }

    fn environment(&self, names: &[String]) -> Option<String> {
        names.iter().filter_map(|name| std::env::var(name).ok()).find(|value| !value.is_empty())
    }

    fn bootstrap_certificate(&self, _: &str) -> Option<PemPair> {
        None
    }
}
