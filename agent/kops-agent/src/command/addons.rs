//! `kops-agent addons`: a cluster's add-ons, looked at and applied.

use anyhow::Result;

use crate::cli::AddonsCommand;

/// Does what is asked of them.
pub(super) async fn run(command: &AddonsCommand) -> Result<u8> {
    Box::pin(kops_agent_controller::addons::run(command)).await
}
