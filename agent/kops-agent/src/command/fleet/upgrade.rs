//! `kops-agent fleet upgrade`: starts a rollout that takes nodes to another version of kops-agent. `fleet rollout` shows, pauses, resumes
//! and aborts it.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};

use kops_agent_cluster::fleet::named;
use kops_agent_cluster::rollout::{
    Blockers, DrainMode, PROGRAM_FILE, ProgramFile, Rollout, State, UpgradeChoice,
};
use kops_agent_controller::fleet::nodes;
use kops_agent_controller::rollout::Stored;
use kops_agent_controller::rollout::operator::{new_id, without_running};
use kops_agent_process::exit;
use kops_agent_process::output::one_line;
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_spec::terminal::SHOWN_OF_PROBLEM;

use super::must_exist;
use super::rollout::{begin, client};
use crate::cli::UpgradeArgs;
use crate::output;

/// Starts a rollout that upgrades kops-agent. Returns exit code 4 if the rollout would leave out all chosen nodes.
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
    let UpgradeChoice { silent, lacking, others, failed, current } = UpgradeChoice::new(chosen, &program);
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
            output::print_text(&format!("nodes left out, because {why}: {names}\n"))?;
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
            "{failed} nodes already run version {}, and check it again, because their last upgrade or check \
             failed",
            program.version
        ));
    }
    output::print_text(&format!(
        "{}. The rollout waits until {file} is copied to {PROGRAM_FILE} below the cluster's folder in the state \
         store\n",
        changes.join(", and ")
    ))?;
    let rollout = Rollout {
        id: new_id()?,
        state: State::Running,
        attempt: 1,
        instance_groups: wanted,
        max_unavailable: args.max_unavailable,
        canary: args.canary,
        // A new version of the agent restarts neither kubelet nor a pod, so no drain is needed.
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
