//! How much of the machine a run is for, and what it leads to.

use std::collections::{BTreeMap, BTreeSet};

use kops_agent_plan::resource::DesiredState;

use crate::attempt::Attempt;
use crate::record::Record;

/// The state that a run leads to; `None` where it is no whole node's. A machine that is put right, or whose certificates are
/// renewed, stays in the one that it is in.
pub(super) fn attempt(scope: Scope<'_>, desired: &DesiredState, record: &Record) -> Option<Attempt> {
    let config_hash = scope.config_hash()?;
    match (scope, &record.settled_state) {
        (Scope::Renewal { .. }, None) => None,
        (Scope::LastApplied { .. } | Scope::Renewal { .. }, Some(settled)) => {
            Some(Attempt::known(settled, config_hash))
        }
        _ => Some(Attempt::new(desired, config_hash)),
    }
}

/// How much of the machine a desired state describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// Everything that is the agent's: what it left and is not desired any more was planned to be removed, and how
    /// everything is left is recorded.
    Node {
        /// `NodeupConfigHash` of the configuration that the state follows from.
        config_hash: &'a str,
        /// The hashes of downloads that were told, by URL.
        known_hashes: &'a BTreeMap<String, String>,
        /// URLs of files of the store that the state was decided without, because they may not be read.
        without: &'a BTreeSet<String>,
    },
    /// What was last applied, again, because what is wanted now is not known or may not be applied: the same as
    /// [`Scope::Node`], and what is recorded of failures and of a change that was rolled back stays.
    LastApplied {
        /// `NodeupConfigHash` of the configuration that was last applied.
        config_hash: &'a str,
    },
    /// The certificates of a node that has converged to the configuration of this hash, and what reads them
    /// ([`kops_agent_plan::diff::renewal`]): how that is left is recorded, and nothing else is.
    Renewal {
        /// `NodeupConfigHash` of the configuration that was last applied.
        config_hash: &'a str,
    },
    /// A part, beside whatever else there is: nothing is recorded.
    Part,
}

impl<'a> Scope<'a> {
    /// What a state was decided without, where that is known of it.
    pub(super) fn without(self) -> Option<&'a BTreeSet<String>> {
        match self {
            Scope::Node { without, .. } => Some(without),
            Scope::LastApplied { .. } | Scope::Renewal { .. } | Scope::Part => None,
        }
    }

    /// `NodeupConfigHash` of the configuration that the state follows from, where it is a whole node's.
    pub(crate) fn config_hash(self) -> Option<&'a str> {
        match self {
            Scope::Node { config_hash, .. }
            | Scope::LastApplied { config_hash }
            | Scope::Renewal { config_hash } => Some(config_hash),
            Scope::Part => None,
        }
    }
}
