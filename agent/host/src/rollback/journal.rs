//! The journal of a change: the previous state of all changed resources, and the progress of the change.
//!
//! The journal is on the disk before the first file is replaced. It is removed when every component is healthy again
//! or the rollback is complete. A run that finds a journal knows that the last run did not finish. It resumes the
//! change or its rollback.

use std::collections::BTreeMap;

use kops_agent_plan::resource::ResourceId;
use kops_agent_spec::go_yaml::is_zero;
use serde::{Deserialize, Serialize};
use serde_with::{apply, skip_serializing_none};

use crate::attempt::Attempt;
use crate::error::{Error, Result};
use crate::root::{Metadata, Root};
use crate::staged::write_file;
use crate::stamps::Stamp;

/// The folder of the journal and of the backed-up files.
pub(super) const FOLDER: &str = "/var/lib/kops-agent/rollback";
const NAME: &str = "journal.json";

/// A change in progress.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Journal {
    pub(super) attempt: Attempt,
    /// Why the change is being rolled back. `None` without a rollback.
    pub(super) taken_back: Option<String>,
    /// The previous state of each changed resource.
    pub(super) kept: BTreeMap<ResourceId, Kept>,
    /// The components that the change has restarted, in the order of their restarts.
    pub(super) begun: Vec<ResourceId>,
}

#[apply(_ => #[serde(default, skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Kept {
    #[serde_with(skip_apply)]
    pub(super) was: Was,
    /// Commands to run after the resource is restored.
    pub(super) commands: Vec<Vec<String>>,
    /// The stamps of the resource before the change.
    pub(super) stamps: Vec<(Stamp, Option<String>)>,
    /// The state in systemd, if the resource is a unit.
    pub(super) unit: Option<UnitWas>,
    /// The UID of the running pod, if the resource is the manifest of a static pod.
    pub(super) pod: Option<String>,
    /// Whether the change keeps the pod and restarts only its containers.
    pub(super) restarts_pod: bool,
}

/// The previous content of a resource's path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum Was {
    /// The change only repairs the resource, so a rollback does not restore it.
    Right,
    Absent,
    /// A regular file. `kept` is the name of its backup.
    File {
        kept: String,
        metadata: Metadata,
    },
    /// The mode and owner of a directory.
    Directory(Metadata),
    /// The target of a symbolic link.
    Symlink(String),
    /// Before the change, the agent had no unit that mounts this volume at boot. `mounted` says whether the volume was already mounted.
    Volume {
        mounted: bool,
    },
    /// The addresses of a host name in `/etc/hosts`.
    Host(Vec<String>),
}

/// The state of a unit in systemd before the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UnitWas {
    /// Whether systemd knew the unit, or the unit's file existed.
    pub(super) known: bool,
    /// Whether the unit was enabled, so that systemd starts it at boot.
    pub(super) enabled: bool,
    pub(super) running: bool,
}

impl Journal {
    pub(crate) fn new(attempt: Attempt) -> Journal {
        Journal { attempt, taken_back: None, kept: BTreeMap::new(), begun: Vec::new() }
    }

    /// Makes `attempt` the target of the change. The recorded previous states of resources stay.
    pub(crate) fn towards(self, attempt: Attempt) -> Journal {
        Journal { attempt, ..self }
    }

    /// Reads the journal of an unfinished change, if there is one.
    pub(crate) fn read(root: &Root) -> Result<Option<Journal>> {
        let bytes = root.read(&format!("{FOLDER}/{NAME}"))?;
        // A journal is written atomically. If it cannot be parsed, another version of the agent wrote it, and it is ignored.
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    pub(crate) fn write(&self, root: &Root) -> Result<()> {
        let path = format!("{FOLDER}/{NAME}");
        let bytes = serde_json::to_vec(self)
            .map_err(|error| Error::path("write", root.shown(&path), std::io::Error::from(error)))?;
        write_file(root, &path, 0o600, None, &bytes)
    }

    /// Ends the change. Removes the journal before the backups, so that no run restores from incomplete backups.
    pub(crate) fn end(root: &Root) -> Result<()> {
        let Some(folder) = root.dir(FOLDER)? else { return Ok(()) };
        folder.remove(NAME)?;
        folder.sync()?;
        drop(folder);
        root.remove_tree(FOLDER)
    }

    /// Whether a rollback has anything to restore.
    pub(crate) fn changes_anything(&self) -> bool {
        self.kept.values().any(|kept| kept.was != Was::Right)
    }

    pub(crate) fn attempt(&self) -> &Attempt {
        &self.attempt
    }

    pub(crate) fn is_rolling_back(&self) -> bool {
        self.taken_back.is_some()
    }

    /// Records that a component is about to restart.
    pub(crate) fn begin(&mut self, root: &Root, component: &ResourceId) -> Result<()> {
        if self.begun.contains(component) {
            return Ok(());
        }
        self.begun.push(component.clone());
        self.write(root)
    }

    /// The components that the change has restarted, in the order of their restarts.
    pub(crate) fn begun(&self) -> &[ResourceId] {
        &self.begun
    }

    /// The UID of the static pod before the change, if the change replaces the pod.
    pub(crate) fn pod_before(&self, file: &ResourceId) -> Option<&str> {
        self.kept.get(file).filter(|kept| !kept.restarts_pod)?.pod.as_deref()
    }

    /// Whether the change restarts the containers of this manifest's pod, but does not replace the pod.
    pub(super) fn restarts_pod(&self, file: &ResourceId) -> bool {
        self.kept.get(file).is_some_and(|kept| kept.restarts_pod)
    }
}
