//! `kops-agent fleet rollout`: the commands by which an operator starts, watches, pauses, resumes and aborts a rollout.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::sleep;

use kops_agent_cluster::rollout::shown::{Shown, table};
use kops_agent_cluster::rollout::{Blockers, Rollout, State};
use kops_agent_controller::fleet::nodes::groups_of_nodes;
use kops_agent_controller::rollout::Stored;
use kops_agent_controller::rollout::operator::{self, new_id};
use kops_agent_kube::Client;
use kops_agent_process::exit;
use kops_agent_process::output::one_line;
use kops_agent_process::stop;
use kops_agent_spec::terminal::SHOWN_OF_PROBLEM;

use super::must_exist;
use crate::cli::{KubeconfigArgs, Output, RolloutCommand, RolloutStartArgs, RolloutStatusArgs};
use crate::output;

/// The pause between two reads of the ConfigMap.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) async fn run(command: &RolloutCommand) -> Result<u8> {
    match command {
        RolloutCommand::Start(args) => start(args).await,
        RolloutCommand::Status(args) => status(args).await,
        RolloutCommand::Pause(kubeconfig) => change(kubeconfig, State::Paused).await,
        RolloutCommand::Resume(kubeconfig) => change(kubeconfig, State::Running).await,
        RolloutCommand::Abort(kubeconfig) => change(kubeconfig, State::Aborted).await,
    }
}

async fn start(args: &RolloutStartArgs) -> Result<u8> {
    let client = client(&args.kubeconfig)?;
    let groups: BTreeSet<String> = args.instance_groups.iter().cloned().collect();
    let nodes = groups_of_nodes(client.clone()).await.context("listing Nodes")?;
    must_exist(&args.instance_groups, &nodes)?;
    let rollout = Rollout {
        id: new_id()?,
        state: State::Running,
        attempt: 1,
        instance_groups: groups,
        max_unavailable: args.max_unavailable,
        canary: args.canary,
        drain: args.drain.into(),
        may_go_back: args.go_back,
        reboot: None,
        program: None,
        blocked_by: Blockers::default(),
        health_timeout: args.health_timeout,
        node_timeout: args.node_timeout,
        check_pods_after: args.check_pods_after,
        observe: 0,
        windows: args.windows.clone(),
    };
    begin(&Stored::new(client), &rollout).await
}

/// Starts a rollout, and waits until a controller has begun it. Fails if another rollout is still active.
pub(super) async fn begin(stored: &Stored, rollout: &Rollout) -> Result<u8> {
    operator::start(stored, rollout).await?;
    output::print_text(&format!("started the rollout {}\n", rollout.id))?;
    let status = operator::until_begun(stored, rollout).await?;
    if !status.waits_for.is_empty() {
        output::print_text(&format!("it waits for: {}\n", one_line(&status.waits_for, SHOWN_OF_PROBLEM)))?;
    }
    Ok(exit::CONVERGED)
}

async fn change(kubeconfig: &KubeconfigArgs, state: State) -> Result<u8> {
    let changed = operator::change(&Stored::new(client(kubeconfig)?), state).await?;
    let what = match state {
        State::Running => "resumed",
        State::Paused => "paused",
        State::Aborted => "aborted",
    };
    output::print_text(&format!("{what} {changed}\n"))
}

async fn status(args: &RolloutStatusArgs) -> Result<u8> {
    let stored = Stored::new(client(&args.kubeconfig)?);
    let mut shown = operator::shown(&stored).await?;
    print(&shown, args.output)?;
    if args.watch {
        let mut stopped = pin!(stop::signal_received()?);
        while !shown.is_ended() {
            tokio::select! {
                _ = &mut stopped => break,
                () = sleep(PAUSE) => {}
            }
            let now = operator::shown(&stored).await?;
            if now != shown {
                print(&now, args.output)?;
            }
            shown = now;
        }
    }
    Ok(if shown.is_done() { exit::CONVERGED } else { exit::DIFFERENT })
}

fn print(shown: &Shown, output: Output) -> Result<()> {
    match output {
        Output::Json => drop(output::print_json(shown)?),
        Output::Text => drop(output::print_text(&table(shown))?),
    }
    Ok(())
}

pub(super) fn client(kubeconfig: &KubeconfigArgs) -> Result<Client> {
    kops_agent_kube::client_of(&kubeconfig.choose(None)?)
}
