//! Pacing: before a run restarts kubelet, the container runtime, the API server or etcd on a node that works, it takes a slot of
//! its group and, if asked, drains the node; after that it takes both back. A machine that boots or joins does neither, nor does
//! a run that restarts nothing of that (`docs/pacing.md`).
//!
//! Which changes these are is decided in `kops_agent_plan::pacing`. A run that is killed leaves a slot that ends by itself, and a
//! cordon that what systemd runs beside it takes back, or else the next run or `fleet tell`.

mod drain;
mod not_paced;
mod slot;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use kops_agent_controller::fleet::OwnNode;
use kops_agent_host::Host;
use kops_agent_plan::diff::Plan;
use kops_agent_plan::pacing::{restarted, shown_group};
use tokio::time::sleep;

use super::decide::Decision;
use super::machine;
use super::options::RunOptions;
use crate::known::error_text;
use drain::Drained;
use slot::Slot;

pub use not_paced::NotPaced;

/// Between two tries to uncordon what a run has left.
const PAUSE: Duration = Duration::from_secs(2);

/// Whether a run ended because a change was not begun that would have disrupted a working node.
pub fn is_not_paced(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<NotPaced>())
}

/// What a run has to give back.
pub struct Paced {
    slot: Option<Slot>,
    drained: Option<Drained>,
}

/// What of a working node a plan restarts, in words; `None` where it is nothing, or this is no node that works.
fn disrupts(root: &Path, host: &Host, plan: &Plan) -> Result<Option<String>> {
    // Of a scratch root nothing runs.
    if root != Path::new("/") {
        return Ok(None);
    }
    let restarted = restarted(plan);
    let words = || restarted.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    Ok((!restarted.is_empty() && host.runs_kubelet()?).then(words))
}

/// What `plan` tells of it.
///
/// # Errors
/// systemd does not say whether kubelet runs.
pub fn foretold(root: &Path, host: &Host, decision: &Decision, plan: &Plan) -> Result<Option<String>> {
    let group = shown_group(&decision.desired, &decision.names[1]);
    let restarted = disrupts(root, host, plan)?;
    Ok(restarted.map(|restarted| {
        format!("This run takes a slot of the group {group} first, to restart {restarted}.")
    }))
}

/// Takes a slot and drains the node, where that is asked for and the plan is such a change; `None` where neither was done.
///
/// # Errors
/// There is no slot, or pods do not leave.
pub async fn begin(
    options: &RunOptions,
    host: &Host,
    decision: &Decision,
    plan: &Plan,
) -> Result<Option<Paced>> {
    let pacing = options.pacing;
    let Some(restarted) = disrupts(&options.root, host, plan)? else { return Ok(None) };
    let slot = match pacing.max_unavailable {
        0 => {
            log::warn!("{restarted} is restarted without a slot, as --max-unavailable 0 asks for");
            None
        }
        _ => slot::take(&pacing, host, &decision.kops_controller, &restarted).await?,
    };
    let drained = match pacing.drain {
        None => None,
        Some(timeout) => match drain::drain(host, &machine::kubeconfig(&options.root), timeout).await {
            Ok(drained) => Some(drained),
            Err(error) => {
                if let Some(slot) = slot {
                    slot.release().await;
                }
                return Err(error.into());
            }
        },
    };
    Ok((slot.is_some() || drained.is_some()).then_some(Paced { slot, drained }))
}

impl Paced {
    /// Takes everything back, whatever came of the change. What cannot be taken back now ends by itself or by the next run.
    pub async fn end(self) {
        if let Some(drained) = self.drained {
            drained.end().await;
        }
        if let Some(slot) = self.slot {
            slot.release().await;
        }
    }
}

/// Whether this process, which is stopped, leaves its Node cordoned. Telling the cluster uncordons it.
pub fn is_left_cordoned() -> bool {
    drain::is_left_cordoned()
}

/// Uncordons the Node of this machine that a run has cordoned and did not come to uncordon. A run that is at work does so itself.
pub async fn uncordon_left(root: &Path) {
    let uncordoned = async { uncordon(&machine::open(root)?, root).await };
    if let Err(error) = uncordoned.await {
        log::info!(
            "this node is cordoned by a run that is at work, or the next run uncordons it: {}",
            error_text(&error)
        );
    }
}

/// The same once no run is at work, however long that takes, and for this long again where the API server does not answer.
///
/// # Errors
/// It does not answer in time, or this machine is no node.
pub async fn uncordon_once_alone(root: &Path, timeout: Duration) -> Result<()> {
    let host = machine::open(root)?;
    let mut since = None;
    // `reset` takes it away. What takes over from nodeup has no record before its first change.
    while machine::kubeconfig(root).exists() {
        // It is let go at once: a run that begins now is not to find it taken.
        drop(machine::lock(true, &host).await?);
        let error = match uncordon(&host, root).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        match error.downcast_ref() {
            Some(kops_agent_host::Error::Locked { .. }) => since = None,
            _ if since.get_or_insert_with(Instant::now).elapsed() >= timeout => return Err(error),
            _ => log::debug!("trying again: {}", error_text(&error)),
        }
        sleep(PAUSE).await;
    }
    Ok(())
}

async fn uncordon(host: &Host, root: &Path) -> Result<()> {
    let node = OwnNode::of(&machine::kubeconfig(root))?;
    if !node.is_cordoned_by_a_run().await? {
        return Ok(());
    }
    let _lock = host.lock()?;
    if node.uncordon().await? {
        log::warn!(
            "the Node {} was left cordoned by a run that was interrupted, and is uncordoned now",
            node.name
        );
    }
    Ok(())
}
