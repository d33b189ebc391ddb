//! The first sight of a machine that works: what of it runs with what is there, and what runs since before that was
//! changed.
//!
//! Nothing is noted about a machine that nodeup made, or of which the record was lost. A unit or static pod whose processes
//! are younger than every file that they read counts as up to date, or all of them would be restarted; one that is older than
//! one of these files is restarted, as by nodeup's own rule (upup/pkg/fi/nodeup/nodetasks/service.go, `SmartRestart`), which
//! knows fewer files. A certificate that nodeup has issued anew since then restarts nothing as long as the one that was loaded
//! is not due to be renewed ([`super::reading`]); its age is told by the oldest text that nodeup has written.
//!
//! Times tell less than digests do, and what they cannot tell restarts nothing: where it is not known when a process was
//! started, and where a file is from the future, as after a clock was set back.

use std::collections::{BTreeMap, BTreeSet};

use super::observed::{Observed, ObservedState};
use super::pods::{mounted, reading as pod_reading};
use super::reading::{Reading, serves};
use super::units::reading as unit_reading;
use crate::resource::{Content, DesiredState, Resource, ResourceId, Unit};
use crate::unit_files::drop_in_of;

/// Something that runs, and what it has read.
pub type Started = (ResourceId, Reading);

/// When what is on a machine was written, and when what runs there was started; all in microseconds since 1970, by one
/// clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
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
    let first = times.first(desired);
    for (id, resource) in desired.iter() {
        let started = times.started.get(id).copied();
        let (reading, unread) = match (resource, observed.get(id)) {
            (Resource::Unit(unit), Some(Observed::Unit(present)))
                if present.running && present.stamp.is_none() =>
            {
                // The file of a unit that the distribution brings is none of the agent's; drop-ins to it may be.
                let of_systemd = unit.text.is_some().then_some(id);
                let read: Vec<&ResourceId> = unit.restarted_by.iter().chain(of_systemd).collect();
                let unread = started.map(|started| match unread_by_systemd(unit, &read, times) {
                    Some(unread) => Unread::Changed(unread.clone()),
                    None => unread_since(started, first, &read, observed, times),
                });
                (unit_reading(unit, observed), unread)
            }
            (Resource::File(manifest), Some(Observed::File(present))) if present.pod_mounted.is_none() => {
                let read: Vec<&ResourceId> =
                    mounted(manifest, desired).into_iter().map(|(id, _)| id).collect();
                let unread = started.map(|started| unread_since(started, first, &read, observed, times));
                (pod_reading(manifest, desired, observed), unread)
            }
            _ => continue,
        };
        let Some(reading) = reading else { continue };
        match unread.unwrap_or(Unread::Nothing) {
            Unread::Changed(unread) => sight.outdated.push((id.clone(), unread)),
            Unread::Reissued { due } => sight.current.push((id.clone(), reading.of_earlier_bytes(due))),
            Unread::Nothing => sight.current.push((id.clone(), reading)),
        }
    }
    for (id, reading) in &sight.current {
        match observed.get_mut(id) {
            Some(Observed::Unit(present)) => present.stamp = Some(reading.clone()),
            Some(Observed::File(present)) => present.pod_mounted = Some(reading.clone()),
            _ => {}
        }
    }
    sight
}

/// What processes have not read of what is there.
enum Unread {
    /// Nothing, as far as can be told.
    Nothing,
    /// Certificates alone, which were issued anew: those that the processes have loaded serve as well until they are due,
    /// in seconds since 1970.
    Reissued {
        due: u64,
    },
    Changed(ResourceId),
}

/// A file of a unit, or a drop-in to it, that systemd has not read.
fn unread_by_systemd<'a>(unit: &Unit, read: &[&'a ResourceId], times: &Times) -> Option<&'a ResourceId> {
    let own = Resource::from(unit.clone()).id();
    let is_of_systemd = |id: &&&ResourceId| **id == &own || drop_in_of(id) == Some(unit.name.as_str());
    times.unread.contains(&own).then(|| read.iter().find(is_of_systemd).copied()).flatten()
}

/// What processes that were started at a time have not read of `read`. The certificates that they have loaded were issued
/// by an earlier run of the same program, which gives all the same time to live, and not before its `first`.
fn unread_since(
    started: u64,
    first: Option<u64>,
    read: &[&ResourceId],
    observed: &ObservedState,
    times: &Times,
) -> Unread {
    let mut loaded_is_due: Option<u64> = None;
    for id in read.iter().copied().filter(|id| times.is_newer(id, started)) {
        let written = times.written.get(id).copied().unwrap_or_default();
        let Some(due) = serves(observed.get(id)).and_then(|serves| serves.due) else {
            return Unread::Changed(id.clone());
        };
        let lives = due.saturating_mul(MICROS_PER_SECOND).saturating_sub(written);
        let due = first.unwrap_or(started).min(started).saturating_add(lives) / MICROS_PER_SECOND;
        if due.saturating_mul(MICROS_PER_SECOND) <= times.now {
            return Unread::Changed(id.clone());
        }
        loaded_is_due = Some(loaded_is_due.map_or(due, |known| known.min(due)));
    }
    loaded_is_due.map_or(Unread::Nothing, |due| Unread::Reissued { due })
}

const MICROS_PER_SECOND: u64 = 1_000_000;

impl Times {
    /// When the first text was written that is still there: no text is written again that has not changed, so the program
    /// that made this machine a node has not run before.
    fn first(&self, desired: &DesiredState) -> Option<u64> {
        let is_text = |id: &ResourceId| match desired.get(id) {
            Some(Resource::File(file)) => matches!(file.content, Content::Text(_)),
            Some(Resource::Unit(unit)) => unit.text.is_some(),
            _ => false,
        };
        self.written.iter().filter(|(id, _)| is_text(id)).map(|(_, written)| *written).min()
    }

    fn is_newer(&self, id: &ResourceId, started: u64) -> bool {
        self.written.get(id).is_some_and(|written| (started + 1..=self.now).contains(written))
    }
}
