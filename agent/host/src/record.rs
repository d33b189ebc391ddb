//! The record: what the agent left on this machine, so that it can tell what others changed since, what was its
//! own and is no longer wanted, and which big files need no reading because nothing has touched them.
//!
//! A resource is claimed before it is first written and settled after a run: whatever interrupts a run, nothing of
//! the agent's is left unclaimed. Without the record nothing is lost but this
//! knowledge.

mod begun;
mod claim;
mod decided;
mod owned;
mod reading;
mod settling;

use std::collections::{BTreeMap, BTreeSet};

use kops_agent_plan::resource::{Kind, ResourceId};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::attempt::Attempt;
use crate::rolled_back::RolledBack;
use crate::root::Metadata;
use claim::{Claim, Left, Unknown};
pub use decided::Decided;

/// What was left on a machine.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Record {
    /// `NodeupConfigHash` of the configuration to which the machine last converged; empty before it did.
    pub config_hash: String,
    /// Since when it is converged to that, in RFC 3339.
    pub converged_since: Option<String>,
    /// What the last run failed with, if it did.
    pub failure: Option<Failure>,
    /// The change that was taken back since, if one was.
    pub rolled_back: Option<RolledBack>,
    /// The configuration of other machines that has taken the place of this one's, if one has.
    pub superseded: Option<Superseded>,
    /// What tells the state that was last settled from all others; `None` where an earlier version of the agent settled.
    pub(crate) settled_state: Option<String>,
    /// What tells the state to which a run is under way, or was interrupted.
    pub(crate) begun_state: Option<String>,
    /// Why certificates could not be renewed that had to be taken back, and when: they are not tried again at once.
    pub(crate) renewal_failure: Option<Failure>,
    /// The hashes of downloads that were told, by URL.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub known_hashes: BTreeMap<String, String>,
    /// What of the store is in the files that are on this machine; `None` where that is not known, as after a run of an
    /// agent that did not note it.
    pub decided: Option<Decided>,
    /// The units that are not to run, as kubelet is not on a machine of a warm pool.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    stopped_units: BTreeSet<String>,
    resources: BTreeMap<ResourceId, Claim>,
    /// What other versions of the agent recorded of a run.
    #[serde(flatten)]
    other: BTreeMap<String, serde_json::Value>,
    #[serde(skip)]
    unknown: Unknown,
    /// Why the record that is there cannot be read, where it cannot be.
    #[serde(skip)]
    pub(crate) unreadable: Option<String>,
    /// Whether a record was lost, now or since the agent came to this machine.
    #[serde(skip)]
    pub(crate) was_lost: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// When, in RFC 3339.
    pub at: String,
    /// With what, and what to do about it.
    pub problem: String,
}

/// What is kept of a failure, in characters: a store or a mirror may have written any amount of it.
const LONGEST_PROBLEM: usize = 16 * 1024;

impl Failure {
    /// A failure at a time, in RFC 3339.
    pub(crate) fn new(at: String, problem: &str) -> Failure {
        Failure { at, problem: problem.chars().take(LONGEST_PROBLEM).collect() }
    }
}

/// A configuration that machines get which are made from now on, while this one is pinned to that of before: as
/// between `kops update cluster` and the rolling update.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Superseded {
    /// Since when that is known, in RFC 3339.
    pub since: String,
    /// `NodeupConfigHash` of the other configuration.
    pub by: String,
}

impl Record {
    /// Where it is, below the root.
    pub const PATH: &'static str = "/var/lib/kops-agent/record.json";

