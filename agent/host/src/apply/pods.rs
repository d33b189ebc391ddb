//! The stage of static pods, one after another.
//!
//! kubelet starts a pod anew whose file has changed. One that has merely read what has changed is started anew by ending
//! its containers. Either is stamped with the digest of what it has mounted once it is well, as units are.

use kops_agent_plan::diff::{Step, mounted, pod_reading};
use kops_agent_plan::health;
use kops_agent_plan::resource::{File, Resource};

use super::run::{Run, Steps};
use crate::error::Result;
use crate::stamps::Stamp;
use crate::system::pods::end_containers_of;

impl Run<'_> {
    /// Writes the files of static pods, or ends containers, and waits for each of them.
    pub(super) async fn pods(&self, steps: &Steps<'_>) -> Result<()> {
        for one in steps {
            let (step, resource) = one;
            self.note_begun(&step.resource)?;
            self.files(std::slice::from_ref(one))?;
            if let Resource::File(manifest) = resource
                && step.starts_pod()
            {
                self.pod(step, manifest).await?;
            }
        }
        Ok(())
    }

    async fn pod(&self, step: &Step, manifest: &File) -> Result<()> {
        let reading = self.reading_of(manifest)?;
        if step.restarts() {
            let texts = |path: &str| health::desired_text(self.desired, path);
            end_containers_of(&*self.host.pods, &manifest.path, &texts)?;
        }
        self.wait_after(step).await?;
        match reading {
            Some(reading) => Stamp::Pod.write(&self.host.root, &manifest.path, &reading),
            None => Ok(()),
        }
    }

    /// What a static pod reads when it is started now, as it is noted.
    fn reading_of(&self, manifest: &File) -> Result<Option<String>> {
        let mounted = mounted(manifest, self.desired).into_iter().map(|(_, resource)| resource);
        let found = self.found(mounted)?;
        Ok(pod_reading(manifest, self.desired, &found).map(|reading| reading.to_string()))
    }
}
