//! The facts of the machine, and the plan for its node. Both need the network, so each has a thread and a runtime of
//! its own, which may be abandoned.

use std::time::Duration;

use anyhow::{Context as _, Result};
use kops_agent_host::Reader;
use kops_agent_plan::doctor::{Seen, Unseen};
use kops_agent_source::asset_hashes::HashSource;
use kops_agent_source::boot_config;
use serde_json::Value;
use tokio::runtime::Builder;

use super::part::Part;
use super::secret_sources::{SecretFact, Told, of_state};
use crate::decide::{self, Decision};
use crate::doctor::deadline::run_in_thread;
use crate::options::NodeOptions;
use crate::plan::plan;
use crate::redaction::error_text;
use crate::{facts, last_applied, machine};

/// The timeout for reading the facts and making the plan. It is long enough for all tries to reach the metadata
/// service, followed by all tries to reach a store.
const WITHIN: Duration = Duration::from_secs(100);

/// Returns two parts of a bundle: the facts about this node, and the plan. Also returns the secrets of the plan.
pub async fn parts(look: &NodeOptions) -> Told {
    let (of_facts, of_plan) = (look.clone(), look.clone());
    let (facts, planned) = tokio::join!(
        run_in_thread(WITHIN, move || run(observed(&of_facts))),
        run_in_thread(WITHIN, move || run(planned(&of_plan))),
    );
    let facts = facts.and_then(|facts| facts);
    let (plan, known) = match planned.and_then(|planned| planned) {
        Ok((plan, known)) => (plan, known),
        Err(why) => (Err(why), Vec::new()),
    };
    (vec![Part::json("facts.json", facts), Part::json("plan.json", plan)], known)
}

/// Runs `work` to its end on its own runtime.
fn run<T>(work: impl Future<Output = Result<T>>) -> Seen<T> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Unseen::new)?;
    runtime.block_on(Box::pin(work)).map_err(|error| Unseen::new(error_text(&error)))
}

async fn observed(look: &NodeOptions) -> Result<Value> {
    let provider = boot_config(&look.source.conf, &look.store).await.map(|boot| boot.cloud_provider).ok();
    let facts = match &look.facts {
        Some(file) => facts::load(file)?,
        None => match facts::observe(&look.source.node_root, provider).await {
            Ok(facts) => facts,
            Err(error) => {
                log::warn!("the bundle has no facts from the cloud: {}", error_text(&error));
                facts::observe(&look.source.node_root, None).await?
            }
        },
    };
    Ok(serde_json::to_value(facts)?)
}

/// The plan that `kops-agent verify` would make. If the wanted state is unknown, the plan is for the last applied state.
/// The secrets are returned even if no plan can be made.
async fn planned(look: &NodeOptions) -> Result<(Seen<Value>, Vec<SecretFact>)> {
    let options = look.clone();
    machine::must_exist(&look.source.node_root)?;
    let host = machine::open(&look.source.node_root)?;
    let decided = async {
        let hashes = HashSource::publishers(host.record()?.known_hashes);
        decide::decide(&options, hashes, &machine::before_on(&host)?).await
    };
    let decision: Decision = match Box::pin(decided).await {
        Ok(decision) => decision,
        Err(error) => Box::pin(last_applied::stand_in(&options, &host, error)).await?.decision,
    };
    let plan = plan(&host, &decision).context("comparing this machine with its wanted configuration");
    let plan = plan.and_then(|plan| Ok(serde_json::to_value(plan)?));
    let plan = plan.map_err(|error| Unseen::new(error_text(&error)));
    let secrets = decision.materials.secret_texts().into_iter().map(SecretFact::Secret);
    let mut known: Vec<SecretFact> = secrets.collect();
    known.extend(of_state(&decision.desired, Some(&Reader::open(&look.source.node_root)?)));
    known.push(SecretFact::Told);
    Ok((plan, known))
}
