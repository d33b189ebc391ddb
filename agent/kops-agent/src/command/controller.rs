//! `kops-agent controller`: runs control-plane mode, or checks whether it can take over from kOps' kops-controller.

mod once;
mod takeover;

use anyhow::Result;

use kops_agent_process::exit;

use crate::cli::{ControllerArgs, ControllerCommand};

pub(super) async fn run(args: &ControllerArgs) -> Result<u8> {
    match &args.command {
        Some(ControllerCommand::Takeover(args)) => Box::pin(takeover::run(args)).await,
        None if args.once => {
            match Box::pin(kops_agent_controller::label_once(&args.options(), args.dry_run)).await? {
                Some(found) => once::print(&found),
                // A signal ended the command before it had a result.
                None => Ok(exit::FAILED),
            }
        }
        None => Box::pin(kops_agent_controller::run(&args.options())).await,
    }
}
