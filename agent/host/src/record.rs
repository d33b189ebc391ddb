//! The record of what the agent left on this machine. It shows which resources other programs have changed since, which
//! unwanted resources are the agent's own, and which large files are unchanged and need no reading.
//!
//! A run claims a resource before the first write and settles it at the end, so an interrupted run leaves nothing
//! unclaimed. If the record is lost, only this knowledge is lost.

mod begun;
mod claim;
mod decided;
mod early;
mod owned;
mod reading;
mod settling;

use std::collections::{BTreeMap, BTreeSet};

use kops_agent_cluster::fleet::Next;
use kops_agent_plan::resource::{Kind, ResourceId};
use kops_agent_spec::failure;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::applied::if_readable;
use crate::attempt::Attempt;
use crate::rolled_back::RolledBack;
use crate::root::Metadata;
use claim::{Claim, Left, Unknown};
pub use decided::Decided;

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Record {
    /// The `NodeupConfigHash` of the last configuration to which the machine converged. Empty before the first convergence.
    pub config_hash: String,
    /// When the machine first converged to this configuration without failures, in RFC 3339.
    pub converged_since: Option<String>,
    /// Why the last run failed. `None` if it succeeded.
    pub failure: Option<Failure>,
    /// The last rolled-back change. `None` after a later run has succeeded.
    pub rolled_back: Option<RolledBack>,
    /// The newer configuration that new machines get, if it differs from the configuration of this machine.
    pub superseded: Option<Superseded>,
    /// The digest of the state after the last finished run; `None` if an earlier version of the agent recorded that state.
    pub(crate) settled_state: Option<String>,
    /// The digest of the state that a running or interrupted run applies.
    pub(crate) begun_state: Option<String>,
    /// When and why a certificate renewal was rolled back. For a day after that, runs that only renew certificates do not start.
    pub(crate) renewal_failure: Option<Failure>,
    /// The SHA-256 hashes of downloads that the agent looked up, by URL.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub known_hashes: BTreeMap<String, String>,
    /// The secrets of the state store that are in this machine's files, and the unreadable store files that did not influence this
    /// machine's files. `None` if an earlier version of the agent did not record them.
    pub decided: Option<Decided>,
    /// The units that must not run, such as kubelet on a machine in a warm pool.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    stopped_units: BTreeSet<String>,
    resources: BTreeMap<ResourceId, Claim>,
    /// Fields that other versions of the agent wrote.
    #[serde(flatten)]
    other: BTreeMap<String, serde_json::Value>,
    #[serde(skip)]
    unknown: Unknown,
    /// Why the record on the disk cannot be read. `None` if it can be read.
    #[serde(skip)]
    pub(crate) unreadable: Option<String>,
    /// Whether a record was ever lost on this machine.
    #[serde(skip)]
    pub(crate) was_lost: bool,
    /// Whether the recorded resources come from `early-units.json`, because the machine has no record yet.
    #[serde(skip)]
    is_early: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The time of the failure, in RFC 3339.
    pub at: String,
    /// The cause, and what to do.
    pub problem: String,
    /// The code of the failure's kind. Empty if an earlier version of kops-agent wrote this record.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub code: String,
}

/// The maximum length of a stored problem, in characters. A store or mirror may send text of any length.
const LONGEST_PROBLEM: usize = 16 * 1024;

impl Failure {
    pub(crate) fn new(at: String, kind: failure::Kind, problem: &str) -> Failure {
        let problem = problem.chars().take(LONGEST_PROBLEM).collect();
        Failure { at, problem, code: kind.code().to_owned() }
    }
}

/// The configuration that new machines get, while this machine stays pinned to another configuration. This happens between `kops update
/// cluster` and the rolling update.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Superseded {
    /// When the agent first saw that new machines get another configuration than this machine, in RFC 3339.
    pub since: String,
    /// The `NodeupConfigHash` of the configuration of new machines.
    pub by: String,
    /// The change to the configuration of new machines; `None` if no run has planned this change.
    #[serde(default, deserialize_with = "if_readable", skip_serializing_if = "Option::is_none")]
    pub next: Option<Next>,
}

/// Three values of a record: the hash of the configuration, the digest of the state after the last finished run, and the digest of the
/// begun state. Each run that changes the machine changes at least one of these values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    config_hash: String,
    settled: Option<String>,
    begun: Option<String>,
}

impl Mark {
    /// Whether the machine last converged to the configuration with this hash.
    pub fn has_converged_to(&self, config_hash: &str) -> bool {
        self.config_hash == config_hash
    }
}

impl Record {
    pub fn mark(&self) -> Mark {
        Mark {
            config_hash: self.config_hash.clone(),
            settled: self.settled_state.clone(),
            begun: self.begun_state.clone(),
        }
    }

    /// The path of the record, below the root.
    pub const PATH: &'static str = "/var/lib/kops-agent/record.json";

