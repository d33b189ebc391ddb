//! The last applied state. A run repairs the machine to this state while the wanted state is unknown, or may not be
//! applied to the machine.
//!
//! Between `kops update cluster` and the rolling update, every machine with a pinned configuration is superseded. The
//! store has the next configuration, which is for replacement machines. A store may be unreachable, deny files that it
//! gave before, or contain a mistake. kops-controller gives nothing to a Node that is ready. The cluster may still want
//! a change that was rolled back. A download or a certificate for a change may be unavailable. In all of these cases, a
//! run still repairs drift, volumes and certificates.
//!
//! An unfinished change of an earlier run is newer than the last applied state. A run never reverts such a change to the
//! last applied state: components may already run with the change, and only their health decides on a rollback. So a run
//! continues the change from the state that the interrupted run saved, and the change becomes the last applied state. If
//! the change needs something unavailable, such as a secret of an unreachable store, the machine stays as it is until
//! the wanted state can be read. The log says so. A run whose change fails does not repair the last applied state either,
//! because no test covers a machine with parts of both states. The next run continues the change.

mod instead;
mod stored;

use std::sync::Arc;

use anyhow::{Context, Result};
use kops_agent_cluster::pacing::Versions;
use kops_agent_host::{Applied, Host, Report, Unfinished};
use kops_agent_plan::diff::{Keeping, Kept};
use kops_agent_plan::following::Followed;
use kops_agent_plan::resource::Kind;
use kops_agent_source::bootstrap_client::KopsController;
use kops_agent_spec::failure;

use super::apply::apply;
use super::decide::Decision;
use super::environment::Environment;
use super::facts;
use super::materials::Materials;
use super::options::{NodeOptions, RunOptions};
use super::plan::plan;
use crate::redaction::error_text;
use kops_agent_source::boot_config;

pub use instead::{Instead, stands_in_for, superseded};

/// A replacement for the wanted state, and the error that makes the replacement necessary.
pub struct StandIn {
    /// Why the wanted state is replaced.
    pub instead: Instead,
    pub decision: Decision,
    /// Why the wanted state is unknown or may not be applied.
    pub error: anyhow::Error,
}

/// The last applied state; `None` if the machine has not converged or has an unfinished change. The result reuses the
/// facts, keys and secrets of `wanted`, the decision for the wanted state.
pub async fn as_applied(options: &NodeOptions, host: &Host, wanted: &Decision) -> Result<Option<Decision>> {
    let asked_for = failure::Failure::new(failure::Kind::Other, "what was last applied is asked for").into();
    let decided = Box::pin(decide(options, host, &asked_for, Some(wanted))).await?;
    Ok(decided.map(|(_, decision)| decision).filter(|decision| decision.is_last_applied))
}

/// The state that replaces the wanted state because of `error`. Fails with `error` if no state replaces the wanted state. If the search for
/// such a state fails, fails with both errors.
pub async fn stand_in(options: &NodeOptions, host: &Host, error: anyhow::Error) -> Result<StandIn> {
    match Box::pin(decide(options, host, &error, None)).await {
        Ok(Some((instead, decision))) => Ok(StandIn { instead, decision, error }),
        Ok(None) => Err(error),
        Err(other) => Err(both(error, &other)),
    }
}

/// Combines the first error of a run with `other`, the error of the repair to the last applied state.
pub fn both(error: anyhow::Error, other: &anyhow::Error) -> anyhow::Error {
    let other = error_text(other);
    error.context(format!(
        "cannot repair this machine to its last applied configuration: {other}. The first failure of this run"
    ))
}

/// Repairs a machine to its last applied state after a run failed with `error`, if `error` allows a repair. Returns `error` with the
/// outcome of the repair.
pub async fn mend(
    options: &NodeOptions,
    run: &RunOptions,
    host: &Host,
    error: anyhow::Error,
) -> anyhow::Error {
    match stands_in_for(&error, host) {
        Ok(true) => {}
        Ok(false) => return error,
        Err(other) => return both(error, &other),
    }
    let StandIn { decision, error, .. } = match Box::pin(stand_in(options, host, error)).await {
        Ok(stand_in) => stand_in,
        Err(error) => return error,
    };
    match Box::pin(converge(run, host, &decision)).await {
        Ok(report) => match unmended(&report) {
            Some(other) => both(error, &other),
            None => error.context("this machine keeps its last applied configuration"),
        },
        Err(other) => both(error, &other),
    }
}

/// The replacement for the wanted state, and whether the replacement belongs to an unfinished change. `None` if there is no
/// replacement.
fn state(host: &Host) -> Result<Option<(Applied, bool)>> {
    match host.unfinished_change()? {
        None => Ok(host.applied()?.map(|applied| (applied, false))),
        Some(Unfinished { state: Some(state) }) => Ok(Some((state, true))),
        Some(Unfinished { state: None }) => {
            log::warn!("{LEFT}: no run has saved the target configuration of this change");
            Ok(None)
        }
    }
}

/// The message for an unfinished change that cannot be continued.
const LEFT: &str = "an unfinished change on this machine cannot be continued now; it stays unfinished until this node's wanted \
                    configuration is known";

