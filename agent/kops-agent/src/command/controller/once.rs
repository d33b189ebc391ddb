//! The output and the exit code of `kops-agent controller --once`.

use std::collections::BTreeSet;

use anyhow::Result;

use kops_agent_cluster::pod_ranges::NodePatch;
use kops_agent_controller::Found;
use kops_agent_process::exit;

use crate::output;

/// Prints the patches that were not applied, and logs a summary and the problems.
pub(super) fn print(found: &Found) -> Result<u8> {
    for (node, problem) in &found.problems {
        log::warn!("the Node {node}: {problem}");
    }
    log::info!("{}", summary(found));
    let text: String = found.patches.iter().map(|(node, patch)| shown(node, patch)).collect();
    let printed = output::print_text(&text)?;
    Ok(if found.failed == 0 { printed } else { exit::FAILED })
}

fn summary(found: &Found) -> String {
    let changes = match (found.patched, found.patches.len()) {
        (0, 0) => "no Node needs a change".to_owned(),
        (0, shown) => format!("{shown} Nodes would change"),
        (patched, _) => format!("{patched} Nodes were changed"),
    };
    let refused = found.problems.len() - found.failed;
    match (refused, found.failed) {
        (0, 0) => changes,
        (refused, 0) => format!("{changes}; {refused} Nodes are refused"),
        (0, failed) => format!("{changes}; {failed} Nodes failed: run this again"),
        (refused, failed) => {
            format!("{changes}; {refused} Nodes are refused, and {failed} failed: run this again")
        }
    }
}

/// Formats a patch as a diff.
fn shown(node: &str, patch: &NodePatch) -> String {
    let NodePatch { labels, pod_ranges } = patch;
    let patch = labels.clone().unwrap_or_default();
    let line = |sign: char, key: &str, value: Option<&String>| {
        value.map_or_else(String::new, |value| format!("  {sign} {key}: {value:?}\n"))
    };
    let keys: BTreeSet<&String> = patch.before.keys().chain(patch.set.keys()).collect();
    let lines = keys
        .into_iter()
        .map(|key| line('-', key, patch.before.get(key)) + &line('+', key, patch.set.get(key)));
    let ranges = pod_ranges.iter().map(|range| format!("  + spec.podCIDRs: {range:?}\n"));
    format!("node {node}\n{}", lines.chain(ranges).collect::<String>())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use kops_agent_cluster::labels::LabelPatch;

    use super::*;

    #[test]
    fn a_changed_label_is_shown_as_it_is_and_as_it_would_be() {
        let labels = |labels: &[(&str, &str)]| {
            labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let patch = LabelPatch {
            set: labels(&[("new", "1"), ("other", "after")]),
            remove: ["gone".to_owned()].into(),
            before: labels(&[("other", "before"), ("gone", "")]),
        };
        let ranges = vec!["2001:db8::/80".to_owned()];
        assert_eq!(
            shown("i-1", &NodePatch { labels: Some(patch), pod_ranges: ranges }),
            "node i-1\n  - gone: \"\"\n  + new: \"1\"\n  - other: \"before\"\n  + other: \"after\"\n  \
             + spec.podCIDRs: \"2001:db8::/80\"\n"
        );
    }

    #[test]
    fn a_summary_counts_changed_refused_and_failed_nodes() {
        let mut found = Found::default();
        assert_eq!(print(&found).unwrap(), exit::CONVERGED);
        found.patches.insert("i-1".into(), NodePatch::default());
        found.problems.insert("i-2".into(), "it is another's".into());
        assert_eq!(summary(&found), "1 Nodes would change; 1 Nodes are refused");
        assert_eq!(print(&found).unwrap(), exit::CONVERGED);

        let mut found = Found { patched: 3, failed: 1, ..Found::default() };
        found.problems.insert("i-2".into(), "EC2 does not answer".into());
        assert_eq!(summary(&found), "3 Nodes were changed; 1 Nodes failed: run this again");
        assert_eq!(print(&found).unwrap(), exit::FAILED);
    }
}
