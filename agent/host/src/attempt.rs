//! A state that a node is to get to, and what tells it from all others.

use kops_agent_plan::digest::sha256_hex;
use kops_agent_plan::resource::{DesiredState, Resource};
use serde::{Deserialize, Serialize};

/// In the place of the digest that tells a state from others.
pub(crate) const RENEWAL: &str = "renewal of certificates";

/// A state that a node is to get to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Attempt {
    /// `NodeupConfigHash` of the configuration that it follows from.
    pub(crate) config_hash: String,
    /// What tells it from all others: the cluster may change what the hash is not of.
    pub(crate) desired: String,
}

impl Attempt {
    pub(crate) fn new(desired: &DesiredState, config_hash: &str) -> Attempt {
        let resources: Vec<&Resource> = desired.iter().map(|(_, resource)| resource).collect();
        // References to secrets are in it, and no secret.
        let text = serde_json::to_vec(&resources).unwrap_or_default();
        Attempt { config_hash: config_hash.to_owned(), desired: sha256_hex(&text) }
    }

    /// One whose digest is known.
    pub(crate) fn known(digest: &str, config_hash: &str) -> Attempt {
        Attempt { config_hash: config_hash.to_owned(), desired: digest.to_owned() }
    }

    /// What tells the state from all others.
    pub(crate) fn digest(&self) -> &str {
        &self.desired
    }

    /// `NodeupConfigHash` of the configuration that the state follows from.
    pub(crate) fn config_hash(&self) -> &str {
        &self.config_hash
    }

    /// Certificates are renewed: the state stays the one that it is.
    pub(crate) fn renewal(config_hash: &str) -> Attempt {
        Attempt { config_hash: config_hash.to_owned(), desired: RENEWAL.to_owned() }
    }

    pub(crate) fn is_renewal(&self) -> bool {
        self.desired == RENEWAL
    }
}
