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
use kops_agent_kube::api_error::ApiError;
use kops_agent_net::random;
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_spec::timestamp;

use super::config_map::{Read, Stored};

/// How long [`until_begun`] waits.
struct Limits {
    /// How long to wait until a controller begins the rollout. A controller reads the ConfigMap every five seconds.
    begun: Duration,
    /// How long to wait for an API server that does not answer. The API server may be restarting, because of the
    /// rollout's first order to a node.
    answered: Duration,
    /// The pause between two reads of the ConfigMap.
    pause: Duration,
}

const LIMITS: Limits = Limits {
    begun: Duration::from_secs(20),
    answered: Duration::from_secs(60),
    pause: Duration::from_secs(1),
};
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
        format!(
            "writing the ConfigMap {NAMESPACE}/{CONFIG_MAP}; if the namespace is missing, apply \
             packaging/kubernetes/rbac.yaml"
        )
    })
}

/// Waits until a controller leads a new rollout. Returns the controller's status. Fails if no controller begins in time. The rollout then
/// stays in the ConfigMap.
pub async fn until_begun(stored: &Stored, rollout: &Rollout) -> Result<Status> {
    until_read(async || stored.read().await, rollout, &LIMITS).await
}

/// Like [`until_begun`], with a function that reads the ConfigMap.
async fn until_read(
    mut read: impl AsyncFnMut() -> Result<Option<Read>, ApiError>,
    rollout: &Rollout,
    limits: &Limits,
) -> Result<Status> {
    let started = Instant::now();
    loop {
        match read().await {
            Ok(read) => {
                let status = read.map(|read| read.status).unwrap_or_default();
                if status.answers(rollout) {
                    return Ok(status);
                }
                if started.elapsed() >= limits.begun {
                    return Err(not_begun(rollout, limits));
                }
            }
            Err(ApiError::Unanswered(problem)) if started.elapsed() < limits.answered => {
                log::debug!("{READING} again, because the API server does not answer: {problem}");
            }
            Err(error) => return Err(error).context(READING),
        }
        sleep(limits.pause).await;
    }
}

fn not_begun(rollout: &Rollout, limits: &Limits) -> anyhow::Error {
    not_now(format!(
        "no controller has started the rollout {} within {} s, so no node changes yet. The rollout starts once \
         `kops-agent controller` of this version leads and has the rights of packaging/kubernetes/rbac.yaml; the \
         log of the controller names missing rights. `kops-agent fleet rollout abort` cancels the rollout",
        rollout.id,
        limits.begun.as_secs()
    ))
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
                    "no rollout that an operator started is in progress, so there is nothing to abort. To stop the policy, \
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

/// Whether the ConfigMap has a policy that is active, that is automatic for any group, or that is not valid.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use k8s_openapi::api::core::v1::ConfigMap;
    use kops_agent_cluster::rollout::STATUS_KEY;
    use serde_json::json;

    use super::*;

    const PATIENT: Limits = Limits {
        begun: Duration::from_secs(60),
        answered: Duration::from_secs(60),
        pause: Duration::from_millis(1),
    };
    const IMPATIENT: Limits =
        Limits { begun: Duration::ZERO, answered: Duration::ZERO, pause: Duration::ZERO };

    fn rollout() -> Rollout {
        serde_json::from_value(json!({"id": "r-1", "state": "running", "attempt": 1})).unwrap()
    }

    fn unanswered() -> ApiError {
        ApiError::Unanswered("connection refused".to_owned())
    }

    #[tokio::test]
    async fn a_rollout_that_restarts_the_api_server_has_begun() {
        let status = json!({"rollout": "r-1", "attempt": 1, "phase": "running", "groups": {}}).to_string();
        let data = Some([(STATUS_KEY.to_owned(), status)].into());
        let begun = ConfigMap { data, ..ConfigMap::default() };
        let mut reads = 0;
        let read = async || {
            reads += 1;
            if reads < 4 { Err(unanswered()) } else { Ok(Some(Read::from_config_map(&begun))) }
        };
        assert_eq!(until_read(read, &rollout(), &PATIENT).await.unwrap().rollout, "r-1");
    }

    #[tokio::test]
    async fn a_wait_for_the_controller_ends_with_the_reason() {
        let failed = until_read(async || Ok(None), &rollout(), &IMPATIENT).await.unwrap_err();
        assert!(failed.to_string().contains("no controller has started"), "{failed:#}");
        let failed = until_read(async || Err(unanswered()), &rollout(), &IMPATIENT).await.unwrap_err();
        assert!(format!("{failed:#}").contains("connection refused"), "{failed:#}");
    }
}
