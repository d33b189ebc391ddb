//! `kops-agent addons`: shows and applies a cluster's add-ons.

use anyhow::Result;

use crate::cli::AddonsCommand;

pub(super) async fn run(command: &AddonsCommand) -> Result<u8> {
    Box::pin(kops_agent_controller::addons::run(command)).await
}
