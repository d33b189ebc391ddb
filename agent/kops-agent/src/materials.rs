//! The keys and secrets that a desired state refers to, kept apart from it until it is applied.

use std::collections::BTreeMap;
use std::fmt;

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
}
