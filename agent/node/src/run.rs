//! The runs of `converge` and `verify`, the pauses between their tries, and their reaction to stop signals.

pub mod converge;
pub mod verify;

use std::cell::Cell;
use std::future::Future;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use kops_agent_host::{Drift, Report};
use kops_agent_net::retry::Pauses;
use kops_agent_plan::diff::Plan;
use kops_agent_process::stop;

use super::machine::note_failure;
use super::pacing;

pub trait Printer {
    fn report(&self, report: &Report) -> Result<()>;

    /// Prints the drift, and the plan if the wanted state is known. `superseded` is the hash of the configuration that
    /// supersedes this machine's configuration, if there is one.
    fn verification(&self, changed: &[Drift], plan: Option<&Plan>, superseded: Option<&str>) -> Result<()>;
}

/// The pauses between two tries to converge, and between two tries to install the unit. nodeup always waits half a minute
/// (cmd/nodeup/main.go). The first pauses are shorter, because a new cloud role usually takes effect in less time. The
/// later pauses are longer, because a store may fail for hours. Jitter makes a pause up to twice as long, so the longest
/// pause is five minutes.
pub const PAUSES: Pauses = Pauses { first: Duration::from_secs(5), longest: Duration::from_secs(150) };

/// Runs `run` until it ends or the process is asked to stop. After a stop, `status` shows that the run was stopped.
async fn until_stopped(root: &Path, run: impl Future<Output = Result<u8>>) -> Result<u8> {
    let stopped = stop::signal_received()?;
    tokio::select! {
        // Handles a stop signal first, even if the run could also continue.
        biased;
        signal = stopped => {
            let error = stop::stopped_by(signal);
            note_failure(root, &error);
            Err(error)
        }
        result = run => result,
    }
}

/// Like `until_stopped`, but may then call `tell`, which takes some seconds to report to the cluster. Calls `tell` if the
/// run has ended by itself, or if the stopped run has left the Node cordoned. A stop signal during `tell` has no effect,
/// because the run is already over.
pub async fn until_stopped_or_told(
    root: &Path,
    run: impl Future<Output = Result<u8>>,
    tell: impl AsyncFnOnce(&Result<u8>),
) -> Result<u8> {
    let has_ended = Cell::new(false);
    let to_its_end = async {
        let outcome = run.await;
        has_ended.set(true);
        outcome
    };
    let outcome = until_stopped(root, to_its_end).await;
    if has_ended.get() || pacing::is_left_cordoned() {
        tell(&outcome).await;
    }
    outcome
}
