//! The journal of a change: what was there before, so that all of it can be put back, and how far the change has come.
//!
//! It is on the disk before the first file is replaced, and gone once every component is well again or everything is
//! as it was. So a run that finds one knows that the last did not come to its end, and goes on with it: with the
//! change, or with taking it back.

use std::collections::BTreeMap;

use kops_agent_plan::resource::ResourceId;
use kops_agent_spec::omit::is_zero;
use serde::{Deserialize, Serialize};
use serde_with::{apply, skip_serializing_none};

use crate::attempt::Attempt;
use crate::error::{Error, Result};
use crate::root::{Metadata, Root};
use crate::staged::write_file;
use crate::stamps::Stamp;

/// Where the journal and the files of before are.
pub(super) const FOLDER: &str = "/var/lib/kops-agent/rollback";
const NAME: &str = "journal.json";

/// A change that has begun.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Journal {
    pub(super) attempt: Attempt,
    /// Why the change is being taken back, if it is.
    pub(super) taken_back: Option<String>,
    /// What there was of everything that changes.
    pub(super) kept: BTreeMap<ResourceId, Kept>,
    /// The components that have been started anew, in that order.
    pub(super) begun: Vec<ResourceId>,
}

/// What there was of one resource.
#[apply(_ => #[serde(default, skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Kept {
    /// What was in its place.
    #[serde_with(skip_apply)]
    pub(super) was: Was,
    /// What is to be run when it is put back.
    pub(super) commands: Vec<Vec<String>>,
    /// What was noted about it.
    pub(super) stamps: Vec<(Stamp, Option<String>)>,
    /// How systemd had it, if it is a unit.
    pub(super) unit: Option<UnitWas>,
    /// The UID of the pod that ran, if it is the file of a static one.
    pub(super) pod: Option<String>,
    /// Whether that pod stays, and its containers only are started anew.
    pub(super) restarts_pod: bool,
}

/// What was in the place of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum Was {
    /// What is there is right in any case.
    Right,
    Absent,
    /// A file, which is kept under this name.
    File {
        kept: String,
        metadata: Metadata,
    },
    /// A directory of this mode and owner.
    Directory(Metadata),
    /// A symbolic link to this target.
    Symlink(String),
    /// No unit of the agent's that mounts this volume at boot; and whether something was mounted there.
    Volume {
        mounted: bool,
    },
    /// A name in `/etc/hosts` with these addresses.
    Host(Vec<String>),
}

/// How systemd had a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UnitWas {
    /// Whether there was such a unit.
    pub(super) known: bool,
    /// Whether it started at boot.
    pub(super) enabled: bool,
    pub(super) running: bool,
}

impl Journal {
    pub(crate) fn new(attempt: Attempt) -> Journal {
        Journal { attempt, taken_back: None, kept: BTreeMap::new(), begun: Vec::new() }
    }

    /// The same journal of a change that goes on to this; what there was before stays what it was.
    pub(crate) fn towards(self, attempt: Attempt) -> Journal {
        Journal { attempt, ..self }
    }

    /// The journal of the change that has not come to its end, if there is one.
    pub(crate) fn read(root: &Root) -> Result<Option<Journal>> {
        let bytes = root.read(&format!("{FOLDER}/{NAME}"))?;
        // It is written as a whole: what cannot be read is of another version of the agent.
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    pub(crate) fn write(&self, root: &Root) -> Result<()> {
        let path = format!("{FOLDER}/{NAME}");
        let bytes = serde_json::to_vec(self)
            .map_err(|error| Error::path("write", root.shown(&path), std::io::Error::from(error)))?;
        write_file(root, &path, 0o600, None, &bytes)
    }

    /// Ends the change: the journal goes first, so that no run puts back what is half gone.
    pub(crate) fn end(root: &Root) -> Result<()> {
        let Some(folder) = root.dir(FOLDER)? else { return Ok(()) };
        folder.remove(NAME)?;
        folder.sync()?;
        drop(folder);
        root.remove_tree(FOLDER)
    }

    /// Whether there is anything to put back.
    pub(crate) fn changes_anything(&self) -> bool {
        self.kept.values().any(|kept| kept.was != Was::Right)
    }

    pub(crate) fn attempt(&self) -> &Attempt {
        &self.attempt
    }

    /// Whether the change is being taken back.
    pub(crate) fn is_taken_back(&self) -> bool {
        self.taken_back.is_some()
    }

    /// Notes that a component is about to be started anew.
    pub(crate) fn begin(&mut self, root: &Root, component: &ResourceId) -> Result<()> {
        if self.begun.contains(component) {
            return Ok(());
        }
        self.begun.push(component.clone());
        self.write(root)
    }

    /// The components that have been started anew, in that order.
    pub(crate) fn begun(&self) -> &[ResourceId] {
        &self.begun
    }

    /// The UID of the static pod that ran of this file before, if the change gives it another.
    pub(crate) fn pod_before(&self, file: &ResourceId) -> Option<&str> {
        self.kept.get(file).filter(|kept| !kept.restarts_pod)?.pod.as_deref()
    }

    /// Whether the change ends the containers of the static pod of this file.
    pub(super) fn restarts_pod(&self, file: &ResourceId) -> bool {
        self.kept.get(file).is_some_and(|kept| kept.restarts_pod)
    }
}
