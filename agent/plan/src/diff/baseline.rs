//! Decides which units and static pods are up to date on a working machine that the agent has no record of. A unit or static pod is up to
//! date if it runs with the present files, and outdated if it started before a file changed.
//!
//! The agent has no record if nodeup made the machine, or if the record was lost. A unit or static pod counts as up to date if its
//! processes are younger than all files that they read. Without this rule the first run would restart everything. If its processes are
//! older than one of these files, the unit or static pod is restarted. nodeup has a similar rule for fewer files
//! (upup/pkg/fi/nodeup/nodetasks/service.go, `SmartRestart`).
//!
//! A certificate that nodeup has issued anew restarts nothing while the loaded certificate is not due for renewal ([`super::reading`]).
//! The loaded certificate cannot be older than the oldest text that nodeup wrote.
//!
//! Times are less reliable than digests, so a doubtful time restarts nothing. A time is doubtful if a process has no known start, or if a
//! file is from the future, as after the clock was set back.

use std::collections::{BTreeMap, BTreeSet};

use super::observed::{Observed, ObservedState};
use super::pods::{mounted, reading as pod_reading};
use super::reading::{Reading, serves};
use super::units::reading as unit_reading;
use crate::resource::{Content, DesiredState, Resource, ResourceId, Unit};
use crate::unit_files::drop_in_of;

/// A unit or static pod that runs, and the contents that it has read.
pub type Started = (ResourceId, Reading);

/// The write times of files and the start times of processes on a machine, in microseconds since 1970. One clock measures all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    pub now: u64,
    /// The last write of files and links, including unit files.
    pub written: BTreeMap<ResourceId, u64>,
    /// The start times of units and static pods. The key of a static pod is its manifest. A unit is missing if it has no processes, like a
    /// slice, or if its start time is unknown.
    pub started: BTreeMap<ResourceId, u64>,
    /// Units with a file that has changed since systemd read it.
    pub unread: BTreeSet<ResourceId>,
}

/// The units and static pods that run on a machine where the agent has no record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirstSight {
    /// Units and static pods that run with the present files.
    pub current: Vec<Started>,
    /// Units and static pods to restart, each with a file that has changed since the unit or pod read it.
    pub outdated: Vec<(ResourceId, ResourceId)>,
}

/// Records that each running unit and each present static pod has read the observed files. Skips units and pods whose reading is already
/// recorded, and units and pods with a file that has changed since their start.
pub fn take_as_started(desired: &DesiredState, observed: &mut ObservedState, times: &Times) -> FirstSight {
    let mut sight = FirstSight::default();
    let first = times.first(desired);
    for (id, resource) in desired.iter() {
        let started = times.started.get(id).copied();
        let (reading, unread) = match (resource, observed.get(id)) {
            (Resource::Unit(unit), Some(Observed::Unit(present)))
                if present.running && present.stamp.is_none() =>
            {
                // If the distribution includes the unit, the agent does not write the unit's file. It may write drop-ins for the unit.
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

/// The files that have changed since the processes of a unit or pod read them.
enum Unread {
    /// No file was written after the processes started.
    Nothing,
    /// Only newly issued certificates are unread. `due` is the renewal time of the loaded certificates, in seconds since 1970.
    Reissued {
        due: u64,
    },
    Changed(ResourceId),
}

/// A file or drop-in of the unit that has changed since systemd read it.
fn unread_by_systemd<'a>(unit: &Unit, read: &[&'a ResourceId], times: &Times) -> Option<&'a ResourceId> {
    let own = Resource::from(unit.clone()).id();
    let is_of_systemd = |id: &&&ResourceId| **id == &own || drop_in_of(id) == Some(unit.name.as_str());
    times.unread.contains(&own).then(|| read.iter().find(is_of_systemd).copied()).flatten()
}

/// Compares the write times of the files in `read` with `started`, the start time of the processes that read them. If only certificates
/// were written after `started`, the result has an estimated renewal time of the loaded certificates. The estimate assumes that the loaded
/// certificates have the same lifetime as the present certificates, and were issued at `first` or later.
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
    /// The write time of the oldest text file or unit file on the machine. nodeup and the agent rewrite a text only if it changes. So
    /// neither of them ran before that time.
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
