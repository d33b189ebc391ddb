//! Plans the change to the current configuration of the group, for a node that keeps an older configuration. The
//! result is a summary of the plan that `kops-agent plan --follow` shows, and `kops-agent fleet plan` shows this
//! summary. Planning does not change the node.

use anyhow::Result;
use kops_agent_cluster::fleet::{Next, NextPlan};
use kops_agent_host::{Error as HostError, Host};
use kops_agent_plan::disruption::next_plan;
use kops_agent_plan::following::Follow;
use kops_agent_source::asset_hashes::HashSource;

use super::options::NodeOptions;
use super::plan::plan;
use super::{decide, machine};
use crate::redaction::error_text;

/// Plans the change to the group's current configuration, whose hash is `by`. If planning fails, the result has the
/// reason, and the run continues.
pub async fn next(options: &NodeOptions, host: &Host, by: &str) -> Next {
    let (at, runs) = (host.timestamp(), host.record().unwrap_or_default().config_hash);
    match Box::pin(planned(&options.clone().following(Follow::Newest), host)).await {
        Ok((hash, plan)) => Next::planned(&at, &runs, &hash, plan),
        Err(error) => {
            let problem = error_text(&error);
            log::warn!("cannot plan the change to the group's current configuration {by}: {problem}");
            Next::not_planned(&at, &runs, by, &problem)
        }
    }
}

async fn planned(options: &NodeOptions, host: &Host) -> Result<(String, NextPlan)> {
    let hashes = HashSource::publishers(host.record()?.known_hashes);
    let decision = decide::decide(options, hashes, &machine::before_on(host)?).await?;
    let plan = plan(host, &decision)?;
    if let Some(refused) = host.refusal(&plan, &decision.desired, &decision.config_hash)? {
        return Err(HostError::FailedBefore(Box::new(refused)).into());
    }
    Ok((decision.config_hash, next_plan(&plan, decision.versions)))
}
