//! The name of the API server.

use kops_agent_spec::NodeupConfig;

/// The name under which the nodes find the API server.
pub(super) fn internal(config: &NodeupConfig) -> String {
    format!("api.internal.{}", config.cluster_name)
}
