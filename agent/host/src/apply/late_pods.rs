//! Static pods that are delayed on a new machine until its API server answers ([`kops_agent_plan::late_pods`] decides
//! which). Meanwhile their images are pulled.
//!
//! The run does everything else before this wait. If the run ends during the wait, the next run continues from there.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use kops_agent_plan::diff::{KUBELET, Stage, Step};
use kops_agent_plan::resource::{Kind, Resource};
use kops_agent_plan::timeline::Work;
use tokio::time::{sleep, timeout};

use super::run::Run;
use crate::error::Result;
use crate::prepare::find;
use crate::system::apart::apart;
use crate::system::images::Tether;

/// The pause between two requests to the API server.
const PAUSE: Duration = Duration::from_millis(200);
/// The pause between two listings of images. It is longer than [`PAUSE`], because each listing starts a program.
const PAUSE_FOR_IMAGES: Duration = Duration::from_secs(1);

impl Run<'_> {
    /// Whether a step is delayed until the API server answers.
    pub(super) fn is_late(&self, step: &Step) -> bool {
        self.late.manifests.contains(&step.resource)
    }

    /// Writes the delayed manifests once the API server answers or the timeout is over.
    pub(super) async fn late_pods(&self) -> Result<()> {
        if self.late.manifests.is_empty() {
            return Ok(());
        }
        if self.can_have_an_api_server() {
            self.wait_for_api_server().await;
        }
        let steps: Vec<(&Step, &Resource)> = self
            .plan
            .stage(Stage::Pods)
            .filter(|step| self.is_late(step))
            .map(|step| Ok((step, find(self.desired, &step.resource)?)))
            .collect::<Result<_>>()?;
        self.pods(&steps).await
    }

    /// Whether the API server can start during this run. It cannot start if pods cannot run, or if kubelet starts only after this run. It
    /// also cannot start if an image is missing, because the missing image may be the API server's.
    fn can_have_an_api_server(&self) -> bool {
        self.starts.fatal_failures().is_none()
            && self.starts.failed(Kind::Image).is_empty()
            && !self.starts.is_left(KUBELET)
    }

    async fn wait_for_api_server(&self) {
        let limit = self.host.waits.api_server;
        self.progress.serving(
            "the node runs; its controller manager and scheduler are started once the API server answers",
        );
        let _step = self.host.measure(Work::Units, "until the API server answers");
        let pulling = async {
            self.pull_meanwhile().await;
            pending().await
        };
        // If this pull is interrupted, no layer is lost: kubelet continues the pull with the layers in containerd.
        let answers = async {
            tokio::select! {
                () = self.api_server_answers() => {}
                () = pulling => {}
            }
        };
        if timeout(limit, answers).await.is_err() {
            self.progress.warned(&format!(
                "the API server of this machine has not answered within {} s; the controller manager and the scheduler start \
                 anyway, and restart until it answers",
                limit.as_secs()
            ));
        }
    }

    async fn api_server_answers(&self) {
        while self.host.api_server_answers().await == Some(false) {
            sleep(PAUSE).await;
        }
    }

    /// Pulls the images of the delayed pods after the images that kubelet needs first. If a pull fails, kubelet pulls the image later,
    /// possibly with credentials.
    async fn pull_meanwhile(&self) {
        let (tether, _leash) = Tether::new(self.host.waits.api_server);
        for image in self.missing_images().await {
            if let Err(error) = self.host.pull(&image, &tether).await {
                log::debug!("kubelet pulls the image {image} later, because this run cannot: {error}");
            }
        }
    }

    async fn missing_images(&self) -> BTreeSet<String> {
        loop {
            let images = Arc::clone(&self.host.images);
            match apart("looking for images", move || images.references()).await {
                Ok(present) if self.late.images_before.is_subset(&present) => {
                    return self.late.images.difference(&present).cloned().collect();
                }
                Ok(_) => {}
                Err(error) => log::debug!("cannot list the images of this machine: {error}"),
            }
            sleep(PAUSE_FOR_IMAGES).await;
        }
    }
}
