//! The stage of static pods, one after another.
//!
//! kubelet restarts a pod if its manifest changes. If only files that a pod reads have changed, the run ends the pod's
//! containers and kubelet restarts them. Once the pod is healthy, the run stamps it with the digest of the files that
//! it mounts, as it stamps units.

use kops_agent_plan::diff::{Step, mounted, pod_reading};
use kops_agent_plan::health;
use kops_agent_plan::resource::{File, Resource};

use super::run::{Run, Steps};
use crate::error::Result;
use crate::stamps::Stamp;
use crate::system::pods::end_containers_of;

impl Run<'_> {
    /// Writes the manifests of static pods, or restarts their containers, and waits for each pod.
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

    /// The digest of the files that a static pod would read if the pod started now. The digest is recorded after the pod has
    /// started.
    fn reading_of(&self, manifest: &File) -> Result<Option<String>> {
        let mounted = mounted(manifest, self.desired).into_iter().map(|(_, resource)| resource);
        let found = self.found(mounted)?;
        Ok(pod_reading(manifest, self.desired, &found).map(|reading| reading.to_string()))
    }
}
