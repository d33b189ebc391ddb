//! Hides the secrets and the free text of this node in logs, errors and the record, also where another program's message repeats them.
//!
//! The values are learnt when the specification is read, and count for the whole process: one process handles one node.
//! In outputs that the agent makes itself, [`kops_agent_plan::shown`] has already hidden values by their origin.

use std::sync::Arc;

use kops_agent_plan::shown;
use kops_agent_process::output;
use kops_agent_spec::redaction::Redactor;
use kops_agent_spec::redaction::manifest::Manifest;
use kops_agent_spec::{free_text, go_yaml};
use parking_lot::RwLock;

use kops_agent_source::NodeSpec;

static REDACTOR: RwLock<Option<Arc<Redactor>>> = RwLock::new(None);

/// Registers the secrets and the free text of a node, so that output hides them.
pub fn learn(spec: &NodeSpec) {
    // The configuration, the facts and the boot config are types of the agent, and always have a JSON form.
    let config = serde_json::to_value(&spec.inputs.config).unwrap_or_default();
    let facts = serde_json::to_value(&spec.inputs.facts).unwrap_or_default();
    let boot = serde_json::to_value(&spec.inputs.boot).unwrap_or_default();
    let secrets = spec.secrets.values().map(|secret| String::from_utf8_lossy(secret.expose()).into_owned());
    let redactor = secrets.fold(Redactor::default(), |redactor, secret| redactor.hiding_secret(&secret));
    let manifests = spec.inputs.manifests.values().filter_map(|text| Manifest::read(text));
    let variables: Vec<String> = manifests.flat_map(|manifest| manifest.values().to_vec()).collect();
    let free_text = free_text::values(&config).into_iter().chain(variables);
    let redactor = free_text.fold(redactor, |redactor, text| redactor.hiding_free_text(&text));
    let public = [shown::document(config), facts, boot];
    let redactor =
        public.iter().fold(redactor, |redactor, value| redactor.showing(&go_yaml::value_to_string(value)));
    *REDACTOR.write() = Some(Arc::new(redactor));
}

/// Hides known secrets and free text in a text.
pub fn masked(text: String) -> String {
    let redactor = REDACTOR.read().clone();
    match redactor {
        Some(redactor) => redactor.without_known(text),
        None => text,
    }
}

/// An error and its causes, with known secrets and free text hidden.
pub fn error_text(error: &anyhow::Error) -> String {
    masked(output::error_text(error))
}
