//! `kops-agent controller`: control-plane mode, and whether it can take over from kOps' kops-controller.

use anyhow::Result;
use kops_agent_controller::takeover;

use crate::cli::{ControllerArgs, ControllerCommand};

/// Serves until it is stopped, or says whether it can take over.
pub(super) async fn run(args: &ControllerArgs) -> Result<u8> {
    match &args.command {
        Some(ControllerCommand::Takeover(takeover)) => Box::pin(takeover::check(takeover)).await,
        None => Box::pin(kops_agent_controller::run(args)).await,
    }
}
