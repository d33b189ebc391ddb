//! What belongs to converging besides applying a plan: what the cloud told is kept for later runs, and once this machine
//! is a node, the cloud is told so.
//!
//! That it is a node is noted first, and that the cloud was told so, each for the time until the machine is started anew:
//! whatever keeps a run from telling, the next one does, also one that finds nothing else to do. An image that is made of
//! the disk takes neither along, nor does an instance that leaves its warm pool.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, anyhow};
use kops_agent_bootstrap_client::is_already_registered;
use kops_agent_cloud as cloud;
use kops_agent_derivation::asset_hashes::HashSource;
use kops_agent_host::{Host, Report};
use kops_agent_plan::lifecycle_action::{Completion, LifecycleAction};
use kops_agent_plan::timeline::{self, Work};
use kops_agent_process::service_manager;

use super::decide::{self, Decision};
use super::machine::{self, noted};
use super::options::{NodeOptions, RunOptions};
use super::{apply, remembered};
use crate::exit::leaves_a_working_node;
use crate::known::error_text;
use crate::source::Before;

/// Between two tries to complete the action of a hook that may hold this machine yet.
const UNTIL_HELD: Duration = Duration::from_secs(15);

/// Converges. A machine that kops-controller calls a ready node has no less to tell its cloud than one that has just
/// become one, and neither has one of which a unit failed that no pod waits for.
///
/// # Errors
/// As [`apply::apply`].
pub async fn converge(options: &RunOptions, host: &Host, decision: &Decision) -> Result<Report> {
    let _lock = machine::lock(options.waits_for_lock, host).await?;
    if let Some(remembered) = &decision.remembered
        && let Err(error) = remembered::keep(remembered, host, &options.root)
    {
        log::warn!("a later run may have to ask the cloud again: {}", error_text(&error));
    }
    let outcome = Box::pin(apply::apply(options, host, decision)).await;
    keep_timeline(host, outcome.as_ref().ok());
    let is_node = |error: &_| is_already_registered(error) || leaves_a_working_node(error);
    if outcome.as_ref().map_or_else(is_node, |_| true) {
        note_ready(host, &options.root);
    }
    outcome
}

/// Keeps what the run took its time for; the end of a boot tells of it.
fn keep_timeline(host: &Host, report: Option<&Report>) {
    let changes = report.map_or(0, |report| report.applied.len());
    match host.keep_timeline(changes, report.is_some()) {
        Ok(timeline) if timeline.succeeded && timeline.floor_us > 0 => {
            timeline::summary(&timeline).iter().for_each(|line| log::info!("{line}"));
        }
        Ok(_) => {}
        Err(error) => log::warn!("what the run took its time for is not kept: {error}"),
    }
}

/// Decides the node that is to converge. A ready node is told nothing by kops-controller, but may be held by its group all
/// the same, as one that a run was interrupted on after it joined: what held it when it was last decided is remembered.
///
/// # Errors
/// As [`decide::decide`].
pub async fn decide(
    options: &NodeOptions,
    run: &RunOptions,
    hashes: HashSource,
    before: &Before,
) -> Result<Decision> {
    let deciding = run.stopwatch.begin(Work::Other, "reading what is wanted");
    let decided = Box::pin(decide::decide(options, hashes, before)).await;
    drop(deciding);
    if decided.as_ref().is_err_and(is_already_registered) {
        remember_ready(run).await?;
    }
    decided
}

/// Notes that this machine is the node that it was when it was last decided.
///
/// # Errors
/// Another run is at work.
pub async fn remember_ready(options: &RunOptions) -> Result<()> {
    if remembered::read(&options.root).lifecycle_action().is_some() {
        let host = machine::open(&options.root)?;
        let _lock = machine::lock(options.waits_for_lock, &host).await?;
        note_ready(&host, &options.root);
    }
    Ok(())
}

fn note_ready(host: &Host, root: &Path) {
    let remembered = remembered::read(root);
    if remembered.lifecycle_action().is_none() {
        return;
    }
    let noted = || remembered::keep(&remembered.ready_in(host.boot_id()?), host, root);
    noted().unwrap_or_else(|error| log::error!("{}", error_text(&untold(&error_text(&error)))));
}

/// Tells the cloud that this machine is a node, where it has become one since it was started, something holds it until
/// then, and it was not told yet. At boot this waits for a lifecycle hook that may still come to hold it.
///
/// # Errors
/// That of `outcome`; and where the node is as it should be otherwise, why the cloud could not be told.
pub async fn tell<T>(root: &Path, is_boot: bool, outcome: Result<T>) -> Result<T> {
    let Err(untold) = noted(root, tell_group(root, is_boot).await) else { return outcome };
    match outcome {
        Err(error) if leaves_a_working_node(&error) => {
            Err(anyhow!("{}\n{}", error_text(&error), error_text(&untold)))
        }
        Err(error) if !is_already_registered(&error) => {
            log::error!("{}", error_text(&untold));
            Err(error)
        }
        _ => Err(untold),
    }
}

async fn tell_group(root: &Path, is_boot: bool) -> Result<()> {
    if remembered::read(root).lifecycle_action().is_none() {
        return Ok(());
    }
    let host = machine::open(root)?;
    let boot_id = host.boot_id()?;
    loop {
        let remembered = remembered::read(root);
        let Some(action) = remembered.untold_in(&boot_id) else { return Ok(()) };
        service_manager::serving("a node, and telling its group so");
        let instance = cloud::of(LifecycleAction::HELD_BY)
            .instance_id()
            .await
            .map_err(|error| untold(&error.to_string()))?;
        if instance != action.instance_id {
            log::debug!("what is remembered of lifecycle hooks is of another instance");
            return Ok(());
        }
        let group = &action.group;
        match host.complete_lifecycle_action(action).await.map_err(|problem| untold(&problem))? {
            Completion::Completed => log::info!("{group} knows that this machine is ready"),
            Completion::NothingHeld => log::info!("no lifecycle hook of {group} holds this machine"),
            Completion::NotHeldYet => {
                log::info!("no lifecycle hook of {group} holds this machine yet");
                if !is_boot {
                    return Ok(());
                }
                tokio::time::sleep(UNTIL_HELD).await;
                continue;
            }
        }
        let kept = machine::lock(is_boot, &host)
            .await
            .and_then(|_lock| remembered::keep(&remembered::read(root).told_in(boot_id), &host, root));
        kept.unwrap_or_else(|error| {
            log::warn!("a later run tells the group again: {}", error_text(&error));
        });
        return Ok(());
    }
}

fn untold(problem: &str) -> anyhow::Error {
    anyhow!(
        "this node is ready, but its group could not be told so, and replaces it once the lifecycle hook has timed out: \
         {problem}"
    )
}
