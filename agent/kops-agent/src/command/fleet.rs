//! `kops-agent fleet`: shows the status of a cluster's nodes and the changes that wait for them, and reports the status of
//! this node.

mod plan;
mod reboot;
mod rollout;
mod status;
mod table;
mod watching;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use kops_agent_node::condition::{self, Compared};
use kops_agent_node::exit;
use kops_agent_node::{machine, pacing};

use super::follow;
use crate::cli::{FleetCommand, FleetTellArgs};

/// The pause between two tries. It is short because the wait ends when `reset` removes the files that the next try
/// needs.
const PAUSE: Duration = Duration::from_secs(2);

pub(super) async fn run(command: &FleetCommand) -> Result<u8> {
    match command {
        FleetCommand::Plan(args) => Box::pin(plan::run(args)).await,
        FleetCommand::Status(args) => Box::pin(status::run(args)).await,
        FleetCommand::Rollout { command } => Box::pin(rollout::run(command)).await,
        FleetCommand::Reboot(args) => Box::pin(reboot::run(args)).await,
        FleetCommand::Follow(args) => Box::pin(follow::run(args)).await,
        FleetCommand::Tell(args) if args.only_uncordon => {
            machine::must_exist(&args.root)?;
            Box::pin(pacing::uncordon_once_alone(&args.root, Duration::from_secs(args.timeout))).await?;
            Ok(exit::CONVERGED)
        }
        FleetCommand::Tell(args) => Box::pin(tell(args)).await,
    }
}

async fn tell(args: &FleetTellArgs) -> Result<u8> {
    machine::must_exist(&args.root)?;
    let begun = Instant::now();
    loop {
        // Drift is visible without the store. Differences from the wanted state are not, so this report leaves them
        // out.
        let is_changed = !machine::open(&args.root)?.drift()?.is_empty();
        let compared = if is_changed { Compared::Differs } else { Compared::AsLeft };
        let untold = match condition::tell_once(&args.root, compared).await? {
            Ok(node) => {
                log::info!("the condition KopsConfigured of the Node {node} is up to date");
                return Ok(exit::CONVERGED);
            }
            Err(untold) => untold,
        };
        if !untold.may_pass() || begun.elapsed() >= Duration::from_secs(args.timeout) {
            return Err(untold).context(condition::TELLING);
        }
        log::debug!("trying again: {untold}");
        tokio::time::sleep(PAUSE).await;
    }
}
