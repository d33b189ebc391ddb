//! The stage of images: none that is missing keeps kubelet, or anything else of a machine that is to become a node, from
//! being started. Each has its time; what fails is told in the end, and is tried again. A node that works is not changed
//! before the images that the change brings along are loaded.
//!
//! Upstream's kubelet waits for the images that are loaded from archives, for as long as it takes, and not for those that
//! are pulled (`GetDependencies` in upup/pkg/fi/nodeup/nodetasks/service.go). Here it waits for the former while they
//! come, and for none that does not.

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
use crate::prepare::{Prepared, find};
use crate::stamps::Stamp;
use crate::system::apart::apart;
use crate::system::images::Tether;
use crate::system::systemd::UnitState;

/// Whether a plan changes more of a node than to start what does not run.
pub(super) fn changes_components(plan: &Plan) -> bool {
    let is_changed = |step: &Step| !is_merely_started(plan, &step.resource);
    plan.stage(Stage::Pods).next().is_some() || plan.stage(Stage::Services).any(is_changed)
}

impl Run<'_> {
    /// Loads the images that come in archives, before kubelet starts.
    pub(super) async fn load_images(&self) -> Result<()> {
        let mut is_late = false;
        for (step, image) in self.images(|image| !image.sources.is_empty()).await? {
            let limit = if is_late { self.host.waits.others } else { self.host.waits.image };
            let since = Instant::now();
            self.progress.applying(step);
            if self.loaded.contains(&image.name) {
                continue;
            }
            if let Err(error) = self.host.load_archive(self.prepared, image, limit).await {
                is_late |= since.elapsed() >= limit;
                self.starts.note(&step.resource, &error);
            }
        }
        Ok(())
    }

    /// Pulls the others, once everything that is to run does.
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

    /// Those that the plan has, once the container runtime is there to take them; none where it does not come.
    async fn images(&self, which: impl Fn(&Image) -> bool) -> Result<Vec<(&Step, &Image)>> {
        let mut found = Vec::new();
        for step in self.plan.stage(Stage::Images).filter(|step| step.action != Action::Remove) {
            if let Resource::Image(image) = find(self.desired, &step.resource)?
                && which(image)
            {
                found.push((step, image));
            }
        }
        // They are asked for again by the next run.
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
    /// Loads the images of archives before anything of a node that works is changed, whose pods may need them then: one
    /// that cannot be loaded ends the run while all is as it was. Where the container runtime does not run they have to
    /// wait until it does. Gives the names of those that are loaded.
    ///
    /// # Errors
    /// One cannot be loaded.
    pub(super) async fn load_ahead(
        &self,
        plan: &Plan,
        desired: &DesiredState,
        prepared: &Prepared<'_>,
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
            self.load_archive(prepared, image, self.waits.image).await.map_err(|error| Error::Path {
                doing: "load",
                path: format!("the image {}, without which this node is not changed", image.name),
                reason: error.to_string(),
            })?;
            loaded.insert(image.name.clone());
        }
        Ok(loaded)
    }

    /// Pulls an image by the name that containerd has it by, for as long as the tether holds.
    pub(super) async fn pull(&self, name: &str, tether: &Tether) -> Result<()> {
        let (images, name, tether) = (Arc::clone(&self.images), name.to_owned(), tether.clone());
        apart("pulling an image", move || images.pull(&name, &tether)).await
    }

    async fn load_archive(&self, prepared: &Prepared<'_>, image: &Image, limit: Duration) -> Result<()> {
        let Image { name, sha256, .. } = image;
        if let Some(why) = prepared.undelivered.get(sha256) {
            return Err(Error::Path {
                doing: "load",
                path: format!("the image {name}"),
                reason: why.to_string(),
            });
        }
        let (file, url) = prepared.open(sha256)?;
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
