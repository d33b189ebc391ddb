//! Checks the API server of this machine.

use kops_agent_cluster::pacing::API_SERVER_MANIFEST;
use kops_agent_plan::health::{self, Check};

use crate::host::Host;
use crate::places::present_texts;

impl Host {
    /// Whether the API server of this machine answers at the URL that kubelet probes. `None` if the machine has no
    /// API server, or if its manifest has no probe.
    pub async fn api_server_answers(&self) -> Option<bool> {
        let component = health::of_manifest(API_SERVER_MANIFEST, &present_texts(&self.root))?;
        let mut answers = None;
        for check in component.checks.iter().filter(|check| matches!(check, Check::Answers { .. })) {
            answers = Some(self.health.ask(check).await.is_ok() && answers.unwrap_or(true));
        }
        answers
    }
}
