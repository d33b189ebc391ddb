//! Watches the Nodes of a cluster for a program that shows them.

use std::pin::pin;
use std::time::Duration;

use anyhow::Result;
use tokio::time::{Instant, sleep_until};

use kops_agent_cluster::fleet::SeenNode;
use kops_agent_kube::node_api::Nodes;
use kops_agent_kube::node_watch::{LIST_TIMEOUT, NodeWatch, Watched};
use kops_agent_process::stop;
use kops_agent_spec::failure::{Failure, Kind};

use super::nodes;

/// The shortest time between two calls of `show`. A rolling update changes many Nodes at once, so `show` must not run
/// for each change.
const PAUSE: Duration = Duration::from_secs(1);

/// Passes all Nodes to `show` at first and after changes, until a signal arrives or `show` returns `false`. Fails if the
/// first list of Nodes fails. Later failures are retried.
pub async fn until_stopped(nodes: Nodes, mut show: impl FnMut(Vec<SeenNode>) -> Result<bool>) -> Result<()> {
    let mut stopped = pin!(stop::signal_received()?);
    let mut watch = NodeWatch::new(nodes.api(), LIST_TIMEOUT);
    let mut seen = Watched::new(nodes::seen);
    let (mut is_due, mut not_before) = (false, Instant::now());
    loop {
        tokio::select! {
            _ = &mut stopped => return Ok(()),
            event = watch.next() => match event {
                Some(Ok(event)) => is_due |= seen.apply(event),
                Some(Err(failure)) if seen.is_complete => log::warn!("{failure}; trying again"),
                Some(Err(failure)) => return Err(failure.into()),
                None => return Err(Failure::new(Kind::Ended, "the watch of Nodes ended").into()),
            },
            () = sleep_until(not_before), if is_due => {
                if !show(seen.nodes.values().cloned().collect())? {
                    return Ok(());
                }
                (is_due, not_before) = (false, Instant::now() + PAUSE);
            }
        }
    }
}
