//! The output and the exit code of `kops-agent controller --once`.

use anyhow::Result;

use kops_agent_controller::Found;
use kops_agent_process::exit;

use crate::output;

/// Prints the patches of a dry run, and logs a summary and the problems.
pub(super) fn print(found: &Found) -> Result<u8> {
    for (node, problem) in &found.problems {
        log::warn!("the Node {node}: {problem}");
    }
    log::info!("{}", found.summary());
    let text: String = found.patches.iter().map(|(node, patch)| patch.diff(node)).collect();
    let printed = output::print_text(&text)?;
    Ok(if found.failed == 0 { printed } else { exit::FAILED })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use kops_agent_cluster::pod_ranges::NodePatch;

    use super::*;

    #[test]
    fn only_failed_nodes_make_the_command_fail() {
        let mut found = Found::default();
        assert_eq!(print(&found).unwrap(), exit::CONVERGED);
        found.patches.insert("i-1".into(), NodePatch::default());
        found.problems.insert("i-2".into(), "it is another's".into());
        assert_eq!(print(&found).unwrap(), exit::CONVERGED);

        let mut found = Found { patched: 3, failed: 1, ..Found::default() };
        found.problems.insert("i-2".into(), "EC2 does not answer".into());
        assert_eq!(print(&found).unwrap(), exit::FAILED);
    }
}
