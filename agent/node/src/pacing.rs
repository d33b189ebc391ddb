//! Pacing: before a run restarts kubelet, the container runtime, the API server or etcd on a working node, it takes a
//! slot of its group. If asked, it also drains the node. After the change it uncordons the node and releases the
//! slot. A machine that boots or joins takes no slot and is not drained. A run that restarts none of these components
//! takes no slot either, and drains nothing (`docs/pacing.md`).
//!
//! `kops_agent_cluster::pacing` decides which changes are paced. The slot of a killed run expires. If a run is
//! killed, the unit that systemd runs beside a drain uncordons the node. If the unit fails, the next run or
//! `fleet tell` uncordons the node.

mod drain;
mod not_paced;
mod slot;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use kops_agent_cluster::pacing::drains as auto_drains;
use kops_agent_cluster::rollout::DrainMode;
use kops_agent_host::Host;
use kops_agent_kube::own_node::{OwnNode, Untold};
use kops_agent_plan::diff::Plan;
use kops_agent_plan::disruption::{restarted, shown_group};
use kops_agent_source::bootstrap_client::KopsController;
use kops_agent_spec::failure::Kind;
use tokio::time::sleep;

use super::decide::Decision;
use super::machine;
use super::options::{Pacing, RunOptions};
use crate::failure::kind_of;
use crate::redaction::error_text;
use drain::Drained;
use slot::Slot;

pub use not_paced::NotPaced;

/// The pause between two tries to uncordon a Node after an interrupted run.
const PAUSE: Duration = Duration::from_secs(2);

/// Whether a run ended before its change because of pacing: for example, it got no slot, or the node could not be
/// drained.
pub fn is_not_paced(error: &anyhow::Error) -> bool {
    kind_of(error).is_not_paced()
}

/// A run's slot and drained node. The run must release the slot and uncordon the node.
#[derive(Default)]
pub struct Paced {
    slot: Option<Slot>,
    drained: Option<Drained>,
}

/// The components of a working node that a plan restarts, in words. `None` if the plan restarts no component, or if
/// kubelet does not run on this machine.
fn disrupts(root: &Path, host: &Host, plan: &Plan) -> Result<Option<String>> {
    // Nothing runs in a scratch root.
    if root != Path::new("/") {
        return Ok(None);
    }
    let restarted = restarted(plan);
    let words = || restarted.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    Ok((!restarted.is_empty() && host.runs_kubelet()?).then(words))
}

/// The line of `kops-agent plan` that announces the slot; `None` if the plan needs no slot.
pub fn foretold(root: &Path, host: &Host, decision: &Decision, plan: &Plan) -> Result<Option<String>> {
    let group = shown_group(&decision.desired, &decision.names[1]);
    let restarted = disrupts(root, host, plan)?;
    Ok(restarted.map(|restarted| {
        format!("Before this run restarts {restarted}, it takes a slot of the group {group}.")
    }))
}

/// Prepares a working node for a plan that disrupts it: takes a slot, and drains the node if the drain mode requires
/// this. `None` if the run did neither, for example because no server gives slots. Fails if no slot is free, or if pods
/// do not leave.
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
            log::warn!("{restarted} is restarted without a slot, because of --max-unavailable 0");
            None
        }
        _ => slot::take(&pacing, host, &decision.kops_controller, &restarted).await?,
    };
    let mut paced = Paced { slot, drained: None };
    if drains(pacing.drain, &options.root, decision).await
        && let Err(error) = paced.drain(&pacing, &options.root, host).await
    {
        paced.end().await;
        return Err(error);
    }
    Ok((paced.slot.is_some() || paced.drained.is_some()).then_some(paced))
}

/// Takes a slot before a reboot of this machine. Fails if no slot is free, or no server gives slots.
pub async fn begin_reboot(pacing: &Pacing, host: &Host, controller: &KopsController) -> Result<Paced> {
    let slot = slot::take(pacing, host, controller, "this machine").await.map_err(NotPaced::of_reboot)?;
    let without = || NotPaced::NoReboot { seconds: 0, why: "it was not requested".to_owned() };
    Ok(Paced { slot: Some(slot.ok_or_else(without)?), drained: None })
}

