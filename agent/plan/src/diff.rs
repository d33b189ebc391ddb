//! Computes the difference between the desired and the observed state of a machine, as a value.
//!
//! `kops-agent plan` shows a [`Plan`], and `agent/host` applies it. A plan is empty if there is nothing to do. A plan contains no secrets:
//! for a file with secrets, a step shows only that the content differs.

mod baseline;
mod compare;
mod labels;
pub mod meaning;
mod observed;
mod order;
mod overrides;
mod plan;
mod pods;
mod reading;
mod removals;
mod renewal;
mod renumbered;
pub(crate) mod step;
pub mod text;
mod units;
mod unknown;

#[cfg(test)]
mod properties;

use crate::resource::{DesiredState, Kind, Resource, ResourceId};
use order::Order;

pub use baseline::{FirstSight, Started, Times, take_as_started};
pub use labels::{WrongLabel, WrongLabels, with_labels};
pub use observed::{
    Access, Enablement, Observed, ObservedCertificate, ObservedContent, ObservedFile, ObservedState,
    ObservedUnit, Override, Serves,
};
pub use order::awaited_units;
pub use plan::{Count, Plan, Summary};
pub use pods::{mounted, reading as pod_reading};
pub use reading::Reading;
pub use removals::{Keeping, Kept, Owned, OwnedNow, OwnedState};
pub use renewal::{Interrupted, renewal};
pub use step::{Action, CONTAINER_RUNTIME, Change, KUBELET, Stage, Step};
pub use units::{PATH, reading as unit_reading};

/// The plan that changes a machine from `observed` to `desired`.
///
/// Every desired resource that differs has exactly one step. Resources that are not desired stay. [`diff_with_owned`] also removes such
/// resources if the agent itself made them.
pub fn diff(desired: &DesiredState, observed: &ObservedState) -> Plan {
    diff_after(vec![], desired, observed)
}

/// Like [`diff`], but the plan begins with these steps.
fn diff_after(steps: Vec<Step>, desired: &DesiredState, observed: &ObservedState) -> Plan {
    let mut plan = Plan { steps, kept: unknown::kept(desired, observed), ..Plan::default() };
    plan.kept.extend(overrides::kept(desired, observed));
    let order = Order::new(desired);
    let awaited = awaited_units(desired);
    let (files, started): (Vec<_>, Vec<_>) = desired.iter().partition(|(id, _)| !is_started(id));
    for (id, resource) in files.into_iter().chain(started) {
        let changes = match resource {
            Resource::Unit(unit) => units::changes(unit, observed, &plan, awaited.contains(&unit.name)),
            _ => changes(resource, desired, observed, &plan),
        };
        push(&mut plan, order.stage(id), id, observed.contains_key(id), changes);
    }
    plan.kept.extend(reading::kept(desired, observed, &plan));
    plan.steps.sort_by(|a, b| order.position(&a.resource).cmp(&order.position(&b.resource)));
    plan
}

/// Whether the resource is a unit or a static pod. Both read files when they start, so the plan handles those files first.
fn is_started(id: &ResourceId) -> bool {
    id.kind == Kind::Unit || Stage::from_resource(id) == Stage::Pods
}

/// The changes for a resource that is not a unit. `None` if the resource needs no step.
fn changes(
    resource: &Resource,
    desired: &DesiredState,
    observed: &ObservedState,
    plan: &Plan,
) -> Option<Vec<Change>> {
    let present = observed.get(&resource.id()).map(|present| renumbered::as_left(present, plan));
    let mut changes = compare::changes(resource, present.as_deref(), &|certificate| {
        plan.step(&ResourceId::new(Kind::Certificate, certificate)).is_some()
    })?;
    // If the plan writes the manifest, kubelet itself restarts the pod.
    let is_written = changes.iter().any(Change::writes);
    if let (Resource::File(file), false) = (resource, is_written) {
        changes.extend(pods::restart(file, desired, observed, plan));
    }
    Some(changes)
}

/// Like [`diff`], and also removes resources that the agent made earlier and that are no longer desired.
pub fn diff_with_owned(desired: &DesiredState, observed: &ObservedState, owned: &OwnedState) -> Plan {
    let (steps, kept) = removals::removals(desired, owned);
    let (before, last): (Vec<_>, Vec<_>) = steps.into_iter().partition(|step| step.stage < Stage::Removals);
    let mut plan = diff_after(before, desired, observed);
    plan.steps.extend(last);
    plan.kept.splice(0..0, kept);
    plan
}

/// Adds a step, unless the resource exists and does not change.
fn push(plan: &mut Plan, stage: Stage, id: &ResourceId, is_there: bool, changes: Option<Vec<Change>>) {
    let Some(changes) = changes else { return };
    let action = match changes.as_slice() {
        _ if !is_there => Action::Create,
        [] => return,
        [Change::Restart { .. }] => Action::Restart,
        _ => Action::Change,
    };
    plan.steps.push(Step { stage, resource: id.clone(), action, changes });
}
