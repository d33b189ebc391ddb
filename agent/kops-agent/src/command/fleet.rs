//! `kops-agent fleet`: how the nodes of a cluster are, shown of all and told by one.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kops_agent_controller::fleet;

use crate::cli::{FleetCommand, FleetTellArgs};
use crate::exit;
use crate::node::condition::{self, Compared};
use crate::node::{machine, pacing};

/// Between two tries. It is short because `reset` takes away what the next one needs, and that is how the wait ends then.
const PAUSE: Duration = Duration::from_secs(2);

/// Does what is asked of them.
pub(super) async fn run(command: &FleetCommand) -> Result<u8> {
    match command {
        FleetCommand::Status(args) => Box::pin(fleet::status(args)).await,
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
        // What others changed can be seen without the store; what is wanted cannot.
        let is_changed = !machine::open(&args.root)?.drift()?.is_empty();
        let compared = if is_changed { Compared::Differs } else { Compared::AsLeft };
        let untold = match condition::tell_once(&args.root, compared).await? {
            Ok(node) => {
                log::info!("the Node {node} says how this machine is");
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
