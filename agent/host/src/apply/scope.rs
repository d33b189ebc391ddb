//! The scope of a run, and the state that the run leads to.

use std::collections::{BTreeMap, BTreeSet};

use kops_agent_plan::resource::DesiredState;

use crate::attempt::Attempt;
use crate::record::Record;

/// The state that the machine has after a run. `None` if the run does not cover a whole node. A run that repairs a machine or renews its
/// certificates keeps the state that the machine already has.
pub(super) fn attempt(scope: Scope<'_>, desired: &DesiredState, record: &Record) -> Option<Attempt> {
    let config_hash = scope.config_hash()?;
    match (scope, &record.settled_state) {
        (Scope::Renewal { .. }, None) => None,
        (Scope::LastApplied { .. } | Scope::Renewal { .. }, Some(settled)) => {
            Some(Attempt::from_digest(settled, config_hash))
        }
        _ => Some(Attempt::new(desired, config_hash)),
    }
}

/// The part of the machine that a desired state describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// All resources that belong to the agent. The plan removes resources that the agent created earlier and that are no longer desired.
    /// The result is recorded.
    Node {
        /// The `NodeupConfigHash` of the configuration from which this state is derived.
        config_hash: &'a str,
        /// The published hashes of downloads, by URL.
        known_hashes: &'a BTreeMap<String, String>,
        /// The URLs of store files that this node may not read. The state was derived without them.
        without: &'a BTreeSet<String>,
    },
    /// Applies the last applied state again, because the new state is unknown or must not be applied. Like [`Scope::Node`], except that
    /// recorded failures and rollbacks stay.
    LastApplied {
        /// The `NodeupConfigHash` of the last applied configuration.
        config_hash: &'a str,
    },
    /// Covers only the certificates of a node that has converged to this configuration, and the programs that read these certificates
    /// ([`kops_agent_plan::diff::renewal`]). The run records only the state of these resources.
    Renewal {
        /// The `NodeupConfigHash` of the last applied configuration.
        config_hash: &'a str,
    },
    /// A part of a machine that does not depend on other parts. Nothing is recorded.
    Part,
    /// Units that run before the other resources of the node are known. The agent records these units as its own, but does not record that
    /// a run has begun on this machine.
    Early,
}

impl<'a> Scope<'a> {
    /// The store files that this node may not read, and on which the state does not depend. `None` if this scope does not know them.
    pub(super) fn without(self) -> Option<&'a BTreeSet<String>> {
        match self {
            Scope::Node { without, .. } => Some(without),
            Scope::LastApplied { .. } | Scope::Renewal { .. } | Scope::Part | Scope::Early => None,
        }
    }

    /// True for [`Scope::Part`] and [`Scope::Early`]. Such a run leaves the other parts of the machine unchanged.
    pub(super) fn is_part(self) -> bool {
        matches!(self, Scope::Part | Scope::Early)
    }

    /// The `NodeupConfigHash` of the configuration from which this state is derived. `None` if the run does not cover a whole node.
    pub(crate) fn config_hash(self) -> Option<&'a str> {
        match self {
            Scope::Node { config_hash, .. }
            | Scope::LastApplied { config_hash }
            | Scope::Renewal { config_hash } => Some(config_hash),
            Scope::Part | Scope::Early => None,
        }
    }
}
