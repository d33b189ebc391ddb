//! The stage of static pods, one after another.
//!
//! kubelet starts a pod anew whose file has changed. One that has merely read what has changed is started anew by ending
//! its containers. Either is stamped with the digest of what it has mounted once it is well, as units are.

use kops_agent_plan::diff::{Step, mounted, mounted_digest};
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
        let digest = self.digest_of_mounted(manifest)?;
        if step.restarts() {
            let texts = |path: &str| health::desired_text(self.desired, path);
            end_containers_of(&*self.host.pods, &manifest.path, &texts)?;
        }
        self.wait_after(step).await?;
        match digest {
            Some(digest) => Stamp::Pod.write(&self.host.root, &manifest.path, &digest),
            None => Ok(()),
        }
    }

    /// The digest of what a static pod finds mounted when it is started now.
    fn digest_of_mounted(&self, manifest: &File) -> Result<Option<String>> {
        let mounted = mounted(manifest, self.desired).into_iter().map(|(_, resource)| resource);
        Ok(mounted_digest(manifest, self.desired, &self.found(mounted)?))
    }
}