    /// Removes the `begun` content of these resources from the record. If no finished run has recorded a resource, removes the whole entry
    /// of the resource.
    pub(crate) fn forget_begun<'a>(&mut self, ids: impl Iterator<Item = &'a ResourceId>) {
        for id in ids {
            match self.resources.get_mut(id) {
                Some(claim) if claim.left.is_some() => claim.begun = None,
                Some(_) => drop(self.resources.remove(id)),
                None => {}
            }
        }
    }

    /// Whether no run has ever recorded a resource on this machine. Units that were started before the node's other resources were known do
    /// not count as recorded. If the result is true, other programs made all existing resources except these units.
    pub(crate) fn is_first_sight(&self) -> bool {
        self.config_hash.is_empty() && (self.is_early || self.resources.is_empty())
    }

    /// Whether a file's content differs from the content after the last run.
    pub(crate) fn is_edited(&self, id: &ResourceId, content: &str) -> bool {
        match self.resources.get(id).and_then(|claim| claim.left.as_ref()) {
            Some(Left::File { sha256: Some(left), .. }) => left != content,
            _ => false,
        }
    }

    /// Whether a finished run has recorded this resource.
    pub(crate) fn is_claimed(&self, id: &ResourceId) -> bool {
        self.resources.get(id).is_some_and(|claim| claim.left.is_some())
    }

    /// True if the agent created this resource and a finished run has recorded it.
    pub(crate) fn is_own(&self, id: &ResourceId) -> bool {
        self.resources.get(id).is_some_and(|claim| !claim.was_there && claim.left.is_some())
    }

    /// Whether a run has begun to write a resource that `which` selects, and has not finished.
    pub(crate) fn has_begun(&self, which: impl Fn(&ResourceId) -> bool) -> bool {
        self.resources.iter().any(|(id, claim)| claim.begun.is_some() && which(id))
    }

    /// Removes everything that was recorded after the last finished run. Used after a rollback.
    pub(crate) fn unclaim(&mut self) {
        self.begun_state = None;
        self.resources.retain(|_, claim| claim.left.is_some());
        self.resources.values_mut().for_each(|claim| claim.begun = None);
    }

    /// Whether a run has begun to write and has not finished. The run may be in progress or interrupted.
    pub(crate) fn is_begun(&self) -> bool {
        self.resources.values().any(|claim| claim.begun.is_some() || claim.left.is_none())
    }

    /// Whether an unfinished run changes the node to a state that differs from the state after the last finished run.
    pub(crate) fn has_begun_change(&self) -> bool {
        self.is_begun() && (self.begun_state.is_none() || self.begun_state != self.settled_state)
    }

    /// Whether `attempt` is the state after the last finished run.
    pub(crate) fn is_settled_with(&self, attempt: &Attempt) -> bool {
        match &self.settled_state {
            Some(settled) => settled == attempt.digest(),
            None => self.config_hash == attempt.config_hash(),
        }
    }

    /// The SHA-256 of the content that a running or interrupted run writes into a file.
    pub(crate) fn begun_sha256(&self, path: &str) -> Option<&str> {
        self.resources.get(&ResourceId::new(Kind::File, path))?.begun.as_ref()?.sha256()
    }

    /// Whether this file had this content after the agent's last run. If so, writing the content again is a repair, not a change.
    pub(crate) fn has_left(&self, id: &ResourceId, content: &str) -> bool {
        match self.resources.get(id).and_then(|claim| claim.left.as_ref()) {
            Some(Left::File { sha256, .. }) => sha256.as_deref() == Some(content),
            Some(Left::Symlink(target)) => target == content,
            _ => false,
        }
    }

    /// The recorded SHA-256 of a file, if the file's metadata shows that the file has not been touched since.
    pub(crate) fn known_sha256(&self, path: &str, metadata: &Metadata) -> Option<&str> {
        match self.resources.get(&ResourceId::new(Kind::File, path))?.left.as_ref()? {
            Left::File { sha256: Some(sha256), metadata: known, .. } if known.is_untouched(metadata) => {
                Some(sha256)
            }
            _ => None,
        }
    }

    /// The SHA-256 of a file after the last finished run. `None` if the record does not contain the SHA-256.
    pub(crate) fn left_sha256(&self, path: &str) -> Option<&str> {
        match self.resources.get(&ResourceId::new(Kind::File, path))?.left.as_ref()? {
            Left::File { sha256, .. } => sha256.as_deref(),
            _ => None,
        }
    }

    /// All recorded resources, each with a bool that says whether the resource existed before the agent first wrote it.
    pub(crate) fn claims(&self) -> impl Iterator<Item = (&ResourceId, bool)> {
        self.resources.iter().map(|(id, claim)| (id, claim.was_there))
    }

    /// The names of the agent's units that must run.
    pub(crate) fn running_units(&self) -> Vec<&str> {
        self.units().into_iter().filter(|unit| !self.stopped_units.contains(*unit)).collect()
    }

    /// The names of the units whose files the agent wrote.
    pub(crate) fn units(&self) -> Vec<&str> {
        let units = self.resources.iter().filter(|(id, claim)| id.kind == Kind::Unit && claim.left.is_some());
        units.map(|(id, _)| id.name.as_str()).collect()
    }

    /// The names of the units whose files the agent wrote, each with the SHA-256 of the written file.
    pub(crate) fn unit_texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.resources.iter().filter_map(|(id, claim)| match &claim.left {
            Some(Left::File { sha256: Some(sha256), .. }) if id.kind == Kind::Unit => {
                Some((id.name.as_str(), sha256.as_str()))
            }
            _ => None,
        })
    }

    /// The paths of the files that contain the node's own certificates.
    pub(crate) fn certificates(&self) -> impl Iterator<Item = &str> {
        self.resources.iter().filter_map(|(id, claim)| match &claim.left {
            Some(Left::File { certificate: true, .. }) => Some(id.name.as_str()),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests;
