//! The first sight of a machine that works: what of it runs with what is there, and what runs since before that was
//! changed.
//!
//! Nothing is noted about a machine that nodeup made, or of which the record was lost. A unit or static pod whose processes
//! are younger than every file that they read counts as up to date, or all of them would be restarted; one that is older than
//! one of these files is restarted, as by nodeup's own rule (upup/pkg/fi/nodeup/nodetasks/service.go, `SmartRestart`), which
//! knows fewer files.
//!
//! Times tell less than digests do, and what they cannot tell restarts nothing: where it is not known when a process was
//! started, and where a file is from the future, as after a clock was set back.

use std::collections::{BTreeMap, BTreeSet};

use super::observed::{Observed, ObservedState};
use super::pods::{mounted, mounted_digest};
use super::units::restart_digest;
use crate::resource::{DesiredState, File, Resource, ResourceId, Unit};
use crate::unit_files::drop_in_of;

/// Something that runs, and the digest of what it has read.
pub type Started = (ResourceId, String);

/// When what is on a machine was written, and when what runs there was started; all in microseconds since 1970, by one
/// clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Now.
    pub now: u64,
    /// When files were last written and links made, the files of units among them.
    pub written: BTreeMap<ResourceId, u64>,
    /// When the processes of units and static pods (by their manifests) were started. A unit without processes, as a
    /// slice, is not in it, nor is one of which it is not known.
    pub started: BTreeMap<ResourceId, u64>,
    /// Units of which a file was changed since systemd read it.
    pub unread: BTreeSet<ResourceId>,
}

/// What runs on a machine that is seen for the first time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirstSight {
    /// What runs with what is there.
    pub current: Vec<Started>,
    /// What is to be restarted, and the file that it has not read.
    pub outdated: Vec<(ResourceId, ResourceId)>,
}

/// Has each unit that runs, and each static pod that is there, be one that was started with what was observed, unless it
/// is known with what it was, or was started before something that it reads was changed.
pub fn take_as_started(desired: &DesiredState, observed: &mut ObservedState, times: &Times) -> FirstSight {
    let mut sight = FirstSight::default();
    for (id, resource) in desired.iter() {
        let (digest, unread) = match (resource, observed.get(id)) {
            (Resource::Unit(unit), Some(Observed::Unit(present)))
                if present.running && present.stamp.is_none() =>
            {
                (restart_digest(unit, observed), unread_by_unit(unit, times))
            }
            (Resource::File(manifest), Some(Observed::File(present))) if present.pod_mounted.is_none() => {
                (mounted_digest(manifest, desired, observed), unread_by_pod(manifest, desired, times))
            }
            _ => continue,
        };
        match (digest, unread) {
            (Some(_), Some(unread)) => sight.outdated.push((id.clone(), unread)),
            (Some(digest), None) => sight.current.push((id.clone(), digest)),
            (None, _) => {}
        }
    }
    for (id, digest) in &sight.current {
        match observed.get_mut(id) {
            Some(Observed::Unit(present)) => present.stamp = Some(digest.clone()),
            Some(Observed::File(present)) => present.pod_mounted = Some(digest.clone()),
            _ => {}
        }
    }
    sight
}

/// What a unit reads and its processes have not read.
fn unread_by_unit(unit: &Unit, times: &Times) -> Option<ResourceId> {
    let own = Resource::from(unit.clone()).id();
    let started = *times.started.get(&own)?;
    // The file of a unit that the distribution brings is none of the agent's; drop-ins to it may be.
    let of_systemd = unit.text.is_some().then_some(&own);
    let mut read = unit.restarted_by.iter().chain(of_systemd);
    if times.unread.contains(&own) {
        let is_of_systemd = |id: &&ResourceId| **id == own || drop_in_of(id) == Some(unit.name.as_str());
        if let Some(unread) = read.clone().find(is_of_systemd) {
            return Some(unread.clone());
        }
    }
    read.find(|id| times.is_newer(id, started)).cloned()
}

/// What a static pod has mounted and its containers have not read.
fn unread_by_pod(manifest: &File, desired: &DesiredState, times: &Times) -> Option<ResourceId> {
    let started = *times.started.get(&Resource::from(manifest.clone()).id())?;
    mounted(manifest, desired).into_iter().map(|(id, _)| id).find(|id| times.is_newer(id, started)).cloned()
}

impl Times {
    fn is_newer(&self, id: &ResourceId, started: u64) -> bool {
        self.written.get(id).is_some_and(|written| (started + 1..=self.now).contains(written))
    }
}
