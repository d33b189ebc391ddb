//! Decides whether machines of a group update their packages automatically.

use kops_agent_spec::NodeupConfig;

use super::Problems;

/// Whether this machine updates its own packages. With the policy `external`, another tool updates them.
pub(super) fn resolve(config: &NodeupConfig, problems: &mut Problems) -> bool {
    match config.update_policy.as_str() {
        "external" => false,
        "automatic" | "" => true,
        other => {
            problems.add("UpdatePolicy", format!("{other:?} is no update policy; set automatic or external"));
            true
        }
    }
}
