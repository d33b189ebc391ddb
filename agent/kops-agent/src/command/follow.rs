//! `kops-agent fleet follow`: carries out the orders of rollouts to this machine until a signal comes.

use std::pin::pin;

use anyhow::Result;
use kops_agent_node::follow;
use kops_agent_process::{exit, service_manager, stop};

use crate::cli::FleetFollowArgs;

const WAITING: &str = "waiting for a rollout";

pub(super) async fn run(args: &FleetFollowArgs) -> Result<u8> {
    let mut stopped = pin!(stop::signal_received()?);
    if args.check {
        follow::check(&args.root).await?;
        return Ok(exit::CONVERGED);
    }
    service_manager::serving(WAITING);
    tokio::select! {
        signal = &mut stopped => {
            log::info!("stopping because of {signal}");
            Ok(exit::CONVERGED)
        }
        () = follow::until_replaced(&args.conf, &args.root) => {
            log::info!(
                "another version of kops-agent is installed; this process ends, so that systemd starts the \
                 new version"
            );
            Ok(exit::CONVERGED)
        }
        never = service_manager::go_on_serving(WAITING) => match never {},
    }
}
