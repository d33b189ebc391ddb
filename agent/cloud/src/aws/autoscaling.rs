//! EC2 Auto Scaling, which is told that an instance is ready where a lifecycle hook holds it until then.
//!
//! An instance that boots fast may say so before its hook holds it, which sounds the same as when its hook has let go of it
//! long ago. Upstream's nodeup says it again until it succeeds, whatever the reason.
//!
//! Source: the Amazon EC2 Auto Scaling API Reference, `DescribeLifecycleHooks`, `CompleteLifecycleAction`,
//! `DescribeAutoScalingInstances` and "Common errors"; the EC2 Auto Scaling User Guide, "Amazon EC2 Auto Scaling instance
//! lifecycle"; upstream's `completeWarmingLifecycleAction` in upup/pkg/fi/nodeup/command.go.

use std::time::Duration;

use aws_sdk_s3::config::SharedCredentialsProvider;
use kops_agent_plan::lifecycle_action::Completion;
use kops_agent_plan::lifecycle_action::{LifecycleAction, WARM_POOL_HOOK};
use reqwest::Client;
use thiserror::Error;

use super::ec2::{Ec2Error, text_of};
use super::endpoint::Endpoint;
use super::signing::{Signer, SigningError};
use crate::api::{self, NoAnswer};
use kops_agent_net::http;
use kops_agent_net::retry::Retries;

/// The version of the API whose actions and documents are spoken.
const VERSION: &str = "2011-01-01";
const SERVICE: &str = "autoscaling";
const DESCRIBE: &str = "DescribeLifecycleHooks";
const COMPLETE: &str = "CompleteLifecycleAction";
const STATE: &str = "DescribeAutoScalingInstances";

/// The longest answer that is read, in bytes. One about a single hook has some 1000.
const LONGEST_ANSWER: usize = 256 * 1024;

/// How long after its start an instance may still become held by its hook: the group notices within seconds that it runs.
const UNTIL_HELD: Duration = Duration::from_secs(5 * 60);

/// How often, and for how long, it is tried by one run; what runs at boot begins anew after that.
pub(crate) const RETRIES: Retries = Retries {
    deadline: Duration::from_secs(30),
    attempt: Duration::from_secs(10),
    first_pause: Duration::from_secs(1),
    longest_pause: Duration::from_secs(5),
};

