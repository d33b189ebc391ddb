//! The stage of images. On a new machine, a missing image does not prevent the start of kubelet or of anything else.
//! Each image has a timeout. Failures are reported at the end and retried by the next run. A working node is changed
//! only after the images of the change are loaded.
//!
//! Upstream's kubelet waits without limit for images from archives, and not at all for pulled images
//! (`GetDependencies` in upup/pkg/fi/nodeup/nodetasks/service.go). Here, kubelet waits for images from archives until
//! they are loaded or fail.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::sync::Arc;
use std::time::Duration;

use flate2::bufread::MultiGzDecoder;
use kops_agent_plan::diff::{Action, CONTAINER_RUNTIME, Plan, Stage, Step};
use kops_agent_plan::resource::{DesiredState, Image, Resource};
use tokio::time::Instant;

use super::run::Run;
use super::starts::is_merely_started;
use crate::assets::Progress;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::prepare::{Inputs, find};
use crate::stamps::Stamp;
use crate::system::apart::apart;
use crate::system::images::Tether;
use crate::system::systemd::UnitState;

/// Whether a plan changes a component. The start of a stopped unit does not count as a change.
pub(super) fn changes_components(plan: &Plan) -> bool {
    let is_changed = |step: &Step| !is_merely_started(plan, &step.resource);
    plan.stage(Stage::Pods).next().is_some() || plan.stage(Stage::Services).any(is_changed)
}

impl Run<'_> {
    /// Loads the images from archives, before kubelet starts.
    pub(super) async fn load_images(&self) -> Result<()> {
        let mut is_late = false;
        for (step, image) in self.images(|image| !image.sources.is_empty()).await? {
            let limit = if is_late { self.host.waits.others } else { self.host.waits.image };
            let since = Instant::now();
            self.progress.applying(step);
            if self.loaded.contains(&image.name) {
                continue;
            }
            if let Err(error) = self.host.load_archive(&self.inputs, image, limit).await {
                is_late |= since.elapsed() >= limit;
                self.starts.note(&step.resource, &error);
            }
        }
        Ok(())
    }

    /// Pulls the images that are not from archives, after all units were started.
    pub(super) async fn pull_images(&self) -> Result<()> {
        for (step, image) in self.images(|image| image.sources.is_empty()).await? {
            self.progress.applying(step);
            let (tether, _leash) = Tether::new(self.host.waits.image);
            if let Err(error) = self.host.pull(&image.name, &tether).await {
                self.starts.note(&step.resource, &error);
            }
        }
        Ok(())
    }

    /// The planned images, once the container runtime is ready. Empty if it does not become ready.
    async fn images(&self, which: impl Fn(&Image) -> bool) -> Result<Vec<(&Step, &Image)>> {
        let mut found = Vec::new();
        for step in self.plan.stage(Stage::Images).filter(|step| step.action != Action::Remove) {
            if let Resource::Image(image) = find(self.desired, &step.resource)?
                && which(image)
            {
                found.push((step, image));
            }
        }
        // If the container runtime failed, the next run plans the images again.
        if found.is_empty() || self.starts.has_failed(CONTAINER_RUNTIME) {
            return Ok(vec![]);
        }
        let images = Arc::clone(&self.host.images);
        match apart("waiting for the container runtime", move || images.wait_until_ready()).await {
            Ok(()) => Ok(found),
            Err(error) => {
                found.iter().for_each(|(step, _)| self.starts.note(&step.resource, &error));
                Ok(vec![])
            }
        }
    }
}

impl Host {
    /// Loads the images from archives before the run changes a working node, because the node's pods may need the images after the change.
    /// If an image cannot be loaded, the run ends with the node unchanged. If the container runtime does not run, the images are loaded
    /// later. Returns the names of the loaded images.
    pub(super) async fn load_ahead(
        &self,
        plan: &Plan,
        desired: &DesiredState,
        inputs: &Inputs<'_>,
        progress: &dyn Progress,
    ) -> Result<BTreeSet<String>> {
        let mut loaded = BTreeSet::new();
        let runs = |state: &UnitState| state.running && !state.restarting;
        for step in plan.stage(Stage::Images).filter(|step| step.action != Action::Remove) {
            let Resource::Image(image) = find(desired, &step.resource)? else { continue };
            if image.sources.is_empty() {
                continue;
            }
            if loaded.is_empty() && !self.systemd.states(&[CONTAINER_RUNTIME])?.first().is_some_and(runs) {
                break;
            }
            progress.applying(step);
            self.load_archive(inputs, image, self.waits.image).await.map_err(|error| Error::Path {
                doing: "load",
                path: format!("the image {} before the change, so the node stays unchanged", image.name),
                reason: error.to_string(),
            })?;
            loaded.insert(image.name.clone());
        }
        Ok(loaded)
    }

    /// Pulls an image by its containerd name. The pull is killed at the deadline of `tether`, or when the `Leash` of `tether` is dropped.
    pub(super) async fn pull(&self, name: &str, tether: &Tether) -> Result<()> {
        let (images, name, tether) = (Arc::clone(&self.images), name.to_owned(), tether.clone());
        apart("pulling an image", move || images.pull(&name, &tether)).await
    }

    async fn load_archive(&self, inputs: &Inputs<'_>, image: &Image, limit: Duration) -> Result<()> {
        let Image { name, sha256, .. } = image;
        if let Some(why) = inputs.undelivered.get(sha256) {
            return Err(Error::Path {
                doing: "load",
                path: format!("the image {name}"),
                reason: why.to_string(),
            });
        }
        let (file, url) = inputs.open(sha256)?;
        let (images, archive, url) = (Arc::clone(&self.images), name.clone(), url.to_owned());
        let (tether, _leash) = Tether::new(limit);
        let load = move || {
            let mut bytes = BufReader::new(file);
            let beginning = bytes.fill_buf().map_err(|error| Error::path("read", url, error))?;
            match beginning.starts_with(&[0x1f, 0x8b]) {
                true => images.load(&archive, &mut MultiGzDecoder::new(bytes), &tether),
                false => images.load(&archive, &mut bytes, &tether),
            }
        };
        apart("loading an image", load).await?;
        Stamp::Image.write(&self.root, name, sha256)
    }
}
