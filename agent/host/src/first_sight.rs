//! The first sight of a working machine: nodeup made the machine, or the record was lost. Components that match their
//! files are recorded, so that they are not restarted. Components older than their files are restarted
//! ([`take_as_started`] decides).

use kops_agent_plan::diff::{FirstSight, Observed, ObservedContent, ObservedState, Times, take_as_started};
use kops_agent_plan::health::{self, Check};
use kops_agent_plan::resource::{Content, DesiredState, Kind, Resource, ResourceId};

use crate::error::Result;
use crate::host::Host;
use crate::places::path_of;
use crate::places::present_texts;
use crate::recognition::origin;
use crate::record::Record;
use crate::stamps::Stamp;
use crate::system::clock::micros;

impl Host {
    /// Assumes that running components were started with the current files, unless the start times and the times of the files show the
    /// opposite. Does this only on a working machine on which no run has recorded a resource yet. Units that were started before the node's
    /// other resources were known do not count as recorded.
    pub(crate) fn baseline(&self, desired: &DesiredState, observed: &mut ObservedState) -> Result<()> {
        if self.record()?.is_first_sight() {
            let times = self.times(desired, observed)?;
            log_findings(&take_as_started(desired, observed, &times));
        }
        Ok(())
    }

    /// Records the assumptions of [`Host::baseline`] as stamps, before the run changes anything. If this run is interrupted, the next run
    /// makes the same assumptions. Returns true if systemd still has to reload the files of a desired unit.
    pub(crate) fn note_baseline(
        &self,
        record: &Record,
        desired: &DesiredState,
        mut observed: ObservedState,
    ) -> Result<bool> {
        if !record.is_first_sight() {
            return Ok(false);
        }
        let times = self.times(desired, &observed)?;
        for (id, value) in take_as_started(desired, &mut observed, &times).current {
            let stamp = if id.kind == Kind::Unit { Stamp::Unit } else { Stamp::Pod };
            stamp.write(&self.root, &id.name, &value.to_string())?;
        }
        for (id, resource) in desired.iter() {
            let (Resource::File(file), Some(Observed::File(present))) = (resource, observed.get(id)) else {
                continue;
            };
            if !file.on_change.is_empty()
                && let Some(ran_for) = &present.commands_ran_for
            {
                Stamp::Commands.write(&self.root, &file.path, ran_for)?;
            }
            if let (Content::Asset(_), ObservedContent::Member { archive, member }) =
                (&file.content, &present.content)
            {
                Stamp::Member.write(&self.root, &file.path, &origin(&present.sha256, archive, member))?;
            }
        }
        Ok(!times.unread.is_empty())
    }

    /// The times at which files were written and running components were started.
    fn times(&self, desired: &DesiredState, observed: &ObservedState) -> Result<Times> {
        let mut times = Times { now: micros(self.now().into()), ..Times::default() };
        let mut units: Vec<&str> = Vec::new();
        for (id, resource) in desired.iter() {
            match resource {
                Resource::Unit(_) => units.push(&id.name),
                Resource::File(_) | Resource::Symlink(_) => {}
                _ => continue,
            }
            if let Some(written) = self.root.modified(&path_of(&self.root, id))? {
                times.written.insert(id.clone(), micros(written));
            }
        }
        for (unit, state) in units.iter().zip(self.unit_states(&units)?) {
            let id = ResourceId::new(Kind::Unit, *unit);
            if state.unread {
                times.unread.insert(id.clone());
            }
            times.started.extend(state.started.map(|started| (id, micros(started))));
        }
        let pods = observed.iter().filter(|(id, found)| is_unknown_pod(id, found));
        times.started.extend(pods.filter_map(|(id, _)| Some((id.clone(), self.pod_started(id)?))));
        Ok(times)
    }

    /// The time at which the static pod of a manifest was started.
    fn pod_started(&self, id: &ResourceId) -> Option<u64> {
        let component = health::of_manifest(&id.name, &present_texts(&self.root))?;
        let started = component.checks.iter().find_map(|check| match check {
            Check::Pod { pod, socket } => Some(self.pods.started(pod, socket)),
            _ => None,
        })?;
        match started {
            Ok(started) => started.map(micros),
            Err(error) => {
                log::warn!("cannot tell whether the pod of {id} has read the files that it mounts: {error}");
                None
            }
        }
    }
}

fn is_unknown_pod(id: &ResourceId, found: &Observed) -> bool {
    health::is_manifest(&id.name) && matches!(found, Observed::File(file) if file.pod_mounted.is_none())
}

fn log_findings(sight: &FirstSight) {
    for (id, unread) in &sight.outdated {
        log::warn!("{id} was started before {unread} was changed, and needs a restart");
    }
}
