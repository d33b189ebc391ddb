//! Everything that a node must have, with one description for each resource.

use std::collections::{BTreeMap, BTreeSet};

use super::{ArchiveKind, Content, Kind, Resource, ResourceId};
use crate::unit_files::drop_in_of;

/// A resource has two different descriptions. The node could get either of them, so this is an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{id} has two different descriptions; if a fileAsset or hook uses the name of a resource of kOps, rename or remove it"
)]
pub struct Conflict {
    pub id: ResourceId,
}

/// Everything that a node must have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredState {
    resources: BTreeMap<ResourceId, Resource>,
    conflicts: Vec<Conflict>,
    data_folders: BTreeSet<String>,
    assumed_archives: BTreeMap<String, ArchiveKind>,
}

impl DesiredState {
    /// Records a directory in which a component keeps data that the agent does not write. An empty path is
    /// ignored.
    pub fn keeps_data_in(&mut self, folder: &str) {
        if !folder.is_empty() {
            self.data_folders.insert(folder.to_owned());
        }
    }

    /// The directories in which components keep data, as the spec spells them.
    pub fn data_folders(&self) -> &BTreeSet<String> {
        &self.data_folders
    }

    /// Records that the file list of an archive is only an assumption. `archive` is the SHA-256 of the archive.
    pub fn assumes_files_of(&mut self, archive: &str, kind: ArchiveKind) {
        self.assumed_archives.insert(archive.to_owned(), kind);
    }

    /// The archives whose file list is an assumption, by their SHA-256.
    pub fn assumed_archives(&self) -> &BTreeMap<String, ArchiveKind> {
        &self.assumed_archives
    }

    /// The archive members that files of this state use. `archive` is the SHA-256 of the archive.
    pub fn members_of(&self, archive: &str) -> BTreeSet<&str> {
        let assets = self.resources.values().filter_map(|resource| match resource {
            Resource::File(file) => match &file.content {
                Content::Asset(asset) => Some(asset),
                _ => None,
            },
            _ => None,
        });
        let of_archive = assets.filter(|asset| asset.sha256.as_deref() == Some(archive));
        of_archive.filter_map(|asset| asset.member.as_deref()).collect()
    }

    /// Adds a resource. An equal second description of a resource is accepted. If the descriptions differ, the first stays and
    /// [`DesiredState::checked`] reports the conflict.
    pub fn add(&mut self, resource: impl Into<Resource>) {
        let resource = resource.into();
        let id = resource.id();
        match self.resources.get(&id) {
            // A user may add a resource exactly as kOps adds it. Only the marking of free text may differ.
            Some(present) if present.clone().without_free_text() != resource.clone().without_free_text() => {
                self.conflicts.push(Conflict { id });
            }
            Some(_) => {}
            None => {
                self.resources.insert(id, resource);
            }
        }
    }

    /// Replaces the text of a unit, if the state has this unit.
    pub fn replace_unit_text(&mut self, unit: &str, text: String) {
        if let Some(Resource::Unit(unit)) = self.resources.get_mut(&ResourceId::new(Kind::Unit, unit)) {
            unit.text = Some(text);
        }
    }

    /// Makes every unit restart if one of its drop-ins changes.
    pub(crate) fn restart_by_drop_ins(&mut self) {
        let drop_ins: Vec<ResourceId> =
            self.resources.keys().filter(|id| drop_in_of(id).is_some()).cloned().collect();
        for id in drop_ins {
            let unit = drop_in_of(&id).map(|unit| ResourceId::new(Kind::Unit, unit));
            if let Some(Resource::Unit(unit)) = unit.and_then(|unit| self.resources.get_mut(&unit))
                && !unit.restarted_by.contains(&id)
            {
                unit.restarted_by.push(id);
            }
        }
    }

    /// Returns the state if it has no conflicts. If it has conflicts, returns all of them, in the order in which they arose.
    pub fn checked(self) -> Result<DesiredState, Vec<Conflict>> {
        if self.conflicts.is_empty() { Ok(self) } else { Err(self.conflicts) }
    }

    /// A copy of the state without the marks of free text, so that outputs show the whole text of every resource.
    #[must_use]
    pub fn without_free_text(self) -> DesiredState {
        let resources = self.resources.into_iter().map(|(id, resource)| (id, resource.without_free_text()));
        DesiredState { resources: resources.collect(), ..self }
    }

    pub fn get(&self, id: &ResourceId) -> Option<&Resource> {
        self.resources.get(id)
    }

    /// Every resource, ordered by kind and name.
    pub fn iter(&self) -> impl Iterator<Item = (&ResourceId, &Resource)> {
        self.resources.iter()
    }

    pub fn len(&self) -> usize {
        self.resources.len()
    }

    pub fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }
}
