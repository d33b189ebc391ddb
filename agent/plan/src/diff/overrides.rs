//! Units that an operator masks or overrides. Such a unit stays unchanged, and the plan reports it. If the machine cannot be a node without
//! the unit, the report says what to do.

use super::meaning::is_same_unit;
use super::observed::{Observed, ObservedState, ObservedUnit, Override};
use super::removals::{Keeping, Kept};
use super::step::{CONTAINER_RUNTIME, KUBELET};
use crate::resource::{DesiredState, Resource, Unit};

/// The units that an operator masks or overrides, in the order of the desired state. They stay unchanged.
pub(super) fn kept(desired: &DesiredState, observed: &ObservedState) -> Vec<Kept> {
    let units = desired.iter().filter_map(|(id, resource)| match (resource, observed.get(id)) {
        (Resource::Unit(unit), Some(Observed::Unit(present))) => {
            let (why, keeping) = keep(unit, present)?;
            Some(Kept { resource: id.clone(), why, keeping })
        }
        _ => None,
    });
    units.collect()
}

fn keep(unit: &Unit, present: &ObservedUnit) -> Option<(String, Keeping)> {
    let name = &unit.name;
    match present.overridden.as_ref()? {
        Override::Masked(path) if is_needed(unit) && !present.running => Some((
            format!(
                "it is masked ({path}), but the node cannot work without it; run `systemctl unmask {name}`, and converge \
                 again"
            ),
            Keeping::Unmended,
        )),
        Override::Masked(path) => Some((
            format!(
                "it is masked ({path}), so kops-agent does not write or start it; `systemctl unmask {name}` removes the mask"
            ),
            Keeping::Left,
        )),
        // The agent has no text for a unit of the distribution. So an override of such a unit is not reported.
        Override::Unit(path) => {
            let desired = unit.text.as_deref()?;
            let is_same = present.text.as_deref().is_some_and(|text| is_same_unit(text, desired));
            let what = if is_same && *path == present.path { return None } else { &present.path };
            Some((
                format!(
                    "{path} overrides {what}, and does not belong to kops-agent; use a drop-in instead \
                     (`systemctl edit {name}`), so that changes of the cluster still take effect"
                ),
                Keeping::Left,
            ))
        }
    }
}

fn is_needed(unit: &Unit) -> bool {
    unit.running && matches!(unit.name.as_str(), CONTAINER_RUNTIME | KUBELET)
}

impl ObservedUnit {
    /// Whether an operator has masked the unit, so that systemd never starts it.
    pub(super) fn is_masked(&self) -> bool {
        matches!(self.overridden, Some(Override::Masked(_)))
    }

    /// Whether the operator's override is at the path of the unit's file, so that the agent cannot write its file there.
    pub(super) fn has_no_place(&self) -> bool {
        self.overridden.as_ref().is_some_and(|overridden| overridden.path() == self.path)
    }
}
