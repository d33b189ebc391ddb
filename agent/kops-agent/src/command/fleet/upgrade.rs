//! `kops-agent fleet upgrade`: starts a rollout that takes nodes to another version of kops-agent. `fleet rollout` shows, pauses, resumes
//! and aborts it.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};

use kops_agent_cluster::fleet::{SeenNode, named, reported_program};
use kops_agent_cluster::rollout::{Blockers, DrainMode, PROGRAM_FILE, ProgramFile, Rollout, State};
use kops_agent_controller::fleet::nodes;
use kops_agent_controller::rollout::Stored;
use kops_agent_process::exit;
use kops_agent_process::output::one_line;

use super::rollout::{begin, client, id, must_exist};
use super::table::SHOWN_OF_PROBLEM;
use crate::cli::UpgradeArgs;
use crate::output;

/// Starts the rollout.
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
    let (reporting, left_out): (Vec<(&SeenNode, Option<String>)>, Vec<_>) = chosen
        .map(|node| (node, reported_program(&node.program, &node.agent_version)))
        .partition(|(_, sha256)| sha256.is_some());
    if !left_out.is_empty() {
        let names: Vec<&str> = left_out.iter().map(|(node, _)| node.name.as_str()).collect();
        output::print_text(&format!(
            "left out, because their kops-agent does not report its program and may be too old: {}\n",
            one_line(&named(&names), SHOWN_OF_PROBLEM)
        ))?;
    }
    let others = reporting
        .iter()
        .filter(|(_, sha256)| sha256.as_ref().is_some_and(|sha256| !program.sha256.contains(sha256)));
    let others = others.count();
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
        // Neither kubelet nor a pod restarts.
        drain: DrainMode::Never,
        may_go_back: false,
        reboot: None,
        program: Some(program),
        blocked_by: Blockers::default(),
        health_timeout: Rollout::health_timeout(),
        node_timeout: args.node_timeout,
        check_pods_after: 0,
        windows: args.windows.clone(),
    };
    begin(&Stored::new(client), &rollout).await
}
