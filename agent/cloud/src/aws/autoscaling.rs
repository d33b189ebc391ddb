//! EC2 Auto Scaling: completes the lifecycle action of an instance, which a lifecycle hook holds until it is ready.
//!
//! A fast instance may complete the action before its hook holds it. Auto Scaling then gives the same error as for an instance
//! that its hook released long ago. Upstream's nodeup retries after every error until it succeeds.
//!
//! Source: the Amazon EC2 Auto Scaling API Reference, `DescribeLifecycleHooks`, `CompleteLifecycleAction`,
//! `DescribeAutoScalingInstances` and "Common errors"; the EC2 Auto Scaling User Guide, "Amazon EC2 Auto Scaling instance
//! lifecycle"; upstream's `completeWarmingLifecycleAction` in upup/pkg/fi/nodeup/command.go.

use std::time::Duration;

use aws_sdk_s3::config::SharedCredentialsProvider;
use kops_agent_cluster::lifecycle_action::Completion;
use kops_agent_cluster::lifecycle_action::{LifecycleAction, WARM_POOL_HOOK};

use super::endpoint::Endpoint;
use super::query::{QueryClient, Service, advice_on_credentials, read_error, text_of};
use crate::api::{Api, ApiError, Meaning};
use kops_agent_net::retry::{Pauses, Retries};

const DESCRIBE: &str = "DescribeLifecycleHooks";
const COMPLETE: &str = "CompleteLifecycleAction";
const STATE: &str = "DescribeAutoScalingInstances";

pub(crate) static SERVICE: Service = Service {
    api: Api { name: "Auto Scaling", limited: "account", read: read_error, meaning, advice },
    name: "autoscaling",
    version: "2011-01-01",
    // A response about a single hook has about 1000 bytes, so this limit is ample.
    longest_answer: 256 * 1024,
};

fn meaning(_status: u16, code: &str) -> Meaning {
    match code {
        code if code.starts_with("Throttling") => Meaning::Throttled,
        code if code.starts_with("AccessDenied") => Meaning::Forbidden,
        _ => Meaning::Refused,
    }
}

fn advice(action: &str, status: u16, code: &str) -> String {
    match meaning(status, code) {
        Meaning::Forbidden => format!("; grant this machine's role the permission autoscaling:{action}"),
        _ => advice_on_credentials(code),
    }
}

/// The longest time from the start of an instance until Auto Scaling begins the instance's lifecycle action. Usually this takes only
/// seconds.
const UNTIL_HELD: Duration = Duration::from_secs(5 * 60);

/// The retries in one run. At boot, if all retries fail, the whole run is repeated after a pause (`--retries=-1`).
pub(crate) const RETRIES: Retries = Retries {
    deadline: Duration::from_secs(30),
    attempt: Duration::from_secs(10),
    pauses: Pauses { first: Duration::from_secs(1), longest: Duration::from_secs(5) },
};

/// How long `Retries` may retry after this error. A forbidden request is retried too, because a new permission of the role takes effect
/// only after a delay.
fn worth_trying_for(error: &ApiError) -> Duration {
    match error.may_pass() || error.is_forbidden() {
        true => Duration::MAX,
        false => Duration::ZERO,
    }
}

/// Whether Auto Scaling rejects the completion because the instance has no open lifecycle action, or because the group or hook does not
/// exist.
fn says_that_nothing_holds(error: &ApiError) -> bool {
    let phrases = ["No active Lifecycle Action found", "name not found", "No Lifecycle Hook found"];
    matches!(error, ApiError::Refused(answer)
        if answer.code == "ValidationError" && phrases.iter().any(|phrase| answer.message.contains(phrase)))
}

/// Tells Auto Scaling that an instance is ready. `uptime` is the time since the instance started.
pub(crate) async fn complete(
    action: &LifecycleAction,
    uptime: Duration,
    retries: Retries,
) -> Result<Completion, ApiError> {
    let Endpoint { url, settings } = Endpoint::of_node(SERVICE.name, &action.region).await?;
    let autoscaling = Autoscaling::new(&url, &action.region, settings.credentials_provider())?;
    autoscaling.complete(action, uptime, retries).await
}

/// A client for Auto Scaling in one region.
struct Autoscaling(QueryClient);

impl Autoscaling {
    fn new(
        endpoint: &str,
        region: &str,
        provider: Option<SharedCredentialsProvider>,
    ) -> Result<Autoscaling, ApiError> {
        Ok(Autoscaling(QueryClient::new(&SERVICE, endpoint, region, provider)?))
    }

    async fn complete(
        &self,
        action: &LifecycleAction,
        uptime: Duration,
        retries: Retries,
    ) -> Result<Completion, ApiError> {
        let attempt = || async {
            if !self.has_hook(action, retries.attempt).await? {
                return Ok(Completion::NothingHeld);
            }
            let parameters = [
                ("AutoScalingGroupName", action.group.as_str()),
                ("InstanceId", &action.instance_id),
                ("LifecycleHookName", WARM_POOL_HOOK),
                ("LifecycleActionResult", "CONTINUE"),
            ];
            self.0.query(COMPLETE, &parameters, retries.attempt).await?;
            Ok(Completion::Completed)
        };
        let what = format!("telling Auto Scaling that {} is ready", action.instance_id);
        let told = retries.run(&what, attempt, worth_trying_for).await;
        match told.map_err(|gave_up| gave_up.error) {
            Err(error) if says_that_nothing_holds(&error) => {
                log::debug!("{error}");
                Ok(match uptime < UNTIL_HELD && self.may_become_held(action, retries.attempt).await {
                    true => Completion::NotHeldYet,
                    false => Completion::NothingHeld,
                })
            }
            told => told,
        }
    }

    /// Whether the instance is in a `Pending` state, in which its lifecycle action may still begin. If the request fails, the result is
    /// `true`, because kOps gives nodes no permission for this request.
    async fn may_become_held(&self, action: &LifecycleAction, within: Duration) -> bool {
        let parameters = [("InstanceIds.member.1", action.instance_id.as_str())];
        match self.0.query(STATE, &parameters, within).await {
            Ok(answer) => text_of(&answer, "LifecycleState").is_some_and(|state| state.contains("Pending")),
            Err(error) => {
                log::debug!("{error}");
                true
            }
        }
    }

    /// Whether the group has the hook. If the role may not make this request, the result is `true`, because the role may still be permitted
    /// to complete the action.
    async fn has_hook(&self, action: &LifecycleAction, within: Duration) -> Result<bool, ApiError> {
        let parameters = [
            ("AutoScalingGroupName", action.group.as_str()),
            ("LifecycleHookNames.member.1", WARM_POOL_HOOK),
        ];
        match self.0.query(DESCRIBE, &parameters, within).await {
            Ok(answer) => {
                Ok(text_of(&answer, "LifecycleHookName").is_some_and(|name| name == WARM_POOL_HOOK))
            }
            Err(error) if error.is_forbidden() => Ok(true),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
