//! The first sight of a machine that works: what runs is taken for having read what is there.
//!
//! Nothing is noted about a machine that nodeup made. Without this every unit and static pod would be restarted, because
//! it might have been started before an earlier change. nodeup restarts what it changes itself
//! (upup/pkg/fi/nodeup/nodetasks/service.go, `SmartRestart`), so that what runs has read what it left.

use super::observed::{Observed, ObservedState};
use super::pods::mounted_digest;
use super::units::restart_digest;
use crate::resource::{DesiredState, Resource, ResourceId};

/// Something that runs, and the digest of what it has read.
pub type Started = (ResourceId, String);

/// Has each unit that runs, and each static pod that is there, be one that was started with what was observed, unless it
/// is known with what it was. Says of which that was.
pub fn take_as_started(desired: &DesiredState, observed: &mut ObservedState) -> Vec<Started> {
    let started: Vec<Started> = desired
        .iter()
        .filter_map(|(id, resource)| {
            let digest = match (resource, observed.get(id)?) {
                (Resource::Unit(unit), Observed::Unit(present))
                    if present.running && present.stamp.is_none() =>
                {
                    restart_digest(unit, observed)
                }
                (Resource::File(manifest), Observed::File(present)) if present.pod_mounted.is_none() => {
                    mounted_digest(manifest, desired, observed)
                }
                _ => None,
            };
            Some((id.clone(), digest?))
        })
        .collect();
    for (id, digest) in &started {
        match observed.get_mut(id) {
            Some(Observed::Unit(present)) => present.stamp = Some(digest.clone()),
            Some(Observed::File(present)) => present.pod_mounted = Some(digest.clone()),
            _ => {}
        }
    }
    started
}
