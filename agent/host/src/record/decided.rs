//! What of the store has gone into what is on this machine: a file of the store that may not be read now is no reason to
//! take away what was made of it, also where the run that made it did not come to its end.

use std::collections::BTreeSet;

use kops_agent_plan::resource::DesiredState;
use serde::{Deserialize, Serialize};

use crate::secrets::secrets_of;

/// What of the store has gone into the files that runs have written and not taken away again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Decided {
    /// Secrets, by name.
    pub secrets: BTreeSet<String>,
    /// URLs of files that every state was decided without that is on this machine, because they could not be read.
    pub without: BTreeSet<String>,
}

impl Decided {
    pub(super) fn of(desired: &DesiredState, without: &BTreeSet<String>) -> Decided {
        let secrets = desired.iter().flat_map(|(_, resource)| secrets_of(resource));
        Decided { secrets: secrets.map(str::to_owned).collect(), without: without.clone() }
    }

    /// Both, where some of each is on the machine.
    pub(super) fn and(self, other: Decided) -> Decided {
        Decided {
            secrets: self.secrets.into_iter().chain(other.secrets).collect(),
            without: self.without.intersection(&other.without).cloned().collect(),
        }
    }
}
