//! Whether machines of this group keep their packages up to date by themselves.

use kops_agent_spec::NodeupConfig;

use super::Problems;

/// Whether they do; something else does where the policy is `external`.
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
