//! Parts of the state store that are in this machine's files. If a store file becomes unreadable, everything that was
//! made from it stays on the machine, even if the run that made it did not finish.

use std::collections::BTreeSet;

use kops_agent_plan::resource::DesiredState;
use serde::{Deserialize, Serialize};

use crate::secrets::secrets_of;

/// The secrets of the state store that are in this machine's files, and the unreadable store files that did not influence this machine's
/// files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Decided {
    pub secrets: BTreeSet<String>,
    /// The URLs of unreadable store files. No state on this machine was derived from these files.
    pub without: BTreeSet<String>,
}

impl Decided {
    pub(super) fn from_desired(desired: &DesiredState, without: &BTreeSet<String>) -> Decided {
        let secrets = desired.iter().flat_map(|(_, resource)| secrets_of(resource));
        Decided { secrets: secrets.map(str::to_owned).collect(), without: without.clone() }
    }

    /// Combines two states that are both partly on the machine. `secrets` of the result contains the secrets of both states. `without` of
    /// the result contains only the URLs that are in `without` of both states.
    pub(super) fn and(self, other: Decided) -> Decided {
        Decided {
            secrets: self.secrets.into_iter().chain(other.secrets).collect(),
            without: self.without.intersection(&other.without).cloned().collect(),
        }
    }
}
