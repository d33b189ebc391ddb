//! The stage of static pods, one after another.
//!
//! kubelet starts a pod anew whose file has changed. One that has merely read what has changed is started anew by ending
//! its containers. Either is stamped with the digest of what it has mounted once it is well, as units are.

use kops_agent_plan::diff::{Step, mounted, mounted_digest};
use kops_agent_plan::health::{self, Check};
use kops_agent_plan::resource::{File, Resource};

use super::{Run, Steps};
use crate::error::Result;
use crate::host::Host;
use crate::stamps::Stamp;

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
            self.host.end_containers(&manifest.path, &texts)?;
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

impl Host {
    /// Ends the containers of the static pod of a file, for kubelet to start them anew.
    pub(crate) fn end_containers(&self, manifest: &str, texts: health::Texts<'_>) -> Result<()> {
        let Some(component) = health::of_manifest(manifest, texts) else { return Ok(()) };
        component.checks.iter().try_for_each(|check| match check {
            Check::Pod { pod, socket } => self.pods.end_containers(pod, socket),
            _ => Ok(()),
        })
    }
}
