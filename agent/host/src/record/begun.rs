//! The content that a run is about to write. After an interruption, it identifies files that the run wrote as the
//! agent's own.

use serde::{Deserialize, Serialize};

use crate::digests::digest;
use crate::error::Result;
use crate::root::{Dir, Entry};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Begun {
    /// The SHA-256 of a regular file's content.
    File(String),
    /// The target of a symbolic link.
    Symlink(String),
}

impl Begun {
    /// The SHA-256 of the content, if the resource is a file.
    pub(super) fn sha256(&self) -> Option<&str> {
        match self {
            Begun::File(sha256) => Some(sha256),
            Begun::Symlink(_) => None,
        }
    }

    pub(super) fn is_at(&self, dir: &Dir, name: &str, entry: &Entry) -> Result<bool> {
        Ok(match (self, entry) {
            (Begun::File(sha256), Entry::File(_)) => digest(dir, name)? == *sha256,
            (Begun::Symlink(target), Entry::Symlink(found)) => target == found,
            _ => false,
        })
    }
}