/// Whether an unfinished change can be completed. The completion needs all content that the change must still write or issue.
fn is_carried_on(host: &Host, decision: &Decision) -> Result<bool> {
    let plan = plan(host, decision)?;
    let is_unknown = |kept: &&Kept| !matches!(kept.keeping, Keeping::NotWanted | Keeping::Loaded);
    let unknown = plan.kept.iter().filter(is_unknown);
    let is_unissued = |kept: &&Kept| kept.resource.kind == Kind::Certificate;
    let missing: Vec<String> = match unknown.clone().find(is_unissued) {
        Some(kept) => vec![line(kept)],
        None => {
            let ids = host.still_to_write(unknown.clone().map(|kept| &kept.resource))?;
            unknown.filter(|kept| ids.contains(&&kept.resource)).map(line).collect()
        }
    };
    if missing.is_empty() {
        log::info!(
            "this run continues the unfinished change of an earlier run, from the state that the earlier run saved"
        );
        return Ok(true);
    }
    log::warn!("{LEFT}:\n{}", missing.join("\n"));
    Ok(false)
}

fn line(kept: &Kept) -> String {
    format!("  {}: {}", kept.resource, kept.why)
}

/// Returns the decision for the last applied state, or for the state of an unfinished change if there is one. `None` if the machine has
/// neither state. Also `None` if the state is for a different machine, or for a different cluster, group or configuration than the boot
/// config.
async fn decide(
    options: &NodeOptions,
    host: &Host,
    why: &anyhow::Error,
    wanted: Option<&Decision>,
) -> Result<Option<(Instead, Decision)>> {
    // Without the boot config, the agent cannot know whether the saved state is still for the cluster, instance group and configuration
    // of this machine.
    let mark = host.record()?.mark();
    let Ok(user_data) = boot_config(&options.source.conf, &options.store).await else { return Ok(None) };
    let Some((applied, is_begun)) = state(host).context("reading the last applied configuration")? else {
        return Ok(None);
    };
    let boot = Followed::in_effect(applied.followed.as_ref(), &user_data, &options.source.follow).clone();
    let is_same = applied.cluster == boot.cluster_name && applied.instance_group == boot.instance_group_name;
    let is_pinned_to_it =
        boot.nodeup_config_hash.is_empty() || boot.nodeup_config_hash == applied.config_hash;
    if !is_same || !is_pinned_to_it {
        return Ok(None);
    }
    let facts = match wanted {
        Some(wanted) => Ok(wanted.facts.clone()),
        None => facts::given(options.facts.as_deref(), &boot).await,
    };
    let facts = match facts {
        Ok(facts) if facts.machine() == applied.machine => facts,
        Ok(facts) => {
            log::warn!(
                "this run does not apply the last applied configuration, because it was for another machine ({}) \
                 than this machine ({}), or because this machine has entered or left its warm pool since then",
                applied.machine,
                facts.machine()
            );
            return Ok(None);
        }
        Err(unobserved) => {
            log::warn!(
                "cannot tell whether the last applied configuration is for this machine, so this run does not apply it: {}",
                error_text(&unobserved)
            );
            return Ok(None);
        }
    };
    let applied = Arc::new(applied);
    let instead = Instead::from_error(why, &applied);
    let store = Arc::new(options.store.open()?);
    let at_hand = wanted.filter(|wanted| wanted.sources == applied.sources).map(|wanted| &wanted.materials);
    let read = stored::read(options, host, &boot, &applied, why, at_hand).await?;
    let environment = Environment::of_machine(&options.source.node_root).of_role(boot.instance_group_role);
    let materials = Materials::of_applied(Arc::clone(&applied), read).with_environment(environment);
    let record = host.record()?;
    let authorities = applied.trusted_certificates(kops_agent_plan::resolve::KUBERNETES_CA);
    let kops_controller = KopsController::new(&boot, authorities, &facts, store.retries().deadline)
        .for_node_at(&options.source.node_root);
    let decision = Decision {
        desired: applied.desired(),
        materials,
        kops_controller,
        config_hash: applied.config_hash.clone(),
        known_hashes: record.known_hashes,
        remembered: None,
        // The cloud assigned a prefix when this state was applied, and never takes the prefix back. Only an empty text
        // means that the prefix is missing, so this text need not be the real prefix.
        ipv6_prefix: "as last applied".to_owned(),
        store,
        is_last_applied: !is_begun,
        sources: applied.sources.clone(),
        names: [applied.cluster.clone(), applied.instance_group.clone()],
        facts,
        is_proven: applied.is_proven,
        written_by: applied.written_by.clone(),
        followed: applied.followed.clone(),
        versions: Versions::default(),
        mark,
    };
    if is_begun && !is_carried_on(host, &decision)? {
        return Ok(None);
    }
    Ok(Some((instead, decision)))
}

/// Repairs a machine to its last applied state, or continues an unfinished change.
pub async fn converge(options: &RunOptions, host: &Host, decision: &Decision) -> Result<Report> {
    let report = Box::pin(apply(options, host, decision)).await;
    report.with_context(|| match decision.is_last_applied {
        true => "repairing this machine to its last applied configuration",
        false => "continuing the unfinished change of an earlier run",
    })
}

/// An error that lists the resources that still differ, because a run could not repair them; `None` if there are no
/// such resources.
pub fn unmended(report: &Report) -> Option<anyhow::Error> {
    let lines: Vec<String> =
        report.kept.iter().filter(|kept| kept.keeping == Keeping::Unmended).map(line).collect();
    (!lines.is_empty())
        .then(|| format!("some resources of this node could not be repaired:\n{}", lines.join("\n")))
        .map(|problem| failure::Failure::new(failure::Kind::NotRepaired, problem).into())
}
