//! An operator's commands about rollouts: start, show, pause, resume and abort.

use std::time::Duration;

use anyhow::{Context as _, Result};
use time::OffsetDateTime;
use tokio::time::{Instant, sleep};

use kops_agent_cluster::pacing::NAMESPACE;
use kops_agent_cluster::rollout::shown::{Shown, ShownPolicy};
use kops_agent_cluster::rollout::{
    CONFIG_MAP, POLICY_KEY, Policy, PolicyState, PolicyStatus, Rollout, State, Status,
};
use kops_agent_net::random;
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_spec::timestamp;

use super::config_map::{Read, Stored};

/// How long [`until_begun`] waits until a controller begins the rollout. A controller reads the ConfigMap every five seconds.
const TAKEN_UP_WITHIN: Duration = Duration::from_secs(20);
/// The pause between two reads of the ConfigMap.
const PAUSE: Duration = Duration::from_secs(1);
const READING: &str = "reading the ConfigMap kops-agent/rollout";

/// Reads the ConfigMap; `None` if it does not exist. Fails if the rollout in it is not over.
pub async fn without_running(stored: &Stored) -> Result<Option<Read>> {
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

/// Writes a new rollout. Fails if the previous rollout is not over.
pub async fn start(stored: &Stored, rollout: &Rollout) -> Result<()> {
    let before = without_running(stored).await?;
    stored.start(rollout, before.as_ref()).await.with_context(|| {
        format!("writing the ConfigMap {NAMESPACE}/{CONFIG_MAP}; the namespace is in packaging/kubernetes/rbac.yaml")
    })
}

/// Waits until a controller leads a new rollout. Returns the controller's status. Fails if no controller begins in time. The rollout then
/// stays in the ConfigMap.
pub async fn until_begun(stored: &Stored, rollout: &Rollout) -> Result<Status> {
    let started = Instant::now();
    loop {
        let status = stored.read().await.context(READING)?.map(|read| read.status).unwrap_or_default();
        if status.answers(rollout) {
            return Ok(status);
        }
        if started.elapsed() >= TAKEN_UP_WITHIN {
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

/// The parts of the ConfigMap that `status` shows.
pub async fn shown(stored: &Stored) -> Result<Shown> {
    let read = existing(stored).await?;
    let policy = has_policy(&read).then(|| {
        let state = read.policy_state.clone()?;
        let refused = Policy::read(&read.policy).err().map(String::from).unwrap_or_default();
        Ok::<_, anyhow::Error>(ShownPolicy::new(state, refused, read.policy_status.clone()))
    });
    let (rollout, policy) = (read.rollout.clone()?, policy.transpose()?);
    if rollout.is_none() && policy.is_none() {
        return Err(no_rollout());
    }
    Ok(Shown::new(rollout, &read.status, policy))
}

/// Changes the state of the operator's rollout. If no such rollout runs, changes the state of the policy. Returns the name of the changed
/// rollout or policy.
pub async fn change(stored: &Stored, state: State) -> Result<String> {
    let read = existing(stored).await?;
    let rollout = read.rollout.clone()?;
    let changing = "changing the rollout; if someone else changed it, repeat this command";
    let Some(mut rollout) = rollout.clone().filter(|rollout| !has_ended(rollout, &read)) else {
        if !has_policy(&read) {
            let rollout = rollout.ok_or_else(no_rollout)?;
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
                    "there is no rollout of an operator to abort; only the policy runs. To stop the policy, \
                     set `follow: manual` in the key {POLICY_KEY} of the ConfigMap {NAMESPACE}/{CONFIG_MAP}, \
                     or run `kops-agent fleet rollout pause`"
                )));
            }
        };
        stored.change_policy(&policy_state, &read).await.context(changing)?;
        return Ok("the policy".to_owned());
    };
    if state == State::Running {
        rollout.attempt += 1;
    }
    rollout.state = state;
    stored.change(&rollout, &read).await.context(changing)?;
    Ok(format!("the rollout {}", rollout.id))
}

/// Whether the rollout has ended, so that no command can change it.
fn has_ended(rollout: &Rollout, read: &Read) -> bool {
    rollout.state == State::Aborted || read.status.is_done(rollout)
}

/// Whether the ConfigMap has a policy that is active, automatic for a group, or not valid.
fn has_policy(read: &Read) -> bool {
    read.policy_status.is_active() || Policy::read(&read.policy).map_or(true, |policy| policy.is_automatic())
}

/// Reads the ConfigMap. Fails if the ConfigMap does not exist.
async fn existing(stored: &Stored) -> Result<Read> {
    stored.read().await.context(READING)?.ok_or_else(no_rollout)
}

/// The error that the cluster has neither a rollout nor a policy.
fn no_rollout() -> anyhow::Error {
    not_now("there is no rollout; `kops-agent fleet rollout start` begins one")
}

/// The error that the state of the rollout does not allow the command.
fn not_now(problem: impl Into<String>) -> anyhow::Error {
    Failure::new(Kind::RolloutState, problem).into()
}

/// A new rollout ID. It contains the time, so that people recognize it. It also contains random digits, because two operators may start a
/// rollout in the same second.
pub fn new_id() -> Result<String> {
    let random = random::bytes::<4>()?;
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{}-{digits}", timestamp(OffsetDateTime::now_utc())))
}
