//! Everything a node must have, each thing once.

use std::collections::{BTreeMap, BTreeSet};

use super::{ArchiveKind, Content, Kind, Resource, ResourceId};
use crate::unit_files::drop_in_of;

/// Two different descriptions of the same resource: which of them a node would get is chance, so neither is taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{id} is described twice, and differently; a fileAsset or hook may name what kOps itself manages: rename or remove it"
)]
pub struct Conflict {
    pub id: ResourceId,
}

/// Everything a node must have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredState {
    resources: BTreeMap<ResourceId, Resource>,
    conflicts: Vec<Conflict>,
    data_folders: BTreeSet<String>,
    assumed_archives: BTreeMap<String, ArchiveKind>,
}

impl DesiredState {
    /// Notes a folder in which a component keeps data that the agent does not write. An empty path is none.
    pub fn keeps_data_in(&mut self, folder: &str) {
        if !folder.is_empty() {
            self.data_folders.insert(folder.to_owned());
        }
    }

    /// The folders in which components keep data, as the spec writes them.
    pub fn data_folders(&self) -> &BTreeSet<String> {
        &self.data_folders
    }

    /// Notes that it is assumed which files the archive of this SHA-256 has.
    pub fn assumes_files_of(&mut self, archive: &str, kind: ArchiveKind) {
        self.assumed_archives.insert(archive.to_owned(), kind);
    }

    /// The archives of which it is assumed which files they have, by their SHA-256.
    pub fn assumed_archives(&self) -> &BTreeMap<String, ArchiveKind> {
        &self.assumed_archives
    }

    /// The members that are wanted of an archive.
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

    /// Adds a resource. The same resource twice is fine as long as both say the same; otherwise the
    /// first stays and [`DesiredState::checked`] reports the conflict.
    pub fn add(&mut self, resource: impl Into<Resource>) {
        let resource = resource.into();
        let id = resource.id();
        match self.resources.get(&id) {
            // A user may add just what kOps itself has a node have.
            Some(present) if present.clone().without_free_text() != resource.clone().without_free_text() => {
                self.conflicts.push(Conflict { id });
            }
            Some(_) => {}
            None => {
                self.resources.insert(id, resource);
            }
        }
    }

    /// Has every unit restarted by its drop-ins, too.
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

    /// The state, if nothing in it was described twice.
    ///
    /// # Errors
    /// Every conflict, in the order in which it arose.
    pub fn checked(self) -> Result<DesiredState, Vec<Conflict>> {
        if self.conflicts.is_empty() { Ok(self) } else { Err(self.conflicts) }
    }

    /// The same state, in which nothing is hidden that users wrote themselves.
    #[must_use]
    pub fn without_free_text(self) -> DesiredState {
        let resources = self.resources.into_iter().map(|(id, resource)| (id, resource.without_free_text()));
        DesiredState { resources: resources.collect(), ..self }
    }

    /// The resource of this id.
    pub fn get(&self, id: &ResourceId) -> Option<&Resource> {
        self.resources.get(id)
    }

    /// Every resource, ordered by kind and name.
    pub fn iter(&self) -> impl Iterator<Item = (&ResourceId, &Resource)> {
        self.resources.iter()
    }

    /// How many resources there are.
    pub fn len(&self) -> usize {
        self.resources.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }
}
