//! Which downloads a machine has already, by the same comparison by which a converge tells what to fetch.

use std::collections::BTreeSet;

use kops_agent_plan::diff::diff;
use kops_agent_plan::resource::{Content, DesiredState, File, Resource, ResourceId};

use crate::error::Result;
use crate::host::Host;
use crate::secrets::NoSecrets;

impl Host {
    /// The files of downloads, and the images, that are not on this machine as they are desired. Changes nothing.
    ///
    /// # Errors
    /// Something cannot be looked at.
    pub fn undelivered(&self, desired: &DesiredState) -> Result<BTreeSet<ResourceId>> {
        let mut downloaded = DesiredState::default();
        let resources = desired.iter().map(|(_, resource)| resource);
        resources.filter(|resource| is_downloaded(resource)).for_each(|one| downloaded.add(one.clone()));
        // Nothing that is downloaded is secret.
        let plan = diff(&downloaded, &self.observe(&downloaded, &NoSecrets)?);
        let steps = plan.steps.into_iter().filter(|step| step.changes_content());
        Ok(steps.map(|step| step.resource).collect())
    }
}

/// What comes of a download.
fn is_downloaded(resource: &Resource) -> bool {
    matches!(resource, Resource::Image(_) | Resource::File(File { content: Content::Asset(_), .. }))
}