/// Why Auto Scaling was not told.
#[derive(Debug, Error)]
pub enum AutoscalingError {
    /// It says no, or that it is asked too often.
    #[error("Auto Scaling answers {action} with {status} {code}: {message}{advice}")]
    Refused {
        /// What was asked.
        action: &'static str,
        /// The HTTP status.
        status: u16,
        /// Its name of the error (`ValidationError`).
        code: String,
        /// Its explanation.
        message: String,
        /// What to do, if we know it; begins with punctuation.
        advice: String,
    },
    /// It has trouble of its own, or something between answers in its place.
    #[error("{endpoint} answers {action} with {status}, and not as Auto Scaling does")]
    Unusable {
        /// What was asked.
        action: &'static str,
        /// Where.
        endpoint: String,
        /// The HTTP status.
        status: u16,
    },
    /// No answer.
    #[error("cannot ask {endpoint} for {action}: {cause}; check the network, DNS and proxy")]
    Unreachable {
        /// What was asked.
        action: &'static str,
        /// Where.
        endpoint: String,
        /// What failed.
        cause: String,
    },
    /// The request is not signed.
    #[error("asking Auto Scaling: {0}; does the instance have a role?")]
    Signing(#[from] SigningError),
    /// Nothing can be asked.
    #[error(transparent)]
    Setup(#[from] Ec2Error),
}

impl AutoscalingError {
    /// For how long after the first attempt the same request may still succeed, a role that was just given a permission
    /// among them.
    fn worth_trying_for(&self) -> Duration {
        match self {
            AutoscalingError::Unreachable { .. }
            | AutoscalingError::Signing(SigningError::NoCredentials(_)) => Duration::MAX,
            AutoscalingError::Refused { status, .. } | AutoscalingError::Unusable { status, .. }
                if *status >= 500 =>
            {
                Duration::MAX
            }
            AutoscalingError::Refused { code, .. } if code.starts_with("Throttling") => Duration::MAX,
            AutoscalingError::Refused { code, .. } if code.starts_with("AccessDenied") => Duration::MAX,
            _ => Duration::ZERO,
        }
    }

    /// Whether this is what one hears where no hook holds the instance: not yet, or not any more, or there is no such
    /// group.
    fn says_that_nothing_holds(&self) -> bool {
        let phrases = ["No active Lifecycle Action found", "name not found", "No Lifecycle Hook found"];
        matches!(self, AutoscalingError::Refused { code, message, .. }
            if code == "ValidationError" && phrases.iter().any(|phrase| message.contains(phrase)))
    }
}

/// Says that an instance is ready. `uptime` is for how long it has run.
///
/// # Errors
/// If it could not be said for as long as that may help.
pub(crate) async fn complete(
    action: &LifecycleAction,
    uptime: Duration,
    retries: Retries,
) -> Result<Completion, AutoscalingError> {
    let Endpoint { url, settings } = Endpoint::of_node(SERVICE, &action.region).await?;
    let autoscaling = Autoscaling::new(url, &action.region, settings.credentials_provider())?;
    autoscaling.complete(action, uptime, retries).await
}

/// Auto Scaling in one region.
struct Autoscaling {
    client: Client,
    endpoint: String,
    signer: Signer,
}

impl Autoscaling {
    fn new(
        endpoint: String,
        region: &str,
        provider: Option<SharedCredentialsProvider>,
    ) -> Result<Autoscaling, AutoscalingError> {
        let client = http::client().map_err(Ec2Error::from)?;
        Ok(Autoscaling { client, endpoint, signer: Signer::of(SERVICE, region, provider) })
    }

    async fn complete(
        &self,
        action: &LifecycleAction,
        uptime: Duration,
        retries: Retries,
    ) -> Result<Completion, AutoscalingError> {
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
            self.ask(COMPLETE, &parameters, retries.attempt).await?;
            Ok(Completion::Completed)
        };
        let what = format!("telling Auto Scaling that {} is ready", action.instance_id);
        let told = retries.run(&what, attempt, AutoscalingError::worth_trying_for).await;
        match told.map_err(|gave_up| gave_up.error) {
            Err(error) if error.says_that_nothing_holds() => {
                log::debug!("{error}");
                Ok(match uptime < UNTIL_HELD && self.may_become_held(action, retries.attempt).await {
                    true => Completion::NotHeldYet,
                    false => Completion::NothingHeld,
                })
            }
            told => told,
        }
    }

    /// Whether an instance that no hook holds is on its way into service or into the warm pool, as far as that is told: kOps
    /// gives nodes no permission to ask.
    async fn may_become_held(&self, action: &LifecycleAction, within: Duration) -> bool {
        let parameters = [("InstanceIds.member.1", action.instance_id.as_str())];
        match self.ask(STATE, &parameters, within).await {
            Ok(answer) => text_of(&answer, "LifecycleState").is_some_and(|state| state.contains("Pending")),
            Err(error) => {
                log::debug!("{error}");
                true
            }
        }
    }

    /// Whether the group has the hook. A role that may not ask may still complete the action, so it goes on as if.
    async fn has_hook(&self, action: &LifecycleAction, within: Duration) -> Result<bool, AutoscalingError> {
        let parameters = [
            ("AutoScalingGroupName", action.group.as_str()),
            ("LifecycleHookNames.member.1", WARM_POOL_HOOK),
        ];
        match self.ask(DESCRIBE, &parameters, within).await {
            Ok(answer) => {
                Ok(text_of(&answer, "LifecycleHookName").is_some_and(|name| name == WARM_POOL_HOOK))
            }
            Err(AutoscalingError::Refused { code, .. }) if code.starts_with("AccessDenied") => Ok(true),
            Err(error) => Err(error),
        }
    }

    async fn ask(
        &self,
        action: &'static str,
        parameters: &[(&str, &str)],
        within: Duration,
    ) -> Result<String, AutoscalingError> {
        let form = form_urlencoded::Serializer::new(String::new())
            .append_pair("Action", action)
            .append_pair("Version", VERSION)
            .extend_pairs(parameters)
            .finish();
        let request = self.signer.post(&self.client, &self.endpoint, form, within).await?;
        let unusable =
            |status| AutoscalingError::Unusable { action, endpoint: self.endpoint.clone(), status };
        let asked = api::ask(&self.client, request, LONGEST_ANSWER).await;
        let answer = asked.map_err(|none| match none {
            NoAnswer::Unreachable(cause) => {
                AutoscalingError::Unreachable { action, endpoint: self.endpoint.clone(), cause }
            }
            NoAnswer::TooLong { status } => unusable(status),
        })?;
        let status = answer.status;
        let document = answer.text().ok_or_else(|| unusable(status))?;
        match (status, text_of(&document, "Code")) {
            (200, _) => Ok(document),
            (_, None) => Err(unusable(status)),
            (_, Some(code)) => {
                let message = text_of(&document, "Message").unwrap_or_default();
                let advice = match code.starts_with("AccessDenied") {
                    true => format!("; let this machine's role do {SERVICE}:{action}"),
                    false => String::new(),
                };
                Err(AutoscalingError::Refused { action, status, code, message, advice })
            }
        }
    }
}

#[cfg(test)]
mod tests;
