//! Decides the changes of a unit: its text, whether it starts at boot, and a restart when its files have changed.
//!
//! The agent records a [`Reading`] when it starts a unit, and compares it with the present files. So if an interrupted run left a restart
//! undone, the next run finds it.

use std::collections::BTreeSet;

use super::compare::{changes_of_access, set, written};
use super::meaning::is_same_unit;
use super::observed::{Access, Enablement, Observed, ObservedState, ObservedUnit};
use super::plan::Plan;
use super::reading::{Reading, must_be_read};
use super::step::{Action, Change, Step};
use crate::resource::{Resource, ResourceId, Unit};
use crate::shown::Text;
use crate::unit_files::drop_in_of;

/// The name of the property that a plan step changes if it moves a unit's file to the path that upstream uses.
pub const PATH: &str = "path";

/// The contents that `unit` would read if it started now, with its files as observed. `None` if the unit reads no files of the agent.
pub fn reading(unit: &Unit, observed: &ObservedState) -> Option<Reading> {
    if unit.text.is_none() && unit.restarted_by.is_empty() {
        return None;
    }
    let text = [text_in_force(unit, observed), unit.text.as_deref().unwrap_or_default()];
    let read: BTreeSet<&ResourceId> = unit.restarted_by.iter().collect();
    Some(Reading::new(Some(text), read.into_iter(), observed))
}

/// The unit's text after the plan has corrected its file: the present text if the file needs no change ([`is_right`]), or else the desired
/// text.
fn text_in_force<'a>(unit: &'a Unit, observed: &'a ObservedState) -> &'a str {
    // The agent does not manage the text of a distribution's unit.
    let Some(desired) = unit.text.as_deref() else { return "" };
    match observed.get(&Resource::from(unit.clone()).id()) {
        Some(Observed::Unit(present)) if is_right(unit, Some(present)) => {
            present.text.as_deref().unwrap_or(desired)
        }
        _ => desired,
    }
}

/// Whether the unit file needs no change.
fn is_right(unit: &Unit, present: Option<&ObservedUnit>) -> bool {
    let Some(desired) = unit.text.as_deref() else { return true };
    present.is_some_and(|present| {
        present.has_no_place()
            || match present.text.as_deref() {
                Some(text) => text == desired || (!present.edited && is_same_unit(text, desired)),
                None => false,
            }
    })
}

/// The changes for `unit`, given the steps that are already in `plan`. If pods need the unit (`is_awaited`), the run also waits for a start
/// of the unit that is in progress.
pub(super) fn changes(
    unit: &Unit,
    observed: &ObservedState,
    plan: &Plan,
    is_awaited: bool,
) -> Option<Vec<Change>> {
    let present = match observed.get(&Resource::from(unit.clone()).id()) {
        Some(Observed::Unit(present)) => Some(present),
        _ => None,
    };
    if present.is_some_and(ObservedUnit::is_masked) {
        return Some(vec![]);
    }
    let text = text_change(unit, present);
    let enablement = enablement_change(unit, present);
    let is_joined = is_awaited && unit.running && present.is_some_and(|present| present.starting);
    let state = state_change(unit, present, observed, plan, text.is_some())
        // Another start request joins the start in progress. A restart would cancel that start (systemctl(1)).
        .or(is_joined.then_some(Change::Start));
    let (enablement, state) = if unit.text_only { (None, None) } else { (enablement, state) };
    let access = access_changes(unit, present);
    let moved = present.and_then(|present| set(PATH, Some(present.path.clone()), present.belongs.clone()));
    let changes: Vec<Change> =
        access.into_iter().chain([text, moved, enablement, state].into_iter().flatten()).collect();
    // If the distribution's unit is missing and must not run, nothing changes.
    if present.is_none() && changes.is_empty() { None } else { Some(changes) }
}

fn text_change(unit: &Unit, present: Option<&ObservedUnit>) -> Option<Change> {
    let desired = unit.text.as_deref()?;
    let before = present.and_then(|present| present.text.as_deref()).unwrap_or_default();
    // The distribution decides the path of a new unit file, so the diff shows only the unit's name.
    let path = present.map_or(unit.name.as_str(), |present| present.path.as_str());
    let before = (before, present.and_then(|present| present.free_text.as_ref()));
    let after = Text { text: desired, free_text: unit.free_text.as_ref() };
    (!is_right(unit, present)).then(|| written(path, Some(before), after))
}

/// The changes after which only root may write a unit's file. Any other user who may write the file can run programs as root.
fn access_changes(unit: &Unit, present: Option<&ObservedUnit>) -> Vec<Change> {
    match present.filter(|_| unit.text.is_some()).and_then(|present| present.access.as_ref()) {
        Some(access) => changes_of_access(Some(access), Access::of_roots()),
        None => vec![],
    }
}

fn enablement_change(unit: &Unit, present: Option<&ObservedUnit>) -> Option<Change> {
    match (unit.enabled, present.map_or(Enablement::Disabled, |present| present.enablement)) {
        (true, Enablement::Disabled) => Some(Change::Enable),
        (false, Enablement::Enabled) => Some(Change::Disable),
        (true, Enablement::Enabled) | (false, Enablement::Disabled) | (_, Enablement::Static) => None,
    }
}

fn state_change(
    unit: &Unit,
    present: Option<&ObservedUnit>,
    observed: &ObservedState,
    plan: &Plan,
    text_changes: bool,
) -> Option<Change> {
    let runs = present.is_some_and(|present| present.running);
    match (unit.running, runs) {
        (true, false) => Some(Change::Start),
        (false, true) => Some(Change::Stop),
        (false, false) => None,
        (true, true) => {
            let mut because: Vec<ResourceId> =
                unit.restarted_by.iter().filter(|id| must_be_read(id, observed, plan)).cloned().collect();
            let removed = |step: &&Step| {
                step.action == Action::Remove && drop_in_of(&step.resource) == Some(unit.name.as_str())
            };
            because.extend(plan.steps.iter().filter(removed).map(|step| step.resource.clone()));
            let present_text = present.and_then(|present| present.text.as_deref()).unwrap_or_default();
            if text_changes && !is_same_unit(present_text, unit.text.as_deref().unwrap_or_default()) {
                because.push(Resource::from(unit.clone()).id());
            }
            because.sort();
            because.dedup();
            let noted = present.and_then(|present| present.stamp.as_ref());
            let is_stale =
                reading(unit, observed).is_some_and(|now| !noted.is_some_and(|noted| noted.serves_as(&now)));
            (is_stale || !because.is_empty()).then_some(Change::Restart { because })
        }
    }
}
