//! Restarts the components of a working node one after another. A component restarts only when the component before
//! it is healthy.

use kops_agent_plan::diff::{Change, KUBELET, Plan, Stage, Step};
use kops_agent_plan::health::{self, Component};
use kops_agent_plan::resource::{Kind, Resource, ResourceId};
use kops_agent_plan::timeline::Work;

use super::run::Run;
use super::starts::is_merely_started;
use crate::error::{Error, Result};
use crate::health_wait::Expected;
use crate::rollback::Journal;

impl Run<'_> {
    /// Records that a component is about to restart.
    pub(super) fn note_begun(&self, component: &ResourceId) -> Result<()> {
        let Some(changing) = &self.changing else { return Ok(()) };
        match changing.journal().as_mut() {
            Some(journal) => journal.begin(&self.host.root, component),
            None => Ok(()),
        }
    }

    /// Waits until the component that a step restarted is healthy.
    pub(super) async fn wait_after(&self, step: &Step) -> Result<()> {
        if self.changing.is_none() {
            return Ok(());
        }
        let texts = |path: &str| health::desired_text(self.desired, path);
        let Some(component) = health::after(step, &texts) else { return Ok(()) };
        // kubelet does not run yet, so it cannot start this static pod now. `end_change` waits for the pod.
        if step.stage == Stage::Pods && starts(self.plan, KUBELET) {
            return Ok(());
        }
        self.wait_for(&component).await
    }

    async fn wait_for(&self, component: &Component) -> Result<()> {
        let Some(changing) = &self.changing else { return Ok(()) };
        let id = &component.resource;
        if changing.unhealthy.contains(id) {
            return Ok(());
        }
        let before =
            changing.journal().as_ref().and_then(|journal| journal.pod_before(id).map(str::to_owned));
        self.progress.waiting(id);
        let _step = self.host.measure(Work::Units, format!("until {id} is healthy"));
        let expected = before.as_deref().map_or(Expected::Any, Expected::Other);
        self.host.wait_until_healthy(component, expected).await?;
        changing.waited.lock().insert(id.clone());
        Ok(())
    }

    /// Waits for changed components that the run has not found healthy yet, for example after an interrupted run. Then ends the change, so
    /// that it can no longer be rolled back.
    pub(super) async fn end_change(&self) -> Result<()> {
        let Some(changing) = &self.changing else { return Ok(()) };
        let begun = changing.journal().as_ref().map_or(vec![], |journal| journal.begun().to_vec());
        let texts = |path: &str| health::desired_text(self.desired, path);
        for id in begun {
            let is_waited_for = changing.waited.lock().contains(&id);
            let component = match self.desired.get(&id) {
                _ if is_waited_for => None,
                // The run does not wait for three kinds of units: units that pods do not need, failed units, and units that systemd starts
                // later. The run reports them at its end.
                Some(Resource::Unit(unit))
                    if !self.starts.is_awaited(&unit.name)
                        || self.starts.has_failed(&unit.name)
                        || self.starts.is_left(&unit.name) =>
                {
                    None
                }
                Some(Resource::Unit(unit)) if unit.running => Some(health::of_unit(&unit.name, &texts)),
                Some(Resource::File(_)) => health::of_manifest(&id.name, &texts),
                _ => None,
            };
            if let Some(component) = component {
                self.wait_for(&component).await?;
            }
        }
        if changing.journal().take().is_some() {
            Journal::end(&self.host.root)?;
        }
        Ok(())
    }

    /// Takes the journal if this error requires a rollback.
    pub(super) fn journal_to_roll_back(&self, error: &Error) -> Option<Journal> {
        let Error::Unhealthy { resource, .. } = error else { return None };
        // A plan that only starts a stopped unit does not cause the failure of the unit, and a rollback does not help.
        if resource.kind == Kind::Unit && is_merely_started(self.plan, resource) {
            return None;
        }
        self.changing.as_ref()?.journal().take()
    }
}

/// Whether a plan starts a unit that does not run.
fn starts(plan: &Plan, unit: &str) -> bool {
    let step = plan.step(&ResourceId::new(Kind::Unit, unit));
    step.is_some_and(|step| step.changes.iter().any(|change| matches!(change, Change::Start)))
}
