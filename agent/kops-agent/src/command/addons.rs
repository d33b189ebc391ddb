//! `kops-agent addons`: shows and applies a cluster's add-ons.

mod apply;
mod diff;
mod remove;
mod status;

use anyhow::Result;

use kops_agent_controller::addons;

use crate::cli::AddonsCommand;

pub(super) async fn run(command: &AddonsCommand) -> Result<u8> {
    match command {
        AddonsCommand::Status(args) => Box::pin(status::run(args)).await,
        AddonsCommand::Diff(args) => Box::pin(diff::run(args)).await,
        AddonsCommand::Apply(args) => Box::pin(apply::run(args)).await,
        AddonsCommand::Remove(args) => Box::pin(remove::run(args)).await,
        AddonsCommand::Run(args) => Box::pin(addons::run_service(&args.options()?)).await,
    }
}