/// Whether this run drains the node. With `auto`, the run also drains if versions are unknown, because the change may
/// be an upgrade, and pods must leave before an upgrade.
async fn drains(mode: DrainMode, root: &Path, decision: &Decision) -> bool {
    match mode {
        DrainMode::Never => return false,
        DrainMode::Always => return true,
        DrainMode::Auto => {}
    }
    let present = async { Ok::<_, Untold>(OwnNode::new(&machine::kubeconfig(root))?.versions().await?) };
    match present.await {
        Ok(present) => auto_drains(&present, &decision.versions).unwrap_or(true),
        Err(untold) => {
            log::warn!(
                "the node is drained, because its current versions of kubelet and containerd are unknown: \
                 {untold}"
            );
            true
        }
    }
}

impl Paced {
    /// Drains the node. If pods do not leave in time, uncordons the node and fails.
    pub async fn drain(&mut self, pacing: &Pacing, root: &Path, host: &Host) -> Result<()> {
        let drained = drain::drain(host, &machine::kubeconfig(root), pacing).await?;
        self.drained = Some(drained);
        Ok(())
    }

    /// Whether the run still holds its slot, or never needed a slot. A change that has begun is completed even without
    /// the slot.
    pub fn has_its_slot(&self) -> bool {
        self.slot.as_ref().is_none_or(Slot::is_held)
    }

    /// Uncordons the node and releases the slot, whether the change succeeded or not. If the slot cannot be released, it
    /// expires. If the node cannot be uncordoned, the next run uncordons it.
    pub async fn end(self) {
        if let Some(drained) = self.drained {
            drained.end().await;
        }
        if let Some(slot) = self.slot {
            slot.release().await;
        }
    }
}

/// Stops the unit that would uncordon the node after the end of this run. The node must stay cordoned during its
/// reboot.
pub fn stay_cordoned(host: &Host) {
    drain::stay_cordoned(host);
}

/// Whether the Node would stay cordoned if this process stopped now. If so, a process that is asked to stop must still
/// report to the cluster, because the code that reports also uncordons the Node.
pub fn is_left_cordoned() -> bool {
    drain::is_left_cordoned()
}

/// Uncordons the Node of this machine if an interrupted run left it cordoned. A run that is in progress uncordons the
/// Node itself.
pub async fn uncordon_left(root: &Path) {
    let uncordoned = async { uncordon(&machine::open(root)?, root).await };
    if let Err(error) = uncordoned.await {
        log::info!(
            "this node stays cordoned until the run in progress or the next run uncordons it: {}",
            error_text(&error)
        );
    }
}

/// Waits without limit until no run is in progress, then uncordons the Node. Retries for `timeout` while the API
/// server does not answer.
pub async fn uncordon_once_alone(root: &Path, timeout: Duration) -> Result<()> {
    let host = machine::open(root)?;
    let mut since = None;
    // The loop ends if `reset` removes the kubeconfig. If kops-agent's record is missing, the loop must continue, because
    // a takeover from nodeup has no record before its first change.
    while machine::kubeconfig(root).exists() {
        // The lock is released immediately, so that a run that starts now can take it.
        drop(machine::lock(true, &host).await?);
        let error = match uncordon(&host, root).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        match kind_of(&error) {
            Kind::Locked => since = None,
            _ if since.get_or_insert_with(Instant::now).elapsed() >= timeout => return Err(error),
            _ => log::debug!("trying again: {}", error_text(&error)),
        }
        sleep(PAUSE).await;
    }
    Ok(())
}

async fn uncordon(host: &Host, root: &Path) -> Result<()> {
    let node = OwnNode::new(&machine::kubeconfig(root))?;
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
