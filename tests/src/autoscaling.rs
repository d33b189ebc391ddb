//! EC2 Auto Scaling as a node asks it: one group whose lifecycle hook holds instances until they are ready.
//!
//! Source: the Amazon EC2 Auto Scaling API Reference, `DescribeLifecycleHooks`, `CompleteLifecycleAction` and
//! `DescribeAutoScalingInstances`.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};

use crate::loopback::LoopbackServer;

/// The hook's name.
pub const HOOK: &str = "kops-warmpool";

/// A running Auto Scaling; dropping it stops it.
#[derive(Debug)]
pub struct Autoscaling {
    group: String,
    held: Arc<Mutex<BTreeSet<String>>>,
    refusals: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
    server: LoopbackServer,
}

impl Autoscaling {
    /// Starts with a group that holds these instances.
    ///
    /// # Errors
    /// If there is no free port or no thread to be had.
    pub fn start(group: &str, held: &[&str]) -> anyhow::Result<Autoscaling> {
        let held: BTreeSet<String> = held.iter().map(|id| (*id).to_owned()).collect();
        let held = Arc::new(Mutex::new(held));
        let (refusals, asked) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (of_group, answering) = (group.to_owned(), held.clone());
        let (refusing, counting) = (refusals.clone(), asked.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let (group, held) = (of_group.clone(), answering.clone());
            counting.fetch_add(1, Ordering::SeqCst);
            let refuses =
                refusing.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            async move {
                Ok::<_, Infallible>(match refuses {
                    Ok(_) => refusal(403, "InvalidClientTokenId", "The security token is invalid."),
                    Err(_) => answer(request, &group, &held).await,
                })
            }
        });
        let server = LoopbackServer::start("autoscaling", service)?;
        Ok(Autoscaling { group: group.to_owned(), held, refusals, asked, server })
    }

    /// The name of its group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The instances that are still held.
    pub fn held(&self) -> BTreeSet<String> {
        lock(&self.held).clone()
    }

    /// Refuses this many requests from now on.
    pub fn refuse_next(&self, requests: usize) {
        self.refusals.store(requests, Ordering::SeqCst);
    }

    /// How many requests there were since this was last asked.
    pub fn asked(&self) -> usize {
        self.asked.swap(0, Ordering::SeqCst)
    }

    /// The variable by which it is found.
    pub fn environment(&self) -> (&'static str, String) {
        ("AWS_ENDPOINT_URL_AUTO_SCALING", self.server.url())
    }
}

fn lock(held: &Mutex<BTreeSet<String>>) -> MutexGuard<'_, BTreeSet<String>> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn answer(request: Request<Incoming>, group: &str, held: &Mutex<BTreeSet<String>>) -> Response<String> {
    let is_signed = request.headers().get("authorization").is_some_and(|value| {
        value.to_str().is_ok_and(|value| value.contains("/autoscaling/aws4_request, SignedHeaders="))
    });
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let form: BTreeMap<String, String> = form_urlencoded::parse(&body).into_owned().collect();
    let asked = |name: &str| form.get(name).map(String::as_str).unwrap_or_default();
    if !is_signed {
        return refusal(403, "AccessDenied", "The request is not signed.");
    }
    if asked("Action") == "DescribeAutoScalingInstances" {
        let state =
            if lock(held).contains(asked("InstanceIds.member.1")) { "Pending:Wait" } else { "InService" };
        return xml(StatusCode::OK, format!("<R><LifecycleState>{state}</LifecycleState></R>"));
    }
    if asked("AutoScalingGroupName") != group {
        return refusal(400, "ValidationError", "AutoScalingGroup name not found");
    }
    match asked("Action") {
        "DescribeLifecycleHooks" => {
            let member = match asked("LifecycleHookNames.member.1") {
                HOOK => format!("<member><LifecycleHookName>{HOOK}</LifecycleHookName></member>"),
                _ => String::new(),
            };
            xml(StatusCode::OK, format!("<R><LifecycleHooks>{member}</LifecycleHooks></R>"))
        }
        "CompleteLifecycleAction" if asked("LifecycleActionResult") == "CONTINUE" => {
            match lock(held).remove(asked("InstanceId")) {
                true => xml(StatusCode::OK, "<CompleteLifecycleActionResponse/>".into()),
                false => refusal(400, "ValidationError", "No active Lifecycle Action found with instance ID"),
            }
        }
        _ => refusal(400, "InvalidAction", "The action is not valid."),
    }
}

fn refusal(status: u16, code: &str, message: &str) -> Response<String> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
    xml(
        status,
        format!(
            "<ErrorResponse><Error><Code>{code}</Code><Message>{message}</Message></Error></ErrorResponse>"
        ),
    )
}

fn xml(status: StatusCode, document: String) -> Response<String> {
    let mut response = Response::new(document);
    *response.status_mut() = status;
    response
}
