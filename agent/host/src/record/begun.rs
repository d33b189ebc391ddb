//! What a run was about to leave: where it was interrupted, what it wrote is known again by that, and is the agent's own.

use std::collections::BTreeMap;

use kops_agent_plan::diff::sha256_hex;
use kops_agent_plan::resource::Resource;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::observe::{boot_text, digest};
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
    /// What is left of a resource, where that is a file or a link. `written` has the hashes of the files that the run
    /// writes, by path.
    pub(super) fn of(resource: &Resource, written: &BTreeMap<String, String>) -> Option<Begun> {
        let text = |text: &str| Some(Begun::File(sha256_hex(text.as_bytes())));
        match resource {
            Resource::File(file) => written.get(&file.path).cloned().map(Begun::File),
            Resource::Unit(unit) => text(unit.text.as_ref()?),
            Resource::KernelModule(module) => text(&boot_text(&module.name)),
            Resource::Symlink(link) => Some(Begun::Symlink(link.target.clone())),
            _ => None,
        }
    }

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
