//! What a machine is put right by while what is wanted of it now is not known, or may not be applied to it: the state
//! that was last applied.
//!
//! Between `kops update cluster` and the rolling update every machine that is pinned to a configuration is superseded:
//! the store has the next one, which is for the machines that take its place. A store may be out of reach, deny what it
//! gave before, or hold a mistake; kops-controller gives a Node that is ready nothing; a change was rolled back and is
//! still wanted; what a change needs cannot be downloaded or issued. None of that is a reason to leave drift, volumes and
//! certificates as they are.
//!
//! A change that an earlier run has begun and not ended is newer than what was last applied. It is never turned back by
//! that: components may run with it already, and only their health says to take it back, which is a rollback. So it is
//! carried on to its end from what the interrupted run has kept, and becomes what was last applied. Where it takes
//! something that is not at hand (a secret of a store that does not answer), the machine is left as it is, and is told to
//! be, until what is wanted can be read: half of each state is none that anything was tested with. For the same reason
//! nothing is put right in the very run in which a change failed half-way; the next goes on with it.

mod instead;
mod stored;

use std::sync::Arc;

use anyhow::{Context, Result};
use kops_agent_bootstrap_client::KopsController;
use kops_agent_host::{Applied, Host, Report, Unfinished};
use kops_agent_plan::diff::{Keeping, Kept};
use kops_agent_plan::resource::Kind;

use super::apply::apply;
use super::decide::Decision;
use super::environment::Environment;
use super::facts;
use super::materials::Materials;
use super::options::{NodeOptions, RunOptions};
use super::plan::plan;
use crate::known::error_text;
use crate::source::boot_config;

pub use instead::{Instead, stands_in_for, superseded};

/// What a machine is compared with and put right by because of an error, and that error.
pub struct StandIn {
    /// Why it is that, and not what is wanted.
    pub instead: Instead,
    pub decision: Decision,
    /// What is wrong with what is wanted.
    pub error: anyhow::Error,
}

/// What was last applied, where a machine has converged and nothing is under way; `None` where that is not known of it.
/// What was observed and read for `wanted`, what is wanted now, is not asked for again.
///
/// # Errors
/// What was applied cannot be read.
pub async fn as_applied(options: &NodeOptions, host: &Host, wanted: &Decision) -> Result<Option<Decision>> {
    let asked_for = anyhow::anyhow!("what was last applied is asked for");
    let decided = Box::pin(decide(options, host, &asked_for, Some(wanted))).await?;
    Ok(decided.map(|(_, decision)| decision).filter(|decision| decision.is_last_applied))
}

/// What stands in for what an error keeps from being known or applied.
///
/// # Errors
/// The error, where nothing does; with what is wrong beside it where that cannot be told.
pub async fn stand_in(options: &NodeOptions, host: &Host, error: anyhow::Error) -> Result<StandIn> {
    match Box::pin(decide(options, host, &error, None)).await {
        Ok(Some((instead, decision))) => Ok(StandIn { instead, decision, error }),
        Ok(None) => Err(error),
        Err(other) => Err(both(error, &other)),
    }
}

/// An error, and that what was last applied could not be put right either.
pub fn both(error: anyhow::Error, other: &anyhow::Error) -> anyhow::Error {
    let other = error_text(other);
    error.context(format!("what was last applied could not be put right either ({other}), and before that"))
}

/// Puts a machine right by what was last applied, where an error that a run ended with leaves that to be done, and gives
/// the error back with what came of it.
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
            None => error.context("this machine is left as it was last applied"),
        },
        Err(other) => both(error, &other),
    }
}

/// The state that stands in for the wanted one, and whether it is that of a change that was begun; `None` where there is
/// none.
fn state(host: &Host) -> Result<Option<(Applied, bool)>> {
    match host.unfinished_change()? {
        None => Ok(host.applied()?.map(|applied| (applied, false))),
        Some(Unfinished { state: Some(state) }) => Ok(Some((state, true))),
        Some(Unfinished { state: None }) => {
            log::warn!("{LEFT}, because no run has kept what it goes to");
            Ok(None)
        }
    }
}

