//! `kops-agent fleet rollout`: the commands by which an operator starts, watches, pauses, resumes and aborts a rollout.

mod table;

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, Result};
use time::OffsetDateTime;
use tokio::time::{Instant, sleep};

use kops_agent_cluster::pacing::NAMESPACE;
use kops_agent_cluster::rollout::{
    Blockers, CONFIG_MAP, POLICY_KEY, Policy, PolicyState, PolicyStatus, Rollout, State,
};
use kops_agent_controller::fleet::nodes::groups_of_nodes;
use kops_agent_controller::rollout::{Read, Stored};
use kops_agent_kube::Client;
use kops_agent_net::random;
use kops_agent_process::exit;
use kops_agent_process::output::one_line;
use kops_agent_process::stop;
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_spec::timestamp;

use super::must_exist;
use super::table::SHOWN_OF_PROBLEM;
use crate::cli::{KubeconfigArgs, Output, RolloutCommand, RolloutStartArgs, RolloutStatusArgs};
use crate::output;
use table::{Shown, ShownPolicy, table};

/// How long `start` waits for a controller to begin the rollout. A controller reads the ConfigMap every five seconds.
const TAKEN_UP_WITHIN: Duration = Duration::from_secs(20);
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
        id: id()?,
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

/// Reads the ConfigMap; `None` if it does not exist. Fails if a rollout is not over.
pub(super) async fn without_running(stored: &Stored) -> Result<Option<Read>> {
    let before = stored.read().await.context(READING)?;
    if let Some(read) = &before
        && let Ok(Some(running)) = &read.rollout
        && !has_ended(running, read)
    {
        return Err(not_now(format!(
            "the rollout {} is not over: see `kops-agent fleet rollout status`, and end it with `kops-agent fleet rollout abort` first",
            running.id
        )));
    }
    Ok(before)
}

/// Starts a rollout, unless another one is not over, and waits until a controller leads it. If no controller leads the
/// rollout in time, this function fails and the ConfigMap keeps the rollout.
pub(super) async fn begin(stored: &Stored, rollout: &Rollout) -> Result<u8> {
    let before = without_running(stored).await?;
    stored.start(rollout, before.as_ref()).await.with_context(|| {
        format!("writing the ConfigMap {NAMESPACE}/{CONFIG_MAP}; the namespace is in packaging/kubernetes/rbac.yaml")
    })?;
    output::print_text(&format!("started the rollout {}\n", rollout.id))?;
    let begun = Instant::now();
    loop {
        let status = stored.read().await.context(READING)?.map(|read| read.status).unwrap_or_default();
        if status.answers(rollout) {
            if !status.waits_for.is_empty() {
                output::print_text(&format!(
                    "it waits for: {}\n",
                    one_line(&status.waits_for, SHOWN_OF_PROBLEM)
                ))?;
            }
            return Ok(exit::CONVERGED);
        }
        if begun.elapsed() >= TAKEN_UP_WITHIN {
            return Err(not_now(format!(
                "no controller has started the rollout {} within {} s, so no node changes yet. The rollout \
                 starts once `kops-agent controller` of this version leads and has the rights of \
                 packaging/kubernetes/rbac.yaml; the log of the controller names missing rights. `kops-agent \
                 fleet rollout abort` cancels the rollout",
                rollout.id,
                TAKEN_UP_WITHIN.as_secs()
            )));
        }
        sleep(PAUSE).await;
    }
}

