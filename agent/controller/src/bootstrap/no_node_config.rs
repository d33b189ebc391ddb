//! The answer to a machine that cannot have its configuration.

use kops_agent_cloud::verify::{Answer, Refusal};

/// Why a machine cannot have its configuration, in a word.
pub(super) const NO_NODE_CONFIG: &str = "NoNodeConfig";

/// A machine cannot have its configuration, as long as the store has what it has.
pub(super) fn no_node_config(problem: String) -> Refusal {
    Refusal {
        answer: Answer::BadRequest,
        reason: NO_NODE_CONFIG,
        message: format!("failed to build node config: {problem}"),
    }
}
