//! The choice of the nodes that change to another version of kops-agent.

use crate::fleet::{SeenNode, reported_program};
use crate::rollout::{Outcome, WantedProgram};

/// The nodes that an operator has chosen for an upgrade, grouped by what the upgrade does with them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct UpgradeChoice<'a> {
    /// Nodes that do not report which program they run.
    pub silent: Vec<&'a str>,
    /// Nodes of an architecture for which the file has no program.
    pub lacking: Vec<&'a str>,
    /// The number of nodes that get the program.
    pub others: usize,
    /// The number of nodes that already run the program, and whose last upgrade or check failed.
    pub failed: usize,
    /// The number of nodes that already run the program, and whose last upgrade and check did not fail.
    pub current: usize,
}

impl<'a> UpgradeChoice<'a> {
    pub fn new(nodes: impl Iterator<Item = &'a SeenNode>, wanted: &WantedProgram) -> UpgradeChoice<'a> {
        let mut chosen = UpgradeChoice::default();
        for node in nodes {
            match reported_program(&node.program, &node.agent_version) {
                None => chosen.silent.push(&node.name),
                Some(program) if wanted.has(&program.sha256) => {
                    let outcome = Outcome::read(&node.outcome);
                    let has_failed = outcome.is_some_and(|outcome| outcome.is_failed_upgrade());
                    match program.is_unchecked || has_failed {
                        true => chosen.failed += 1,
                        false => chosen.current += 1,
                    }
                }
                Some(_) if wanted.lacks(&node.architecture) => chosen.lacking.push(&node.name),
                Some(_) => chosen.others += 1,
            }
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::fleet::ProgramReport;
    use crate::rollout::ProgramFile;

    #[test]
    fn nodes_that_cannot_take_the_program_are_left_out_by_reason() {
        let sha256 = |digit: &str| digit.repeat(64);
        let node = |name: &str, architecture: &str, runs: &str| SeenNode {
            name: name.into(),
            architecture: architecture.into(),
            agent_version: "0.1.0".into(),
            program: ProgramReport::new("0.1.0", &sha256(runs)).value().unwrap_or_default(),
            ..SeenNode::default()
        };
        let with_outcome = |name: &str, program: bool, problem: &str| SeenNode {
            outcome:
                json!({"rollout": "r", "attempt": 1, "hash": "b=", "program": program, "problem": problem})
                    .to_string(),
            ..node(name, "amd64", "a")
        };
        let nodes = [
            node("silent", "amd64", ""),
            node("other", "amd64", "0"),
            node("unknown", "", "0"),
            node("lacking", "arm64", "0"),
            node("current", "amd64", "a"),
            with_outcome("done", true, ""),
            with_outcome("failed", true, "its service has ended"),
            with_outcome("of-configuration", false, "kubelet is dead"),
            SeenNode {
                program: ProgramReport::new("0.1.0", &sha256("a")).unchecked(true).value().unwrap(),
                ..with_outcome("unchecked", false, "")
            },
        ];
        let file =
            format!("version: 0.2.0\nprograms: {{amd64: {{url: 's3://b/x', sha256: {}}}}}", sha256("a"));
        let wanted = ProgramFile::parse(file.as_bytes(), "").unwrap().wanted();
        let chosen = UpgradeChoice::new(nodes.iter(), &wanted);
        assert_eq!(
            chosen,
            UpgradeChoice {
                silent: vec!["silent"],
                lacking: vec!["lacking"],
                others: 2,
                failed: 2,
                current: 3,
            }
        );
    }
}
