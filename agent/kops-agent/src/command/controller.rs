//! `kops-agent controller`: runs control-plane mode, or checks whether it can take over from kOps' kops-controller.

use anyhow::Result;
use kops_agent_controller::takeover;

use crate::cli::{ControllerArgs, ControllerCommand};

pub(super) async fn run(args: &ControllerArgs) -> Result<u8> {
    match &args.command {
        Some(ControllerCommand::Takeover(takeover)) => Box::pin(takeover::check(takeover)).await,
        None => Box::pin(kops_agent_controller::run(args)).await,
    }
}
