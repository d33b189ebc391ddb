//! Finds the missing downloads of a machine, by the comparison that a run uses to decide what to fetch.

use std::collections::BTreeSet;

use kops_agent_host::{Host, NoSecrets, Result};
use kops_agent_plan::diff::diff;
use kops_agent_plan::resource::{Content, DesiredState, File, Resource, ResourceId};

/// The downloaded files and images that are missing on this machine, or whose content differs from the desired content.
/// Changes nothing.
pub(super) fn undelivered(host: &Host, desired: &DesiredState) -> Result<BTreeSet<ResourceId>> {
    let mut downloaded = DesiredState::default();
    let resources = desired.iter().map(|(_, resource)| resource);
    resources.filter(|resource| is_downloaded(resource)).for_each(|one| downloaded.add(one.clone()));
    // The comparison of downloads needs no secrets.
    let plan = diff(&downloaded, &host.observe(&downloaded, &NoSecrets)?);
    let steps = plan.steps.into_iter().filter(|step| step.changes_content());
    Ok(steps.map(|step| step.resource).collect())
}

fn is_downloaded(resource: &Resource) -> bool {
    matches!(resource, Resource::Image(_) | Resource::File(File { content: Content::Asset(_), .. }))
}
