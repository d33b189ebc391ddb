//! The refusal of a machine that cannot have its configuration.

use kops_agent_cloud::verify::{Answer, Refusal};

/// The reason of a refusal by [`no_node_config`].
pub(super) const NO_NODE_CONFIG: &str = "NoNodeConfig";

/// Refuses a configuration that cannot be built until the store changes.
pub(super) fn no_node_config(problem: String) -> Refusal {
    Refusal {
        answer: Answer::BadRequest,
        reason: NO_NODE_CONFIG,
        message: format!("failed to build node config: {problem}"),
    }
}
