//! A stand-in for EC2 Auto Scaling as a node uses it. Its one group has a lifecycle hook that holds instances until they are ready.
//!
//! Source: the Amazon EC2 Auto Scaling API Reference, `DescribeLifecycleHooks`, `CompleteLifecycleAction` and
//! `DescribeAutoScalingInstances`.

use std::collections::BTreeSet;

use hyper::body::Incoming;
use hyper::{Request, Response};

use crate::stand_in_api::{Shared, StandInApi, form, header, said};

pub const HOOK: &str = "kops-warmpool";

#[derive(Debug)]
struct State {
    group: String,
    held: BTreeSet<String>,
    refusals: usize,
    asked: usize,
}

/// A running stand-in for EC2 Auto Scaling. Dropping it stops the stand-in.
#[derive(Debug)]
pub struct Autoscaling(StandInApi<State>);

impl Autoscaling {
    /// Starts the stand-in with one group, in which a lifecycle hook holds these instances.
    pub fn start(group: &str, held: &[&str]) -> anyhow::Result<Autoscaling> {
        let held = held.iter().map(|id| (*id).to_owned()).collect();
        let state = State { group: group.to_owned(), held, refusals: 0, asked: 0 };
        Ok(Autoscaling(StandInApi::start("autoscaling", state, |request, state| async move {
            Some(answer(request, state).await)
        })?))
    }

    pub fn group(&self) -> String {
        self.0.state().group.clone()
    }

    /// The instances that a lifecycle hook still holds.
    pub fn held(&self) -> BTreeSet<String> {
        self.0.state().held.clone()
    }

    pub fn refuse_next(&self, requests: usize) {
        self.0.state().refusals = requests;
    }

    /// The number of requests since the previous call of `asked`.
    pub fn asked(&self) -> usize {
        std::mem::take(&mut self.0.state().asked)
    }

    /// The environment variable with the URL of this stand-in.
    pub fn environment(&self) -> (&'static str, String) {
        ("AWS_ENDPOINT_URL_AUTO_SCALING", self.0.url())
    }
}

async fn answer(request: Request<Incoming>, state: Shared<State>) -> Response<String> {
    let is_signed = header(&request, "authorization").contains("/autoscaling/aws4_request, SignedHeaders=");
    let form = form(request).await;
    let asked = |name: &str| form.get(name).map(String::as_str).unwrap_or_default();
    let mut state = state.lock();
    state.asked += 1;
    if state.refusals > 0 {
        state.refusals -= 1;
        return refusal(403, "InvalidClientTokenId", "The security token is invalid.");
    }
    if !is_signed {
        return refusal(403, "AccessDenied", "The request is not signed.");
    }
    if asked("Action") == "DescribeAutoScalingInstances" {
        let is_held = state.held.contains(asked("InstanceIds.member.1"));
        let lifecycle = if is_held { "Pending:Wait" } else { "InService" };
        return said(200, format!("<R><LifecycleState>{lifecycle}</LifecycleState></R>"));
    }
    if asked("AutoScalingGroupName") != state.group {
        return refusal(400, "ValidationError", "AutoScalingGroup name not found");
    }
    match asked("Action") {
        "DescribeLifecycleHooks" => {
            let member = match asked("LifecycleHookNames.member.1") {
                HOOK => format!("<member><LifecycleHookName>{HOOK}</LifecycleHookName></member>"),
                _ => String::new(),
            };
            said(200, format!("<R><LifecycleHooks>{member}</LifecycleHooks></R>"))
        }
        "CompleteLifecycleAction" if asked("LifecycleActionResult") == "CONTINUE" => {
            match state.held.remove(asked("InstanceId")) {
                true => said(200, "<CompleteLifecycleActionResponse/>"),
                false => refusal(400, "ValidationError", "No active Lifecycle Action found with instance ID"),
            }
        }
        _ => refusal(400, "InvalidAction", "The action is not valid."),
    }
}

fn refusal(status: u16, code: &str, message: &str) -> Response<String> {
    let error = format!("<Error><Code>{code}</Code><Message>{message}</Message></Error>");
    said(status, format!("<ErrorResponse>{error}</ErrorResponse>"))
}
