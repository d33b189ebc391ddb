//! `kops-agent fleet upgrade`: starts a rollout that takes nodes to another version of kops-agent. `fleet rollout` shows, pauses, resumes
//! and aborts it.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};

use kops_agent_cluster::fleet::{SeenNode, named, reported_program};
use kops_agent_cluster::rollout::{
    Blockers, DrainMode, Outcome, PROGRAM_FILE, ProgramFile, Rollout, State, WantedProgram,
};
use kops_agent_controller::fleet::nodes;
use kops_agent_controller::rollout::Stored;
use kops_agent_process::exit;
use kops_agent_process::output::one_line;
use kops_agent_spec::failure::{Failure, Kind};

use super::must_exist;
use super::rollout::{begin, client, id, without_running};
use super::table::SHOWN_OF_PROBLEM;
use crate::cli::UpgradeArgs;
use crate::output;

/// Starts the rollout. Returns exit code 4 if the rollout would leave out all chosen nodes.
pub(super) async fn run(args: &UpgradeArgs) -> Result<u8> {
    if args.observe.is_some() && args.canary == 0 {
        let problem =
            "--observe needs --canary: only canaries are observed; add `--canary 1`, or leave --observe out";
        return Err(Failure::new(Kind::WrongUsage, problem).into());
    }
    let file = args.program.display().to_string();
    let text = std::fs::read(&args.program).with_context(|| format!("reading the program file {file}"))?;
    let program = ProgramFile::parse(&text, &file)?.wanted();
    let client = client(&args.kubeconfig)?;
    let nodes = nodes::all(client.clone()).await.context("listing Nodes")?;
    let groups: BTreeSet<String> =
        nodes.iter().map(|node| node.group.clone()).filter(|group| !group.is_empty()).collect();
    must_exist(&args.instance_groups, &groups)?;
    let wanted: BTreeSet<String> = args.instance_groups.iter().cloned().collect();
    let chosen = nodes
        .iter()
        .filter(|node| !node.group.is_empty() && (wanted.is_empty() || wanted.contains(&node.group)));
    let Chosen { silent, lacking, others, failed, current } = Chosen::new(chosen, &program);
    let stored = Stored::new(client);
    if others + failed > 0 {
        without_running(&stored).await?;
    }
    for (left_out, why) in [
        (&silent, "their kops-agent does not report its program and may be too old"),
        (&lacking, "the program file has no program for their architecture"),
    ] {
        if !left_out.is_empty() {
            let names = one_line(&named(left_out), SHOWN_OF_PROBLEM);
            output::print_text(&format!("left out, because {why}: {names}\n"))?;
        }
    }
    match (others + failed, current) {
        (0, 0) => {
            output::print_text("all of these nodes are left out, so no rollout begins\n")?;
            return Ok(exit::DIFFERENT);
        }
        (0, _) => {
            output::print_text("no such node reports another program, so nothing changes\n")?;
            return Ok(exit::CONVERGED);
        }
        _ => {}
    }
    let mut changes: Vec<String> = Vec::new();
    if others > 0 {
        changes.push(format!("{others} nodes change to version {} of kops-agent", program.version));
    }
    if failed > 0 {
        changes.push(format!(
            "{failed} nodes run version {} and check it again, because their last upgrade failed",
            program.version
        ));
    }
    output::print_text(&format!(
        "{}. The rollout waits until the state store has {file} as {PROGRAM_FILE} below the cluster's \
         folder\n",
        changes.join(", and ")
    ))?;
    let rollout = Rollout {
        id: id()?,
        state: State::Running,
        attempt: 1,
        instance_groups: wanted,
        max_unavailable: args.max_unavailable,
        canary: args.canary,
        // A change of the agent's version restarts neither kubelet nor a pod.
        drain: DrainMode::Never,
        may_go_back: false,
        reboot: None,
        program: Some(program),
        blocked_by: Blockers::default(),
        health_timeout: Rollout::health_timeout(),
        node_timeout: args.node_timeout,
        check_pods_after: 0,
        observe: args.observe.unwrap_or(Rollout::observe()),
        windows: args.windows.clone(),
    };
    begin(&stored, &rollout).await
}

/// The chosen nodes, by what the rollout does with them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Chosen<'a> {
    /// Nodes that do not report their program.
    silent: Vec<&'a str>,
    /// Nodes of an architecture for which the file has no program.
    lacking: Vec<&'a str>,
    /// The number of nodes that change.
    others: usize,
    /// The number of nodes that run the program already, and whose last upgrade or check failed.
    failed: usize,
    /// The number of all other nodes that run the program already.
    current: usize,
}

impl<'a> Chosen<'a> {
    fn new(nodes: impl Iterator<Item = &'a SeenNode>, wanted: &WantedProgram) -> Chosen<'a> {
        let mut chosen = Chosen::default();
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
    use kops_agent_cluster::fleet::ProgramReport;
    use serde_json::json;

    use super::*;

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
        let chosen = Chosen::new(nodes.iter(), &wanted);
        assert_eq!(
            chosen,
            Chosen { silent: vec!["silent"], lacking: vec!["lacking"], others: 2, failed: 2, current: 3 }
        );
    }
}
