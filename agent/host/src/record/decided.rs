//! What of the store has gone into what is on this machine: a file of the store that may not be read now is no reason to
//! take away what was made of it, also where the run that made it did not come to its end.

use std::collections::BTreeSet;

use kops_agent_plan::resource::DesiredState;
use serde::{Deserialize, Serialize};

use super::Record;
use crate::applied::secrets_of;

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
    fn of(desired: &DesiredState, without: &BTreeSet<String>) -> Decided {
        let secrets = desired.iter().flat_map(|(_, resource)| secrets_of(resource));
        Decided { secrets: secrets.map(str::to_owned).collect(), without: without.clone() }
    }

    /// Both, where some of each is on the machine.
    fn and(self, other: Decided) -> Decided {
        Decided {
            secrets: self.secrets.into_iter().chain(other.secrets).collect(),
            without: self.without.intersection(&other.without).cloned().collect(),
        }
    }
}

impl Record {
    /// Notes what is about to go into files. `without` is `None` where that is not known of the state. Where an older
    /// agent has left more than is noted, it stays unknown until the run settles.
    pub(crate) fn note_begun(&mut self, desired: &DesiredState, without: Option<&BTreeSet<String>>) {
        let begun = self.decided_now(desired, without);
        self.decided = match self.decided.take() {
            Some(before) => Some(before.and(begun)),
            None if self.is_first_sight() => Some(begun),
            None => None,
        };
    }

    /// Notes what has gone into files, now that nothing else is left of earlier runs.
    pub(crate) fn note_settled(&mut self, desired: &DesiredState, without: Option<&BTreeSet<String>>) {
        self.decided = Some(self.decided_now(desired, without));
    }

    fn decided_now(&self, desired: &DesiredState, without: Option<&BTreeSet<String>>) -> Decided {
        let before = || self.decided.as_ref().map(|decided| &decided.without);
        let none = BTreeSet::new();
        Decided::of(desired, without.or_else(before).unwrap_or(&none))
    }
}
