//! What the commands that change a machine share: how they pause between attempts, and how they are stopped.

use std::cell::Cell;
use std::future::Future;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use kops_agent_net::retry::Retries;
use kops_agent_process::stop;

use crate::node::machine::note_failure;
use crate::node::pacing;

/// Between two tries. nodeup waits for half a minute, always (cmd/nodeup/main.go): longer than a role takes to be known
/// everywhere, and far too often for a store that has what it has for hours.
pub(super) const RETRIES: Retries = Retries {
    deadline: Duration::MAX,
    attempt: Duration::MAX,
    first_pause: Duration::from_secs(5),
    // With its jitter, five minutes.
    longest_pause: Duration::from_secs(150),
};

/// Runs what changes a machine until it is done or is asked to stop; `status` tells of that.
pub(super) async fn until_stopped(root: &Path, run: impl Future<Output = Result<u8>>) -> Result<u8> {
    let stopped = stop::asked()?;
    tokio::select! {
        // Where a run could go on and is asked to stop, it stops.
        biased;
        signal = stopped => {
            let error = stop::stopped_by(signal);
            note_failure(root, &error);
            Err(error)
        }
        result = run => result,
    }
}

/// The same, and tells the cluster of a run that has come to its own end, or leaves the Node cordoned. That takes seconds, in which
/// a signal ends nothing any more and fails nothing: all is done.
pub(super) async fn until_stopped_or_told(
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
