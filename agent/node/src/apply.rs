//! Steps 6 to 8 of node mode: makes this machine the decided node.

use std::sync::Arc;

use anyhow::{Context, Result};
use kops_agent_host::{Applied, DownloadTimeouts, Downloads, Host, Progress, Report, Scope};
use kops_agent_net::{Buckets, LocationClient};
use kops_agent_plan::desired::PROTOKUBE_UNIT;
use kops_agent_plan::diff::{Plan, diff};
use kops_agent_plan::early_units::before_certificates;
use kops_agent_plan::resource::DesiredState;
use kops_agent_plan::timeline::Work;
use kops_agent_spec::failure::{Failing, Failure, Kind};

use super::decide::Decision;
use super::machine::lock;
use super::materials::Materials;
use super::options::RunOptions;
use super::plan::plan;
use super::{certificates, last_server, pacing};

/// Steps 6 to 8 of node mode: observes the machine, compares it with the desired state, and applies the differences.
/// After a failed step, the next run plans the remaining differences.
pub async fn apply(options: &RunOptions, host: &Host, decision: &Decision) -> Result<Report> {
    let _lock = lock(options.waits_for_lock, host).await?;
    if host.record()?.mark() != decision.mark {
        let problem = "another run has changed this machine since this run began, so this run changes nothing; run it again";
        return Err(Failure::new(Kind::ChangedMeanwhile, problem).into());
    }
    let watch = &*(options.progress)();
    if let Some(rolled_back) =
        host.finish_rollback(watch).await.context("finishing the rollback of an earlier run")?
    {
        log::warn!(
            "an earlier run was interrupted while it rolled back a change; this run has finished the rollback: {rolled_back}"
        );
    }
    let timeouts =
        DownloadTimeouts { give_up_after: options.download_timeout, ..DownloadTimeouts::default() };
    let downloads = Downloads::new(LocationClient::new()?)
        .cache(options.cache())
        .buckets(Arc::clone(&decision.store) as Arc<dyn Buckets>)
        .timeouts(timeouts);
    let observing = host.measure(Work::Other, "observing this machine");
    host.recognize_programs(&decision.desired, &downloads, watch).await.context("recognizing programs")?;
    let seen = plan(host, decision)?;
    drop(observing);
    // The host refuses a configuration that it has rolled back. This check comes before the drain, because a refused
    // configuration needs neither a slot nor a drain.
    let is_refused = host.refusal(&seen, &decision.desired, &decision.config_hash)?.is_some();
    let paced = match is_refused {
        true => None,
        false => {
            Box::pin(last_server::stays(options, host, decision, &seen)).await?;
            Box::pin(pacing::begin(options, host, decision, &seen)).await?
        }
    };
    let Some(paced) = paced else {
        return Box::pin(carry_out(host, decision, seen, &downloads, watch)).await;
    };
    // While the run waited for its slot or drained the node, the machine and other control planes may have changed.
    // So the plan is made again.
    let change = async {
        let plan = plan(host, decision)?;
        Box::pin(last_server::stays(options, host, decision, &plan)).await?;
        Box::pin(carry_out(host, decision, plan, &downloads, watch)).await
    };
    let outcome = Box::pin(change).await;
    Box::pin(paced.end()).await;
    outcome
}

/// Step 8 of node mode: gets certificates and downloads, then applies the whole plan.
async fn carry_out(
    host: &Host,
    decision: &Decision,
    plan: Plan,
    downloads: &Downloads,
    watch: &dyn Progress,
) -> Result<Report> {
    let plan = match certificates::are_missing(decision, &plan) {
        true => Box::pin(with_early_units(host, decision, plan, downloads, watch)).await?,
        false => plan,
    };
    let (plan, materials) = certificates::with_certificates(host, decision, plan).await?;
    let config_hash = decision.config_hash.as_str();
    let scope = match decision.is_last_applied {
        true => Scope::LastApplied { config_hash },
        false => Scope::Node {
            config_hash,
            known_hashes: &decision.known_hashes,
            without: decision.materials.denied_files(),
        },
    };
    let applied = Applied::new(
        &decision.names[0],
        &decision.names[1],
        config_hash,
        decision.sources.clone(),
        &decision.desired,
        &materials,
    );
    let applied = applied
        .to_machine(decision.facts.machine())
        .proven(decision.is_proven)
        .written_by(decision.written_by.clone())
        .following(decision.followed.clone());
    let is_change = !plan.is_empty() || !decision.mark.has_converged_to(config_hash);
    if !decision.is_last_applied && is_change {
        host.keep_begun(&applied).context("saving the configuration before it is applied")?;
    }
    let outcome = host.apply(&plan, &decision.desired, &materials, downloads, watch, scope).await;
    // If the run failed but pods can run, all changes have been applied except the failed ones.
    let is_applied = outcome.as_ref().map_or_else(|error| error.kind().leaves_a_working_node(), |_| true);
    if is_applied && !decision.is_last_applied {
        host.keep_applied(&applied).context("saving the applied configuration")?;
    }
    Ok(outcome?)
}

/// Starts the units that must run before the node can request certificates. Returns the plan of the remaining steps.
async fn with_early_units(
    host: &Host,
    decision: &Decision,
    plan: Plan,
    downloads: &Downloads,
    watch: &dyn Progress,
) -> Result<Plan> {
    let units = before_certificates(&decision.desired);
    let started = early(host, &units, &decision.materials, downloads, watch).await;
    let has_changed = started.with_context(|| {
        format!("starting {PROTOKUBE_UNIT}, which this machine needs to find kops-controller")
    })?;
    if has_changed { self::plan(host, decision) } else { Ok(plan) }
}

/// Applies only `units`. The rest of the node can be applied only after these units have run. Returns whether anything
/// changed.
pub async fn early(
    host: &Host,
    units: &DesiredState,
    materials: &Materials,
    downloads: &Downloads,
    watch: &dyn Progress,
) -> Result<bool> {
    let observed = host.observe(units, materials).context("observing units of this node")?;
    let plan = diff(units, &observed);
    if !plan.is_empty() {
        host.apply(&plan, units, materials, downloads, watch, Scope::Early).await?;
    }
    Ok(!plan.is_empty())
}
