//! Finds where a value on the machine comes from, by deciding the node again from changed documents.

use anyhow::Result;
use kops_agent_plan::desired;
use kops_agent_plan::explain::{self, Line, Question, Source};
use kops_agent_plan::resolve::{self, Inputs};
use kops_agent_plan::resource::DesiredState;
use kops_agent_source::{NodeSpec, Origin, trust_the_boot_configs_authority};
use kops_agent_spec::facts::Facts;
use kops_agent_spec::{BootConfig, Cluster, InstanceGroup, NodeupConfig, parse_document};
use serde_json::Value;

/// The lines that answer a question about a node. Empty if the node has nothing with the name in the question. `conf`
/// is the name of the boot config.
pub fn explain(spec: &NodeSpec, conf: &str, question: &Question, shows_secrets: bool) -> Result<Vec<Line>> {
    let sources = sources(spec, conf)?;
    Ok(explain::explain(&sources, question, |documents| {
        let state = decide(spec, documents);
        if shows_secrets { state.map(DesiredState::without_free_text) } else { state }
    }))
}

/// The documents from which the desired state is derived: first the files of the state store, then the boot config,
/// then the facts.
fn sources(spec: &NodeSpec, conf: &str) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for file in spec.origin.files() {
        sources.push(Source { value: parse_document(&file.text, &file.url)?, name: file.url });
    }
    sources.push(Source { name: conf.to_owned(), value: serde_json::to_value(&spec.inputs.boot)? });
    sources.push(Source { name: "facts".to_owned(), value: serde_json::to_value(&spec.inputs.facts)? });
    Ok(sources)
}

/// Derives the desired state from `documents`, which are in the order of [`sources`].
fn decide(spec: &NodeSpec, documents: &[Value]) -> Option<DesiredState> {
    let [of_store @ .., boot, facts] = documents else { return None };
    let boot = BootConfig::from_document(boot, "").ok()?;
    let facts: Facts = serde_json::from_value(facts.clone()).ok()?;
    let mut config = match &spec.origin {
        Origin::ClusterSpec(derivation) => {
            let [cluster, group] = of_store else { return None };
            let cluster = Cluster::from_document(cluster.clone(), "").ok()?;
            let group = InstanceGroup::from_document(group.clone(), "").ok()?;
            derivation.of_changed(&cluster, &group).ok()?
        }
        Origin::NodeupConfig(_) => NodeupConfig::from_document(of_store.first()?, "").ok()?,
    };
    trust_the_boot_configs_authority(&boot, &mut config);
    let inputs = Inputs { boot, config, facts, ..spec.inputs.clone() };
    desired::desired(&resolve::resolve(inputs).ok()?).ok()
}