async fn change(kubeconfig: &KubeconfigArgs, state: State) -> Result<u8> {
    let stored = Stored::new(client(kubeconfig)?);
    let read = existing(&stored).await?;
    let rollout = rollout_of(&read)?;
    let changing = "changing the rollout; if someone else changed it, repeat this command";
    let what = match state {
        State::Running => "resumed",
        State::Paused => "paused",
        State::Aborted => "aborted",
    };
    let Some(mut rollout) = rollout.clone().filter(|rollout| !has_ended(rollout, &read)) else {
        if !has_policy(&read) {
            let rollout = rollout.ok_or_else(|| not_now(NONE))?;
            match rollout.state {
                State::Aborted => {
                    return Err(not_now(format!(
                        "the rollout {} was aborted; start another one",
                        rollout.id
                    )));
                }
                State::Running | State::Paused => {
                    return Err(not_now(format!("the rollout {} is done", rollout.id)));
                }
            }
        }
        let before = read.policy_state.clone()?;
        let policy_state = match state {
            State::Running => {
                let PolicyStatus { status, reboots, .. } = &read.policy_status;
                before.resumed(&status.rollout, &reboots.rollout)
            }
            State::Paused => PolicyState { state, ..before },
            State::Aborted => {
                return Err(not_now(format!(
                    "only the policy runs, and no rollout that an operator started. To stop the policy, set \
                     `follow: manual` in the key {POLICY_KEY} of the ConfigMap {NAMESPACE}/{CONFIG_MAP}, or \
                     run `kops-agent fleet rollout pause`"
                )));
            }
        };
        stored.change_policy(&policy_state, &read).await.context(changing)?;
        return output::print_text(&format!("{what} the policy\n"));
    };
    if state == State::Running {
        rollout.attempt += 1;
    }
    rollout.state = state;
    stored.change(&rollout, &read).await.context(changing)?;
    output::print_text(&format!("{what} the rollout {}\n", rollout.id))
}

async fn status(args: &RolloutStatusArgs) -> Result<u8> {
    let stored = Stored::new(client(&args.kubeconfig)?);
    let mut shown = shown(&existing(&stored).await?)?;
    print(&shown, args.output)?;
    if args.watch {
        let mut stopped = pin!(stop::signal_received()?);
        while !shown.is_ended() {
            tokio::select! {
                _ = &mut stopped => break,
                () = sleep(PAUSE) => {}
            }
            let now = self::shown(&existing(&stored).await?)?;
            if now != shown {
                print(&now, args.output)?;
            }
            shown = now;
        }
    }
    Ok(if shown.is_done() { exit::CONVERGED } else { exit::DIFFERENT })
}

/// Extracts the parts of the ConfigMap that `status` shows.
fn shown(read: &Read) -> Result<Shown> {
    let policy = has_policy(read).then(|| {
        let state = read.policy_state.clone()?;
        let refused = Policy::read(&read.policy).err().map(String::from).unwrap_or_default();
        Ok::<_, anyhow::Error>(ShownPolicy::new(state, refused, read.policy_status.clone()))
    });
    let (rollout, policy) = (rollout_of(read)?, policy.transpose()?);
    if rollout.is_none() && policy.is_none() {
        return Err(not_now(NONE));
    }
    Ok(Shown::new(rollout, &read.status, policy))
}

fn print(shown: &Shown, output: Output) -> Result<()> {
    match output {
        Output::Json => drop(output::print_json(shown)?),
        Output::Text => drop(output::print_text(&table(shown))?),
    }
    Ok(())
}

/// Whether the rollout has ended, so that no command can change it.
fn has_ended(rollout: &Rollout, read: &Read) -> bool {
    rollout.state == State::Aborted || read.status.is_done(rollout)
}

/// Whether there is a policy that is not manual for all groups, or is not valid.
fn has_policy(read: &Read) -> bool {
    read.policy_status.is_active() || Policy::read(&read.policy).map_or(true, |policy| policy.is_automatic())
}

const READING: &str = "reading the ConfigMap kops-agent/rollout";

const NONE: &str = "there is no rollout; `kops-agent fleet rollout start` begins one";

async fn existing(stored: &Stored) -> Result<Read> {
    stored.read().await.context(READING)?.ok_or_else(|| not_now(NONE))
}

/// The operator's rollout in the ConfigMap, if there is one.
fn rollout_of(read: &Read) -> Result<Option<Rollout>> {
    Ok(read.rollout.clone()?)
}

/// An error: the state of the rollout does not allow the command.
fn not_now(problem: impl Into<String>) -> anyhow::Error {
    Failure::new(Kind::RolloutState, problem).into()
}

pub(super) fn client(kubeconfig: &KubeconfigArgs) -> Result<Client> {
    kops_agent_kube::client_of(&kubeconfig.choose(None)?)
}

/// A new ID. It contains the time, for people, and random digits, because two operators may start a rollout in the same
/// second.
pub(super) fn id() -> Result<String> {
    let random = random::bytes::<4>()?;
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{}-{digits}", timestamp(OffsetDateTime::now_utc())))
}
