//! The parts of converging around the plan: a run keeps the cloud's facts for later runs, and tells the cloud that this
//! machine is a node.
//!
//! First a run notes that the machine is a node, then that the cloud was told. Both notes are valid until the next
//! boot. If a run cannot tell the cloud, the next run tells it, even if nothing else is left to do. The notes are not
//! valid on an image made of the disk, or on an instance that leaves its warm pool.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use kops_agent_cloud as cloud;
use kops_agent_cluster::lifecycle_action::{Completion, LifecycleAction};
use kops_agent_host::{Host, Report};
use kops_agent_plan::timeline::{self, Work};
use kops_agent_process::service_manager;
use kops_agent_source::asset_hashes::HashSource;
use kops_agent_source::bootstrap_client::is_already_registered;

use super::decide::{self, Decision};
use super::machine::{self, noted};
use super::options::{NodeOptions, RunOptions};
use super::{apply, remembered};
use crate::failure::kind_of;
use crate::redaction::error_text;
use kops_agent_source::Before;
use kops_agent_spec::failure::{Failure, Kind};

/// If the lifecycle hook does not hold this machine yet, the run waits for this time before it tries again to complete
/// the lifecycle action.
const UNTIL_HELD: Duration = Duration::from_secs(15);

/// Converges this machine. If the machine is then ready as a node, records that. A later step reports it to the cloud.
/// After a failed run, the machine still counts as ready in two cases: kops-controller says that the node is
/// registered, or pods can run despite the failure.
pub async fn converge(options: &RunOptions, host: &Host, decision: &Decision) -> Result<Report> {
    let _lock = machine::lock(options.waits_for_lock, host).await?;
    if let Some(remembered) = &decision.remembered
        && let Err(error) = remembered::keep(remembered, host, &options.root)
    {
        log::warn!(
            "cannot save the cloud's facts; a later run may have to ask the cloud again: {}",
            error_text(&error)
        );
    }
    let outcome = Box::pin(apply::apply(options, host, decision)).await;
    keep_timeline(host, outcome.as_ref().ok());
    let is_node = |error: &_| is_already_registered(error) || kind_of(error).leaves_a_working_node();
    if outcome.as_ref().map_or_else(is_node, |_| true) {
        note_ready(host, &options.root);
    }
    outcome
}

/// Saves the timeline of the run. After a successful run that downloaded, installed or started something, also logs a
/// summary.
fn keep_timeline(host: &Host, report: Option<&Report>) {
    let changes = report.map_or(0, |report| report.applied.len());
    match host.keep_timeline(changes, report.is_some()) {
        Ok(timeline) if timeline.succeeded && timeline.floor_us > 0 => {
            timeline::summary(&timeline).iter().for_each(|line| log::info!("{line}"));
        }
        Ok(_) => {}
        Err(error) => log::warn!("cannot save the timeline of this run: {error}"),
    }
}

/// Determines the desired state of the node. kops-controller serves no configuration to a ready node, and then this
/// function fails. But if a run was interrupted after the node joined, a lifecycle hook may still hold the node. So
/// before this function fails for a ready node, it calls [`remember_ready`].
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

/// If an earlier run saved a lifecycle action, saves that this machine is ready in this boot. Fails if another run has
/// the lock.
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

/// Reports to the cloud that this machine is ready. Does this once per boot, and only if a lifecycle action is saved
/// and the machine was ready in this boot. At boot, also waits for a lifecycle hook that does not hold the machine
/// yet. If the report fails although the node itself is ready, returns the error of the report. In all other cases,
/// returns `outcome`.
pub async fn tell<T>(root: &Path, is_boot: bool, outcome: Result<T>) -> Result<T> {
    let Err(untold) = noted(root, tell_group(root, is_boot).await) else { return outcome };
    match outcome {
        Err(error) if kind_of(&error).leaves_a_working_node() => {
            let problem = format!("{}\n{}", error_text(&error), error_text(&untold));
            Err(Failure::new(Kind::GroupNotTold, problem).into())
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
        service_manager::serving("the node is ready; this run reports this to its group");
        let instance = cloud::for_provider(LifecycleAction::HELD_BY)
            .instance_id()
            .await
            .map_err(|error| untold(&error.to_string()))?;
        if instance != action.instance_id {
            log::debug!("the saved state of lifecycle hooks belongs to another instance");
            return Ok(());
        }
        let group = &action.group;
        match host.complete_lifecycle_action(action).await.map_err(|failure| untold(&failure.to_string()))? {
            Completion::Completed => log::info!("told {group} that this machine is ready"),
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
            log::warn!(
                "cannot record that this machine has reported its readiness to its group; a later run repeats \
                 the report: {}",
                error_text(&error)
            );
        });
        return Ok(());
    }
}

fn untold(problem: &str) -> anyhow::Error {
    let problem = format!(
        "this node is ready, but its group does not know this yet, and replaces this node when the lifecycle \
         hook times out: {problem}"
    );
    Failure::new(Kind::GroupNotTold, problem).into()
}