/// What is told of a change that cannot be carried on.
const LEFT: &str = "a change was begun here that has not come to its end, and that cannot be carried on now: it is left as it is until what \
                    is wanted of this node is known";

/// Whether a change that was begun can be carried on to its end: nothing that is still to be written or issued is unknown.
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
            "this run goes on with the change that was begun here by an earlier one, from what that has kept of it"
        );
        return Ok(true);
    }
    log::warn!("{LEFT}:\n{}", missing.join("\n"));
    Ok(false)
}

fn line(kept: &Kept) -> String {
    format!("  {}: {}", kept.resource, kept.why)
}

/// What was last applied, decided again, where a machine has converged and its user-data is still for the same
/// instance group; `None` where it is not. A change that was begun since takes its place.
///
/// # Errors
/// What was applied cannot be read.
async fn decide(
    options: &NodeOptions,
    host: &Host,
    why: &anyhow::Error,
    wanted: Option<&Decision>,
) -> Result<Option<(Instead, Decision)>> {
    // Without it there is no telling that this is the same machine still.
    let Ok(boot) = boot_config(&options.source.conf, &options.store).await else { return Ok(None) };
    let Some((applied, is_begun)) = state(host).context("reading what was last applied")? else {
        return Ok(None);
    };
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
                "what was last applied here was for another machine, or another use of this one ({}; this is {}): it is left alone",
                applied.machine,
                facts.machine()
            );
            return Ok(None);
        }
        Err(unobserved) => {
            log::warn!(
                "whether this is the machine that was last converged here cannot be told, so it is left as it is: {}",
                error_text(&unobserved)
            );
            return Ok(None);
        }
    };
    let applied = Arc::new(applied);
    let instead = Instead::of(why, &applied);
    let store = Arc::new(options.store.open()?);
    let at_hand = wanted.filter(|wanted| wanted.sources == applied.sources).map(|wanted| &wanted.materials);
    let read = stored::read(options, host, &boot, &applied, why, at_hand).await?;
    let environment = Environment::of_machine(&options.source.node_root).of_role(boot.instance_group_role);
    let materials = Materials::of_applied(Arc::clone(&applied), read).with_environment(environment);
    let record = host.record()?;
    let authorities = applied.trusted_certificates(kops_agent_plan::resolve::KUBERNETES_CA);
    let kops_controller = KopsController::of(&boot, authorities, &facts, store.retries().deadline)
        .for_node_at(&options.source.node_root);
    let decision = Decision {
        desired: applied.desired(),
        materials,
        kops_controller,
        config_hash: applied.config_hash.clone(),
        known_hashes: record.known_hashes,
        remembered: None,
        // It was given when this was applied, and a cloud takes none back.
        ipv6_prefix: "as last applied".to_owned(),
        store,
        is_last_applied: !is_begun,
        sources: applied.sources.clone(),
        names: [applied.cluster.clone(), applied.instance_group.clone()],
        facts,
        is_proven: applied.is_proven,
        written_by: applied.written_by.clone(),
    };
    if is_begun && !is_carried_on(host, &decision)? {
        return Ok(None);
    }
    Ok(Some((instead, decision)))
}

/// Puts a machine right by what was last applied to it.
///
/// # Errors
/// What cannot be put right.
pub async fn converge(options: &RunOptions, host: &Host, decision: &Decision) -> Result<Report> {
    let report = Box::pin(apply(options, host, decision)).await;
    report.with_context(|| match decision.is_last_applied {
        true => "putting this machine right by what was last applied to it",
        false => "going on with the change that an earlier run has begun",
    })
}

/// What a run has left as it is, although it is not as it should be; `None` where there is none of it.
pub fn unmended(report: &Report) -> Option<anyhow::Error> {
    let lines: Vec<String> =
        report.kept.iter().filter(|kept| kept.keeping == Keeping::Unmended).map(line).collect();
    (!lines.is_empty())
        .then(|| anyhow::anyhow!("some of this node could not be put right:\n{}", lines.join("\n")))
}
