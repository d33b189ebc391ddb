//! `kops-agent fleet rollout`: what an operator does with a rollout.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use kops_agent_cluster::pacing::NAMESPACE;
use kops_agent_cluster::rollout::{CONFIG_MAP, Phase, Rollout, State, Status};
use kops_agent_net::random;
use kops_agent_process::exit::{self, WrongUsage};
use kops_agent_process::output::{self, Output, one_line};
use kops_agent_process::stop;
use kops_agent_spec::timestamp;
use kube::Client;
use time::OffsetDateTime;
use tokio::time::{Instant, sleep};

use super::args::{RolloutCommand, RolloutStartArgs, RolloutStatusArgs};
use super::config_map::{Read, Stored};
use super::table::{Shown, table};
use crate::fleet::{self, table::SHOWN_OF_PROBLEM};
use crate::kubernetes::{self, KubeconfigArgs};

/// How long `start` waits for a controller to begin the rollout. A controller looks every five seconds.
const TAKEN_UP_WITHIN: Duration = Duration::from_secs(20);
/// The pause between two looks at the ConfigMap.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs one of the commands.
///
/// # Errors
/// There is no kubeconfig, the API server rejects the request, or the rollout is in a state that does not allow it.
pub async fn run(command: &RolloutCommand) -> Result<u8> {
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
    let nodes = fleet::groups_of_nodes(client.clone()).await.context("listing Nodes")?;
    if let Some(unknown) = groups.difference(&nodes).next() {
        let known = nodes.iter().cloned().collect::<Vec<_>>().join(", ");
        let problem =
            format!("no Node has the instance group {unknown:?}; the groups of the Nodes are: {known}");
        return Err(WrongUsage(problem).into());
    }
    let stored = Stored::of(client);
    let before = stored.read().await.context(READING)?;
    if let Some(Read { rollout: Ok(Some(running)), status, .. }) = &before
        && running.state != State::Aborted
        && !status.is_done(running)
    {
        bail!(
            "the rollout {} is not over: see `kops-agent fleet rollout status`, and end it with `kops-agent fleet rollout abort` first",
            running.id
        );
    }
    let rollout = Rollout {
        id: id()?,
        state: State::Running,
        attempt: 1,
        instance_groups: groups,
        max_unavailable: args.max_unavailable,
        canary: args.canary,
        drain: args.drain.into(),
        may_go_back: args.go_back,
        health_timeout: args.health_timeout,
        node_timeout: args.node_timeout,
        windows: args.windows.clone(),
    };
    stored.start(&rollout, before.as_ref()).await.with_context(|| {
        format!("writing the ConfigMap {NAMESPACE}/{CONFIG_MAP}; the namespace is in packaging/kubernetes/rbac.yaml")
    })?;
    output::print_text(&format!("started the rollout {}\n", rollout.id))?;
    let begun = Instant::now();
    loop {
        let status = stored.read().await.context(READING)?.map(|read| read.status).unwrap_or_default();
        if status.answers(&rollout) {
            if !status.waits_for.is_empty() {
                output::print_text(&format!(
                    "it waits for: {}\n",
                    one_line(&status.waits_for, SHOWN_OF_PROBLEM)
                ))?;
            }
            return Ok(exit::CONVERGED);
        }
        if begun.elapsed() >= TAKEN_UP_WITHIN {
            bail!(
                "no controller has begun the rollout {} within {} s, so no node changes yet; it begins once `kops-agent controller` of this \
                 version leads and has the rights of packaging/kubernetes/rbac.yaml (its log says what it misses). `kops-agent fleet rollout \
                 abort` takes the rollout back",
                rollout.id,
                TAKEN_UP_WITHIN.as_secs()
            );
        }
        sleep(PAUSE).await;
    }
}

async fn change(kubeconfig: &KubeconfigArgs, state: State) -> Result<u8> {
    let stored = Stored::of(client(kubeconfig)?);
    let (mut rollout, read) = existing(&stored).await?;
    if rollout.state == State::Aborted {
        bail!("the rollout {} was aborted; start another one", rollout.id);
    }
    if read.status.is_done(&rollout) {
        bail!("the rollout {} is done", rollout.id);
    }
    if state == State::Running {
        rollout.attempt += 1;
    }
    rollout.state = state;
    stored
        .change(&rollout, &read)
        .await
        .context("changing the rollout; if someone else changed it, repeat this command")?;
    let what = match state {
        State::Running => "resumed",
        State::Paused => "paused",
        State::Aborted => "aborted",
    };
    output::print_text(&format!("{what} the rollout {}\n", rollout.id))
}

async fn status(args: &RolloutStatusArgs) -> Result<u8> {
    let stored = Stored::of(client(&args.kubeconfig)?);
    let (mut rollout, mut read) = existing(&stored).await?;
    print(&rollout, &read.status, args.output)?;
    if args.watch {
        let mut stopped = pin!(stop::asked()?);
        while !is_ended(&rollout, &read.status) {
            tokio::select! {
                _ = &mut stopped => break,
                () = sleep(PAUSE) => {}
            }
            let (next, now) = existing(&stored).await?;
            if (&next, &now.status) != (&rollout, &read.status) {
                print(&next, &now.status, args.output)?;
            }
            (rollout, read) = (next, now);
        }
    }
    Ok(if read.status.is_done(&rollout) { exit::CONVERGED } else { exit::DIFFERENT })
}

/// Whether nothing changes any more unless an operator acts.
fn is_ended(rollout: &Rollout, status: &Status) -> bool {
    [Phase::Done, Phase::Stopped, Phase::Aborted].into_iter().any(|phase| status.is_in(phase, rollout))
}

fn print(rollout: &Rollout, status: &Status, output: Output) -> Result<()> {
    let shown = Shown::of(rollout, status);
    match output {
        Output::Json => drop(output::print_json(&shown)?),
        Output::Text => drop(output::print_text(&table(&shown))?),
    }
    Ok(())
}

const READING: &str = "reading the ConfigMap kops-agent/rollout";

/// The rollout of the ConfigMap.
async fn existing(stored: &Stored) -> Result<(Rollout, Read)> {
    let none = || anyhow!("there is no rollout; `kops-agent fleet rollout start` begins one");
    let read = stored.read().await.context(READING)?.ok_or_else(none)?;
    let rollout = read.rollout.clone().map_err(|problem| anyhow!(problem))?.ok_or_else(none)?;
    Ok((rollout, read))
}

fn client(kubeconfig: &KubeconfigArgs) -> Result<Client> {
    kubernetes::client_of(&kubeconfig.choose(None, |name| std::env::var_os(name))?)
}

/// A new ID: the time, for people, and random digits, because two operators may start at once.
fn id() -> Result<String> {
    let random = random::bytes::<4>()?;
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{}-{digits}", timestamp(OffsetDateTime::now_utc())))
}
