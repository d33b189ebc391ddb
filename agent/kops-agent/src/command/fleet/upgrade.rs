//! `kops-agent fleet upgrade`: starts a rollout that takes nodes to another version of kops-agent. `fleet rollout` shows, pauses, resumes
//! and aborts it.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};

use kops_agent_cluster::fleet::{SeenNode, named, reported_program};
use kops_agent_cluster::rollout::{
    Blockers, DrainMode, PROGRAM_FILE, ProgramFile, Rollout, State, WantedProgram,
};
use kops_agent_controller::fleet::nodes;
use kops_agent_controller::rollout::Stored;
use kops_agent_process::exit;
use kops_agent_process::output::one_line;

use super::rollout::{begin, client, id, must_exist};
use super::table::SHOWN_OF_PROBLEM;
use crate::cli::UpgradeArgs;
use crate::output;

/// Starts the rollout. Returns exit code 4 if the rollout would leave out all chosen nodes.
///
/// # Errors
/// The program file is wrong, no Node has a given group, a rollout is not over, or the API server rejects the request.
pub(super) async fn run(args: &UpgradeArgs) -> Result<u8> {
    let file = args.program.display().to_string();
    let text = std::fs::read(&args.program).with_context(|| format!("reading the program file {file}"))?;
    let program = ProgramFile::parse(&text, &file)?.wanted();
    let client = client(&args.kubeconfig)?;
    let nodes = nodes::all(client.clone()).await.context("listing Nodes")?;
    let groups: BTreeSet<String> =
        nodes.iter().map(|node| node.group.clone()).filter(|group| !group.is_empty()).collect();
    let wanted: BTreeSet<String> = args.instance_groups.iter().cloned().collect();
    must_exist(&wanted, &groups)?;
    let chosen = nodes
        .iter()
        .filter(|node| !node.group.is_empty() && (wanted.is_empty() || wanted.contains(&node.group)));
    let Chosen { silent, lacking, others, current } = Chosen::new(chosen, &program);
    for (left_out, why) in [
        (&silent, "their kops-agent does not report its program and may be too old"),
        (&lacking, "the program file has no program for their architecture"),
    ] {
        if !left_out.is_empty() {
            let names = one_line(&named(left_out), SHOWN_OF_PROBLEM);
            output::print_text(&format!("left out, because {why}: {names}\n"))?;
        }
    }
    if others == 0 && current == 0 {
        output::print_text("all of these nodes are left out, so no rollout begins\n")?;
        return Ok(exit::DIFFERENT);
    }
    if others == 0 {
        output::print_text("no such node reports another program, so nothing changes\n")?;
        return Ok(exit::CONVERGED);
    }
    output::print_text(&format!(
        "{others} nodes change to version {} of kops-agent, once the state store has {file} as {PROGRAM_FILE} below the cluster's folder\n",
        program.version
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
        observe: args.observe,
        windows: args.windows.clone(),
    };
    begin(&Stored::new(client), &rollout).await
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
    /// The number of nodes that run the program already.
    current: usize,
}

impl<'a> Chosen<'a> {
    fn new(nodes: impl Iterator<Item = &'a SeenNode>, wanted: &WantedProgram) -> Chosen<'a> {
        let mut chosen = Chosen::default();
        for node in nodes {
            match reported_program(&node.program, &node.agent_version) {
                None => chosen.silent.push(&node.name),
                Some(sha256) if wanted.has(&sha256) => chosen.current += 1,
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
        let nodes = [
            node("silent", "amd64", ""),
            node("other", "amd64", "0"),
            node("unknown", "", "0"),
            node("lacking", "arm64", "0"),
            node("current", "amd64", "a"),
        ];
        let file =
            format!("version: 0.2.0\nprograms: {{amd64: {{url: 's3://b/x', sha256: {}}}}}", sha256("a"));
        let wanted = ProgramFile::parse(file.as_bytes(), "").unwrap().wanted();
        let chosen = Chosen::new(nodes.iter(), &wanted);
        assert_eq!(
            chosen,
            Chosen { silent: vec!["silent"], lacking: vec!["lacking"], others: 2, current: 1 }
        );
    }
}
