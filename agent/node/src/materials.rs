//! The keys and secrets that a desired state refers to, kept apart from the state until the state is applied.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use kops_agent_host::{Applied, Material, Secrets, secret_text};
use kops_agent_pki::PemPair;
use kops_agent_plan::resource::{Certificate, Content, DesiredState, File, Issuer, Resource};
use kops_agent_spec::{Keyset, KeysetItem, Secret};

use super::environment::Environment;
use kops_agent_source::{Denied, NodeSpec};

/// The parts of the store's `pki/` and `secrets/` that one node may read, and the certificates that kops-controller issued to this node.
#[derive(Clone, Default)]
pub struct Materials {
    keysets: BTreeMap<String, Keyset>,
    secrets: BTreeMap<String, Secret>,
    cas: BTreeMap<String, String>,
    bootstrapped: BTreeMap<String, PemPair>,
    kept: BTreeSet<String>,
    /// Keys and secrets that could not be read from the store, and why.
    unknown: Denied,
    /// Keyset items whose private keys are in files of this machine, by keyset and id.
    at_hand: BTreeMap<(String, String), PemPair>,
    /// Keyset items that are missing in the store, or whose content in the store does not fit the applied state.
    unusable: BTreeSet<(String, String)>,
    /// The last applied state. Its authorities take precedence over the store's authorities.
    applied: Option<Arc<Applied>>,
    /// Why kops-controller issues no certificates now.
    unissuable: Option<String>,
    /// The environment variables of runs at boot.
    environment: Environment,
}

/// The keys and secrets that could be read for a state, and the reasons why its other keys and secrets could not be read.
#[derive(Default)]
pub struct Read {
    /// Keysets of the store, by name.
    pub keysets: BTreeMap<String, Keyset>,
    /// Secrets of the store, by name.
    pub secrets: BTreeMap<String, Secret>,
    /// Keys and secrets that could not be read from the store, and why.
    pub unknown: Denied,
    /// Keyset items whose private keys are in files of this machine, by keyset and id. These items replace the store's items.
    pub at_hand: BTreeMap<(String, String), PemPair>,
    /// Keyset items that are missing in the store, or whose content in the store does not fit the applied state.
    /// `unknown` has the reasons.
    pub unusable: BTreeSet<(String, String)>,
}

/// An item of a keyset as a pair; `None` if the store lacks the certificate or the private key.
pub fn pair_of(item: &KeysetItem) -> Option<PemPair> {
    Some(PemPair {
        certificate: item.certificate.as_ref()?.pem(),
        private_key: String::from_utf8(item.private_material.as_ref()?.expose().to_vec()).ok()?,
    })
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
    pub fn new(spec: &NodeSpec) -> Materials {
        Materials {
            keysets: spec.inputs.keysets.clone(),
            secrets: spec.secrets.clone(),
            cas: spec.inputs.config.cas.clone(),
            unknown: spec.denied.clone(),
            ..Materials::default()
        }
    }

    /// All available private keys and secrets as texts. Output that other users can read must not contain these texts.
    pub fn secret_texts(&self) -> Vec<String> {
        let keysets = self
            .keysets
            .values()
            .flat_map(|keyset| keyset.items())
            .filter_map(|item| item.private_material.as_ref().map(|key| key.expose().to_vec()));
        let secrets = self.secrets.values().map(|secret| secret.expose().to_vec());
        let pairs = self.bootstrapped.values().chain(self.at_hand.values());
        let keys = pairs.map(|pair| pair.private_key.clone().into_bytes());
        keysets.chain(secrets).chain(keys).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect()
    }

    /// The state, with the texts of secrets in place of references to secrets. Output that other users can read must not contain this
    /// state.
    pub fn filled_in(&self, state: &DesiredState) -> Result<DesiredState> {
        let mut whole = DesiredState::default();
        for (id, resource) in state.iter() {
            whole.add(match resource {
                Resource::File(file @ File { content: Content::SecretText(pieces), .. }) => {
                    let text = String::from_utf8(secret_text(file, pieces, self)?)
                        .with_context(|| format!("the secret in {id} is not UTF-8 text"))?;
                    Resource::File(File { content: Content::Text(text), ..file.clone() })
                }
                other => other.clone(),
            });
        }
        Ok(whole)
    }

    /// URLs of store files that this machine may not read. The state was derived without these files.
    pub fn denied_files(&self) -> &BTreeSet<String> {
        &self.unknown.files
    }

    /// The available keys and secrets of the last applied state.
    pub fn of_applied(applied: Arc<Applied>, read: Read) -> Materials {
        let Read { keysets, secrets, unknown, at_hand, unusable } = read;
        let applied = Some(applied);
        Materials { keysets, secrets, unknown, at_hand, unusable, applied, ..Materials::default() }
    }

    /// A keyset of the store, if it was read.
    pub fn stored_keyset(&self, name: &str) -> Option<&Keyset> {
        self.keysets.get(name)
    }

    /// A secret of the store, if it was read.
    pub fn stored_secret(&self, name: &str) -> Option<&Secret> {
        self.secrets.get(name)
    }

    pub fn with_environment(self, environment: Environment) -> Materials {
        Materials { environment, ..self }
    }

    /// Returns these materials with `why`, the reason why kops-controller issues no certificates now.
    pub fn without_issuer(self, why: String) -> Materials {
        Materials { unissuable: Some(why), ..self }
    }

    /// Returns these materials with certificates from kops-controller, by name.
    pub fn with_bootstrapped(self, bootstrapped: BTreeMap<String, PemPair>) -> Materials {
        Materials { bootstrapped, ..self }
    }

    /// Returns these materials for a node that keeps the named certificates while they are valid.
    pub fn keeping(&self, names: impl IntoIterator<Item = String>) -> Materials {
        Materials { kept: names.into_iter().collect(), ..self.clone() }
    }
}

