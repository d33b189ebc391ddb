//! `kops-agent fleet`: shows the status of a cluster's nodes and the changes that wait for them, and reports the status of
//! this node.

mod plan;
mod reboot;
mod rollout;
mod status;
mod upgrade;
mod watching;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;

use kops_agent_node::condition;
use kops_agent_node::{machine, pacing};
use kops_agent_process::exit;
use kops_agent_spec::failure::{Failure, Kind};

use super::follow;
use crate::cli::{FleetCommand, FleetTellArgs};

pub(super) async fn run(command: &FleetCommand) -> Result<u8> {
    match command {
        FleetCommand::Plan(args) => Box::pin(plan::run(args)).await,
        FleetCommand::Status(args) => Box::pin(status::run(args)).await,
        FleetCommand::Rollout { command } => Box::pin(rollout::run(command)).await,
        FleetCommand::Reboot(args) => Box::pin(reboot::run(args)).await,
        FleetCommand::Upgrade(args) => Box::pin(upgrade::run(args)).await,
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
    let node = condition::tell_within(&args.root, Duration::from_secs(args.timeout)).await?;
    log::info!("the condition KopsConfigured of the Node {node} is up to date");
    Ok(exit::CONVERGED)
}

/// Fails if a group in `groups` has no Node. `of_nodes` has the groups of all Nodes.
fn must_exist(groups: &[String], of_nodes: &BTreeSet<String>) -> Result<()> {
    let Some(unknown) = groups.iter().find(|group| !of_nodes.contains(*group)) else { return Ok(()) };
    let known = of_nodes.iter().cloned().collect::<Vec<_>>().join(", ");
    let problem = format!("no Node has the instance group {unknown:?}; the groups of the Nodes are: {known}");
    Err(Failure::new(Kind::NoSuchName, problem).into())
}
