//! Steps 6 and 7 of node mode: observes this machine, and compares it with the decided node.

use anyhow::{Context, Result};
use kops_agent_host::Host;
use kops_agent_plan::diff::{Observed, Plan, diff_with_owned, with_labels};
use kops_agent_plan::resource::{DesiredState, Kind};
use kops_agent_process::service_manager;

use super::decide::Decision;
use super::materials::Materials;

/// The changes that this machine needs.
pub fn plan(host: &Host, decision: &Decision) -> Result<Plan> {
    plan_with(host, decision, &decision.materials)
}

/// Like [`plan`], but the plan shows free text instead of hiding it.
pub fn plan_with_free_text(host: &Host, decision: &Decision) -> Result<Plan> {
    compared(host, &decision.desired.clone().without_free_text(), decision, &decision.materials, true)
}

/// The plan with the keys and secrets in `materials` instead of the decision's keys and secrets.
pub fn plan_with(host: &Host, decision: &Decision, materials: &Materials) -> Result<Plan> {
    compared(host, &decision.desired, decision, materials, false)
}

fn compared(
    host: &Host,
    desired: &DesiredState,
    decision: &Decision,
    materials: &Materials,
    shows_free_text: bool,
) -> Result<Plan> {
    service_manager::doing("observing this machine");
    let mut observed = host.observe(desired, materials).context("observing this machine")?;
    for (id, resource) in desired.iter().filter(|(id, _)| id.kind == Kind::Ipv6Prefix) {
        if !decision.ipv6_prefix.is_empty() {
            observed.insert(id.clone(), Observed::Resource(resource.clone()));
        }
    }
    if shows_free_text {
        observed.values_mut().for_each(Observed::show_free_text);
    }
    let owned = host.owned_beside(desired).context("observing the resources that earlier runs left")?;
    let labels = host.wrong_labels(desired).context("observing the SELinux labels of this machine")?;
    let adoptable = host.adoptable(desired).context("observing the resources that kops-agent may adopt")?;
    let plan = diff_with_owned(desired, &observed, &owned).adopting(adoptable);
    Ok(with_labels(plan, &labels))
}