impl Secrets for Materials {
    fn keyset_item(&self, keyset: &str, id: &str) -> Option<PemPair> {
        let name = (keyset.to_owned(), id.to_owned());
        if let Some(item) = self.at_hand.get(&name) {
            return Some(item.clone());
        }
        let keyset = self.keysets.get(keyset).filter(|_| !self.unusable.contains(&name))?;
        pair_of(if id.is_empty() { keyset.primary()? } else { keyset.item(id)? })
    }

    fn trusted_certificates(&self, keyset: &str) -> Option<String> {
        // The authorities in the configuration take precedence, because kOps chose them for this configuration. The store's authorities may
        // be newer than the configuration.
        let given = self.cas.get(keyset).filter(|certificates| !certificates.is_empty());
        let stored = || Some(self.keysets.get(keyset)?.trusted_certificates_pem());
        let applied = || Some(self.applied.as_ref()?.trusted_certificates(keyset)?.to_owned());
        // The authorities of the applied state take precedence over the store's authorities, because they were in the configuration of
        // that state. The store's authorities may be newer than the applied state.
        given.cloned().or_else(applied).or_else(stored)
    }

    fn secret(&self, name: &str) -> Option<Vec<u8>> {
        Some(self.secrets.get(name)?.expose().to_vec())
    }

    fn why_unknown(&self, material: Material<'_>) -> Option<String> {
        match material {
            Material::Secret(name) => self.unknown.secrets.get(name).cloned(),
            Material::Keyset(name) => self.unknown.keysets.get(name).cloned(),
            Material::Environment(_) => Some(Environment::why_no_login()),
        }
    }

    fn why_unissuable(&self, certificate: &Certificate) -> Option<String> {
        match certificate.issuer {
            Issuer::Local => self.why_unknown(Material::Keyset(&certificate.signer)),
            Issuer::Bootstrap => self.unissuable.clone(),
        }
    }

    fn item_certificate(&self, keyset: &str, id: &str) -> Option<String> {
        let applied = || Some(self.applied.as_ref()?.item_certificate(keyset, id)?.to_owned());
        self.keyset_item(keyset, id).map(|item| item.certificate).or_else(applied)
    }

    fn environment(&self, names: &[String]) -> Option<String> {
        self.environment.login(names)
    }

    fn variable(&self, name: &str) -> Option<String> {
        self.environment.get(name).filter(|value| !value.is_empty())
    }

    fn bootstrap_certificate(&self, name: &str) -> Option<PemPair> {
        self.bootstrapped.get(name).cloned()
    }

    fn keeps_certificate(&self, name: &str) -> bool {
        self.kept.contains(name)
    }
}