    /// Forgets that these were begun, of which nothing was written.
    pub(crate) fn forget_begun<'a>(&mut self, ids: impl Iterator<Item = &'a ResourceId>) {
        for id in ids {
            match self.resources.get_mut(id) {
                Some(claim) if claim.left.is_some() => claim.begun = None,
                Some(_) => drop(self.resources.remove(id)),
                None => {}
            }
        }
    }

    /// Whether no run has ever claimed anything here: whatever there is was made by other programs.
    pub(crate) fn is_first_sight(&self) -> bool {
        self.config_hash.is_empty() && self.resources.is_empty()
    }

    /// Whether a file has other content than a run has left it with.
    pub(crate) fn is_edited(&self, id: &ResourceId, content: &str) -> bool {
        match self.resources.get(id).and_then(|claim| claim.left.as_ref()) {
            Some(Left::File { sha256: Some(left), .. }) => left != content,
            _ => false,
        }
    }

    /// Whether a run has settled with something.
    pub(crate) fn is_claimed(&self, id: &ResourceId) -> bool {
        self.resources.get(id).is_some_and(|claim| claim.left.is_some())
    }

    /// Whether something was left by a run that first made it.
    pub(crate) fn is_own(&self, id: &ResourceId) -> bool {
        self.resources.get(id).is_some_and(|claim| !claim.was_there && claim.left.is_some())
    }

    /// Whether a run was interrupted that wrote any of these.
    pub(crate) fn has_begun(&self, which: impl Fn(&ResourceId) -> bool) -> bool {
        self.resources.iter().any(|(id, claim)| claim.begun.is_some() && which(id))
    }

    /// Forgets what was claimed since everything was last settled: the change that it was for was taken back.
    pub(crate) fn unclaim(&mut self) {
        self.begun_state = None;
        self.resources.retain(|_, claim| claim.left.is_some());
        self.resources.values_mut().for_each(|claim| claim.begun = None);
    }

    /// Whether a run has begun to write something and has not come to its end: it is at work, or was interrupted.
    pub(crate) fn is_begun(&self) -> bool {
        self.resources.values().any(|claim| claim.begun.is_some() || claim.left.is_none())
    }

    /// Whether a run has begun a change to another state than the settled one, and has not come to its end.
    pub(crate) fn has_begun_change(&self) -> bool {
        self.is_begun() && (self.begun_state.is_none() || self.begun_state != self.settled_state)
    }

    /// Whether this is the state that was last settled.
    pub(crate) fn is_settled_with(&self, attempt: &Attempt) -> bool {
        match &self.settled_state {
            Some(settled) => settled == attempt.digest(),
            None => self.config_hash == attempt.config_hash(),
        }
    }

    /// The SHA-256 of the content that an interrupted run was to write into a file.
    pub(crate) fn begun_sha256(&self, path: &str) -> Option<&str> {
        self.resources.get(&ResourceId::new(Kind::File, path))?.begun.as_ref()?.sha256()
    }

    /// Whether a file with this content is as the agent left it: to write it is to repair, and no change.
    pub(crate) fn has_left(&self, id: &ResourceId, content: &str) -> bool {
        match self.resources.get(id).and_then(|claim| claim.left.as_ref()) {
            Some(Left::File { sha256, .. }) => sha256.as_deref() == Some(content),
            Some(Left::Symlink(target)) => target == content,
            _ => false,
        }
    }

    /// The SHA-256 that a file of this metadata must have, because nothing has touched it since it was known.
    pub(crate) fn known_sha256(&self, path: &str, metadata: &Metadata) -> Option<&str> {
        match self.resources.get(&ResourceId::new(Kind::File, path))?.left.as_ref()? {
            Left::File { sha256: Some(sha256), metadata: known, .. } if known.is_untouched(metadata) => {
                Some(sha256)
            }
            _ => None,
        }
    }

    /// The SHA-256 of the content with which a file was left, where that is recorded.
    pub(crate) fn left_sha256(&self, path: &str) -> Option<&str> {
        match self.resources.get(&ResourceId::new(Kind::File, path))?.left.as_ref()? {
            Left::File { sha256, .. } => sha256.as_deref(),
            _ => None,
        }
    }

    /// Everything that is recorded, and whether something was there before the agent first wrote it.
    pub(crate) fn claims(&self) -> impl Iterator<Item = (&ResourceId, bool)> {
        self.resources.iter().map(|(id, claim)| (id, claim.was_there))
    }

    /// The units that the agent wrote and that are to run, by name.
    pub(crate) fn running_units(&self) -> Vec<&str> {
        self.units().into_iter().filter(|unit| !self.stopped_units.contains(*unit)).collect()
    }

    /// The units whose files the agent wrote, by name.
    pub(crate) fn units(&self) -> Vec<&str> {
        let units = self.resources.iter().filter(|(id, claim)| id.kind == Kind::Unit && claim.left.is_some());
        units.map(|(id, _)| id.name.as_str()).collect()
    }

    /// The units whose files the agent wrote, by name, and the SHA-256 with which each was left.
    pub(crate) fn unit_texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.resources.iter().filter_map(|(id, claim)| match &claim.left {
            Some(Left::File { sha256: Some(sha256), .. }) if id.kind == Kind::Unit => {
                Some((id.name.as_str(), sha256.as_str()))
            }
            _ => None,
        })
    }

    /// The files that hold certificates of the node's own, by path.
    pub(crate) fn certificates(&self) -> impl Iterator<Item = &str> {
        self.resources.iter().filter_map(|(id, claim)| match &claim.left {
            Some(Left::File { certificate: true, .. }) => Some(id.name.as_str()),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests;
