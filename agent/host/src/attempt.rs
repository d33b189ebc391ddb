//! A target state of a node, and the digest that identifies it.

use kops_agent_plan::resource::{DesiredState, Resource};
use kops_agent_spec::digest::sha256_hex;
use serde::{Deserialize, Serialize};

/// The value of `Attempt::desired` if a run only renews certificates. It stands in the place of the digest.
pub(crate) const RENEWAL: &str = "renewal of certificates";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Attempt {
    /// The `NodeupConfigHash` of the configuration from which the state is derived.
    pub(crate) config_hash: String,
    /// The digest of the desired resources. It may change while `config_hash` stays the same, because the cluster can change resources that
    /// `config_hash` does not cover.
    pub(crate) desired: String,
}

impl Attempt {
    pub(crate) fn new(desired: &DesiredState, config_hash: &str) -> Attempt {
        let resources: Vec<&Resource> = desired.iter().map(|(_, resource)| resource).collect();
        // The digest reveals no secret, because the resources contain only references to secrets.
        let text = serde_json::to_vec(&resources).unwrap_or_default();
        Attempt { config_hash: config_hash.to_owned(), desired: sha256_hex(&text) }
    }

    pub(crate) fn from_digest(digest: &str, config_hash: &str) -> Attempt {
        Attempt { config_hash: config_hash.to_owned(), desired: digest.to_owned() }
    }

    /// The digest that identifies the state.
    pub(crate) fn digest(&self) -> &str {
        &self.desired
    }

    pub(crate) fn config_hash(&self) -> &str {
        &self.config_hash
    }

    /// A renewal of certificates, which does not change the state.
    pub(crate) fn renewal(config_hash: &str) -> Attempt {
        Attempt { config_hash: config_hash.to_owned(), desired: RENEWAL.to_owned() }
    }

    pub(crate) fn is_renewal(&self) -> bool {
        self.desired == RENEWAL
    }
}
