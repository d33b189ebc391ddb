//! The keys and secrets that a desired state refers to, kept apart from it until it is applied.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use kops_agent_host::{PemPair, Secrets};
use kops_agent_plan::spec::{Keyset, Secret};

use crate::source::NodeSpec;

/// What was read of the store's `pki/` and `secrets/` for one node, and what kops-controller has issued to it.
#[derive(Clone, Default)]
pub struct Materials {
    keysets: BTreeMap<String, Keyset>,
    secrets: BTreeMap<String, Secret>,
    cas: BTreeMap<String, String>,
    bootstrapped: BTreeMap<String, PemPair>,
    kept: BTreeSet<String>,
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
            ..Materials::default()
        }
    }

    /// The same, with these certificates of kops-controller's by name.
    pub fn with_bootstrapped(self, bootstrapped: BTreeMap<String, PemPair>) -> Materials {
        Materials { bootstrapped, ..self }
    }

    /// The same for a node that keeps these certificates as long as they are valid.
    pub fn keeping(&self, names: impl IntoIterator<Item = String>) -> Materials {
        Materials { kept: names.into_iter().collect(), ..self.clone() }
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

    fn bootstrap_certificate(&self, name: &str) -> Option<PemPair> {
        self.bootstrapped.get(name).cloned()
    }

    fn keeps_certificate(&self, name: &str) -> bool {
        self.kept.contains(name)
    }
}
