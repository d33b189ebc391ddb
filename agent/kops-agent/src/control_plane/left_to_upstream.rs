//! Control-plane mode where kOps' own kops-controller has to stay: it holds no Lease, labels no Nodes, and leaves the port of
//! the bootstrap server to upstream's process, which ends for good where another has it.
//!
//! The process stays, so that the service of the machine is not a failed one, says why, and looks at its configuration: once
//! nothing is left to upstream any more it ends, to be started anew as one that works.

use std::sync::Arc;

use anyhow::Result;

use crate::cli::ControllerArgs;
use crate::{exit, service_manager};

use super::changed_files::{LOOKED_AT_EVERY, Watched};
use super::health::{self, Health};
use super::metrics::Metrics;

/// Does nothing until the configuration is another, or this is asked to stop, for the reason `why`.
///
/// # Errors
/// If its probes cannot be answered.
pub async fn stand_by(
    args: &ControllerArgs,
    files: &mut Watched,
    stopped: &mut (impl Future<Output = &'static str> + Unpin),
    why: &str,
) -> Result<u8> {
    log::warn!(
        "{why}; the Lease, the Nodes' labels and the port of the bootstrap server are left to kOps' kops-controller, and \
         nothing is done here"
    );
    let status = format!("doing nothing, all is left to kOps' kops-controller: {why}");
    let probes = async {
        let listener = health::listen(&args.health_listen).await?;
        health::serve(listener, Arc::new(StandingBy), Arc::new(Metrics::new().registry(false))).await
    };
    service_manager::serving(&status);
    tokio::select! {
        signal = stopped => log::info!("stopping, because {signal} came"),
        file = super::changed_for_good(files, args, LOOKED_AT_EVERY) => log::info!(
            "stopping, because {} has changed: its supervisor, systemd say, starts it anew with it",
            file.display()
        ),
        never = service_manager::go_on_serving(&status) => match never {},
        result = probes => match result? {},
    }
    Ok(exit::CONVERGED)
}

/// There is nothing that it could fail at.
struct StandingBy;

impl Health for StandingBy {
    fn live(&self) -> Result<(), String> {
        Ok(())
    }

    fn ready(&self) -> Result<(), String> {
        Ok(())
    }
}
