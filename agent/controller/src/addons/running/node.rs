//! Labels this machine's Node as kOps' channels pod does, whether or not this process leads.
//!
//! Source: `BootstrapControlPlaneNodeLabels` in upstream's `channels/pkg/nodelabeler/labeler.go`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kops_agent_cluster::addons::AddonSettings;
use kops_agent_cluster::labels;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::time::sleep;

use super::backoff::pause;
use super::metrics::AddonMetrics;
use super::telling::Readiness;
use crate::addons::objects::COMPONENT;
use kops_agent_kube::api_error::answer;
use kops_agent_kube::events::{Events, Reason};

/// The field manager of kOps' own pod kops-channels.
const FIELD_MANAGER: &str = "kops-channels";

pub struct ThisNode {
    nodes: Api<Node>,
    settings: AddonSettings,
    /// The labels in the settings that the API server would reject, each with the reason.
    refused: Vec<String>,
    events: Events,
}

impl ThisNode {
    /// Prepares labelling of the Node that the settings name; `None` if they name no Node. Skips labels that the API server would
    /// reject.
    pub fn new(client: Client, settings: &AddonSettings) -> Option<ThisNode> {
        if settings.node_name.is_empty() {
            return None;
        }
        let mut settings = settings.clone();
        let refused = labels::retain_valid(&mut settings.node_labels);
        let events = Events::of_component(client.clone(), COMPONENT);
        Some(ThisNode { nodes: Api::all(client), settings, refused, events })
    }

    /// Labels the Node at each interval. After a failure, retries with a backoff of at most the interval.
    pub async fn keep(
        &self,
        interval: Duration,
        metrics: &AddonMetrics,
        readiness: &Arc<Readiness>,
    ) -> Infallible {
        let (mut failures, mut said) = (0, String::new());
        let left_out = self.refused.join("; ");
        if !left_out.is_empty() {
            log::warn!(
                "the Node {} does not get the invalid labels of the add-on settings: {left_out}",
                self.settings.node_name
            );
        }
        loop {
            if !left_out.is_empty() {
                self.events.warn(&self.settings.node_name, Reason::LabelsLeftOut, &left_out).await;
            }
            let problem = self.label().await.err();
            metrics.node_is_labelled.set(i64::from(problem.is_none()));
            let told = problem.as_ref().map(|problem| {
                format!(
                    "the Node {} does not have the labels of a control plane: {problem}",
                    self.settings.node_name
                )
            });
            readiness.labels(told.clone());
            let told = told.unwrap_or_default();
            if !told.is_empty() && told != said {
                log::warn!("{told}");
            }
            said = told;
            let until_next = match problem {
                None => interval,
                Some(_) => pause(failures, interval),
            };
            failures = if problem.is_some() { failures + 1 } else { 0 };
            sleep(until_next).await;
        }
    }

    /// Reads the Node once, and adds its missing labels.
    async fn label(&self) -> Result<(), String> {
        let name = &self.settings.node_name;
        let node = answer(self.nodes.get_metadata_opt(name)).await.map_err(|error| error.to_string())?;
        let node = node.ok_or("it does not exist")?;
        let missing = self.settings.missing_labels(&node.metadata.labels.unwrap_or_default());
        if missing.is_empty() {
            return Ok(());
        }
        let parameters =
            PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({ "metadata": { "labels": missing } }));
        answer(self.nodes.patch_metadata(name, &parameters, &patch))
            .await
            .map_err(|error| error.to_string())?;
        let labels: Vec<&str> = missing.keys().map(String::as_str).collect();
        log::info!("the Node {name} got the labels {}", labels.join(", "));
        Ok(())
    }
}
