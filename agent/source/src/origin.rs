//! The files of the store that a node is decided from.

use std::collections::BTreeMap;

use crate::{Derivation, StoreFile};
use kops_agent_spec::{Keyset, Secret};

/// The files of the store that a node's configuration comes from.
pub enum Origin {
    /// The configuration is derived from the cluster and the instance group.
    ClusterSpec(Box<Derivation>),
    NodeupConfig(StoreFile),
}

impl Origin {
    /// A keyset that the derivation has read.
    pub fn keyset(&self, name: &str) -> Option<&Keyset> {
        match self {
            Origin::ClusterSpec(derivation) => derivation.files.keysets.get(name),
            Origin::NodeupConfig(_) => None,
        }
    }

    /// A secret that the derivation has read.
    pub fn secret(&self, name: &str) -> Option<&Secret> {
        match self {
            Origin::ClusterSpec(derivation) => derivation.files.secrets.get(name),
            Origin::NodeupConfig(_) => None,
        }
    }

    /// Whether the derived configuration equals the configuration that the user-data pins, byte for byte.
    pub fn is_proven(&self) -> bool {
        matches!(self, Origin::ClusterSpec(derivation) if derivation.is_proven)
    }

    /// The hashes that the derivation knows, by the URL of the download. Empty without a derivation.
    pub fn known_hashes(&self) -> BTreeMap<String, String> {
        match self {
            Origin::ClusterSpec(derivation) => derivation.known_hashes(),
            Origin::NodeupConfig(_) => BTreeMap::new(),
        }
    }

    pub fn files(&self) -> Vec<StoreFile> {
        match self {
            Origin::ClusterSpec(derivation) => {
                vec![derivation.files.cluster_file.clone(), derivation.files.group_file.clone()]
            }
            Origin::NodeupConfig(file) => vec![file.clone()],
        }
    }
}
