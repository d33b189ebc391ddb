//! What belongs to converging besides applying a plan: what the cloud told is kept for later runs, and once this machine
//! is a node, the cloud is told so.

use std::path::Path;

use anyhow::Result;
use kops_agent_host::{Host, Report};
use kops_agent_plan::lifecycle_action::LifecycleAction;

use crate::bootstrap_client::is_already_registered;
use crate::cli::{RootArgs, SpecArgs};
use crate::cloud;
use crate::hashes::HashSource;
use crate::node::{self, Decision};
use crate::source::Before;
use crate::{open_host, output, remembered, service_manager};

/// Converges. A machine that kops-controller calls a ready node has no less to tell its cloud than one that has just
/// become one.
///
/// # Errors
/// As [`node::converge`]. What the cloud could not be told is told to people, and does not fail the node.
pub async fn converge(args: &RootArgs, host: &Host, decision: &Decision) -> Result<Report> {
    if let Some(remembered) = &decision.remembered
        && let Err(error) = remembered::keep(remembered, host, &args.root)
    {
        log::warn!("a later run may have to ask the cloud again: {}", output::error_text(&error));
    }
    let outcome = Box::pin(node::converge(args, host, decision)).await;
    let is_node = outcome.as_ref().map_or_else(is_already_registered, |_| true);
    if let Some(action) = decision.lifecycle_action.as_ref().filter(|_| is_node) {
        complete(host, action).await;
    }
    outcome
}

/// Decides the node that is to converge. A ready node is told nothing by kops-controller, but may be held by its group all
/// the same, as one that a run was interrupted on after it joined: what held it when it was last decided is remembered.
///
/// # Errors
/// As [`node::decide`].
pub async fn decide(args: &SpecArgs, root: &Path, hashes: HashSource, before: &Before) -> Result<Decision> {
    let decided = Box::pin(node::decide(args, root, hashes, before)).await;
    if decided.as_ref().is_err_and(is_already_registered) {
        complete_remembered(root).await;
    }
    decided
}

/// Tells the cloud what it was to be told when this machine was last decided, where that was this very instance.
pub async fn complete_remembered(root: &Path) {
    let remembered = remembered::read(root);
    let Some(action) = remembered.lifecycle_action() else { return };
    match cloud::instance_id().await {
        Ok(instance) if instance == action.instance_id => {}
        Ok(_) => return log::debug!("what is remembered of lifecycle hooks is of another instance"),
        Err(error) => return untold(&error.to_string()),
    }
    match open_host(root) {
        Ok(host) => complete(&host, action).await,
        Err(error) => untold(&output::error_text(&error)),
    }
}

async fn complete(host: &Host, action: &LifecycleAction) {
    service_manager::doing("telling the Auto Scaling group that this machine is ready");
    if let Err(problem) = host.complete_lifecycle_action(action).await {
        untold(&problem);
    }
}

fn untold(problem: &str) {
    log::error!(
        "this node is ready, but its Auto Scaling group could not be told so, and replaces it once the lifecycle hook \
         has timed out: {problem}"
    );
}
