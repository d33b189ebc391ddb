//! What a run was about to leave: where it was interrupted, what it wrote is known again by that, and is the agent's own.

use serde::{Deserialize, Serialize};

use crate::digests::digest;
use crate::error::Result;
use crate::root::{Dir, Entry};

/// What a run is about to leave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Begun {
    /// A regular file with content of this SHA-256.
    File(String),
    /// A symbolic link to this target.
    Symlink(String),
}

impl Begun {
    /// The SHA-256 of the content, if it is a file.
    pub(super) fn sha256(&self) -> Option<&str> {
        match self {
            Begun::File(sha256) => Some(sha256),
            Begun::Symlink(_) => None,
        }
    }

    /// Whether that is what is there.
    pub(super) fn is_at(&self, dir: &Dir, name: &str, entry: &Entry) -> Result<bool> {
        Ok(match (self, entry) {
            (Begun::File(sha256), Entry::File(_)) => digest(dir, name)? == *sha256,
            (Begun::Symlink(target), Entry::Symlink(found)) => target == found,
            _ => false,
        })
    }
}
