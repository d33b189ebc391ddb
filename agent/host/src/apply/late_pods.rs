//! Static pods that are held back, on a machine that is no node yet, until its API server answers
//! ([`kops_agent_plan::late_pods`] says which and why). Their images are pulled meanwhile.
//!
//! All else is done by then. A run that ends while it waits leaves a machine that the next one takes up as it was left.

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

/// Between two questions to the API server.
const PAUSE: Duration = Duration::from_millis(200);
/// Between two looks at which images there are, each of which starts a program.
const PAUSE_FOR_IMAGES: Duration = Duration::from_secs(1);

impl Run<'_> {
    /// Whether a step is held back until the API server answers.
    pub(super) fn is_late(&self, step: &Step) -> bool {
        self.late.manifests.contains(&step.resource)
    }

    /// Writes the files that were held back, once the API server answers or its time is over.
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

    /// Whether an API server may come: not where no pod runs, or none before this run has ended, or an image is missing that the
    /// API server's may be.
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
        // A pull that is under way goes on as kubelet's, from what containerd has of it.
        let answers = async {
            tokio::select! {
                () = self.api_server_answers() => {}
                () = pulling => {}
            }
        };
        if timeout(limit, answers).await.is_err() {
            self.progress.warned(&format!(
                "the API server of this machine has not answered within {} s; the controller manager and the scheduler are \
                 started all the same, and end until it does",
                limit.as_secs()
            ));
        }
    }

    async fn api_server_answers(&self) {
        while self.host.api_server_answers().await == Some(false) {
            sleep(PAUSE).await;
        }
    }

    /// Pulls the images of the pods that are held back, once kubelet has those that are needed first. What cannot be pulled, kubelet
    /// pulls, which may have credentials for it.
    async fn pull_meanwhile(&self) {
        let (tether, _leash) = Tether::new(self.host.waits.api_server);
        for image in self.missing_images().await {
            if let Err(error) = self.host.pull(&image, &tether).await {
                log::debug!("the image {image} is left to kubelet: {error}");
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
                Err(error) => log::debug!("the images of this machine are not known: {error}"),
            }
            sleep(PAUSE_FOR_IMAGES).await;
        }
    }
}
