#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use aws_sdk_s3::config::Credentials;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;

use super::*;
use kops_agent_net::retry::FAST;
use kops_agent_tests::test_server::{TestServer, text};

const HOOK: &str = "<DescribeLifecycleHooksResponse><DescribeLifecycleHooksResult><LifecycleHooks><member>\
                    <LifecycleHookName>kops-warmpool</LifecycleHookName></member></LifecycleHooks>\
                    </DescribeLifecycleHooksResult></DescribeLifecycleHooksResponse>";
const NO_HOOK: &str = "<DescribeLifecycleHooksResponse><DescribeLifecycleHooksResult><LifecycleHooks/>\
                       </DescribeLifecycleHooksResult></DescribeLifecycleHooksResponse>";
const DONE: &str = "<CompleteLifecycleActionResponse/>";

fn refusal(code: &str, message: &str) -> String {
    format!(
        "<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error>\
         <RequestId>r</RequestId></ErrorResponse>"
    )
}

type Asked = Arc<Mutex<Vec<BTreeMap<String, String>>>>;

/// Starts a stand-in for Auto Scaling that gives these responses in turn. Also returns the requests that the stand-in receives.
async fn autoscaling(answers: Vec<(u16, String)>) -> (TestServer, Asked) {
    let asked = Asked::default();
    let (noted, answers) = (asked.clone(), Arc::new(Mutex::new(VecDeque::from(answers))));
    let server = TestServer::start(move |request| {
        let (noted, answers) = (noted.clone(), answers.clone());
        async move {
            let signature = request.headers()["authorization"].to_str().unwrap().to_owned();
            assert!(signature.contains("/us-test-1/autoscaling/aws4_request"), "{signature}");
            let body = request.into_body().collect().await.unwrap().to_bytes();
            noted.lock().push(form_urlencoded::parse(&body).into_owned().collect());
            let (status, answer) = answers.lock().pop_front().expect("asked once too often");
            Ok(text(status, &answer))
        }
    })
    .await;
    (server, asked)
}

/// The uptime of a machine that started long ago.
const LONG: Duration = Duration::from_secs(3600);

async fn complete_at(server: &TestServer, retries: Retries) -> Result<Completion, ApiError> {
    complete_after(LONG, server, retries).await
}

async fn complete_after(
    uptime: Duration,
    server: &TestServer,
    retries: Retries,
) -> Result<Completion, ApiError> {
    let credentials = Credentials::new("AKIDEXAMPLE", "secret", None, None, "test");
    let provider = SharedCredentialsProvider::new(credentials);
    let autoscaling = Autoscaling::new(&server.url, "us-test-1", Some(provider)).unwrap();
    let action = LifecycleAction {
        region: "us-test-1".into(),
        group: "nodes.a.example.com".into(),
        instance_id: "i-1".into(),
    };
    autoscaling.complete(&action, uptime, retries).await
}

fn actions(asked: &Asked) -> Vec<String> {
    asked.lock().iter().map(|form| form["Action"].clone()).collect()
}

#[tokio::test]
async fn completing_the_action_releases_a_held_instance() {
    let (server, asked) = autoscaling(vec![(200, HOOK.into()), (200, DONE.into())]).await;
    assert_eq!(complete_at(&server, FAST).await.unwrap(), Completion::Completed);
    let asked = asked.lock();
    assert_eq!(asked[0]["LifecycleHookNames.member.1"], "kops-warmpool");
    let completed = &asked[1];
    assert_eq!(completed["Action"], "CompleteLifecycleAction");
    assert_eq!(completed["Version"], "2011-01-01");
    assert_eq!(completed["AutoScalingGroupName"], "nodes.a.example.com");
    assert_eq!(completed["InstanceId"], "i-1");
    assert_eq!(completed["LifecycleHookName"], "kops-warmpool");
    assert_eq!(completed["LifecycleActionResult"], "CONTINUE");
}

#[tokio::test]
async fn no_action_is_completed_if_no_hook_holds_the_instance() {
    let (server, asked) = autoscaling(vec![(200, NO_HOOK.into())]).await;
    assert_eq!(complete_at(&server, FAST).await.unwrap(), Completion::NothingHeld);
    assert_eq!(actions(&asked), ["DescribeLifecycleHooks"]);

    let in_service = refusal("ValidationError", "No active Lifecycle Action found with instance ID i-1");
    let (server, _) = autoscaling(vec![(200, HOOK.into()), (400, in_service)]).await;
    assert_eq!(complete_at(&server, FAST).await.unwrap(), Completion::NothingHeld);

    let elsewhere =
        refusal("ValidationError", "AutoScalingGroup name not found - AutoScalingGroup 'x' not found");
    let (server, _) = autoscaling(vec![(400, elsewhere)]).await;
    assert_eq!(complete_at(&server, FAST).await.unwrap(), Completion::NothingHeld);
}

#[tokio::test]
async fn a_hook_may_still_begin_to_hold_a_new_instance() {
    let after_a_minute = |state: (u16, String)| async move {
        let not_active = refusal("ValidationError", "No active Lifecycle Action found with instance ID i-1");
        let (server, asked) = autoscaling(vec![(200, HOOK.into()), (400, not_active), state]).await;
        let told = complete_after(Duration::from_secs(60), &server, FAST).await.unwrap();
        assert_eq!(asked.lock()[2]["InstanceIds.member.1"], "i-1");
        told
    };
    let state = |state: &str| (200, format!("<R><LifecycleState>{state}</LifecycleState></R>"));
    for pending in ["Pending", "Pending:Wait", "Warmed:Pending"] {
        assert_eq!(after_a_minute(state(pending)).await, Completion::NotHeldYet, "{pending}");
    }
    for settled in ["InService", "Warmed:Stopped"] {
        assert_eq!(after_a_minute(state(settled)).await, Completion::NothingHeld, "{settled}");
    }
    assert_eq!(after_a_minute((200, "<R/>".into())).await, Completion::NothingHeld, "it is in no group");
    let denied = (403, refusal("AccessDenied", "User is not authorized"));
    assert_eq!(after_a_minute(denied).await, Completion::NotHeldYet);
}

#[tokio::test]
async fn server_errors_and_throttling_are_retried() {
    let (server, asked) = autoscaling(vec![
        (400, refusal("Throttling", "Rate exceeded")),
        (200, HOOK.into()),
        (500, "down".into()),
        (200, HOOK.into()),
        (200, DONE.into()),
    ])
    .await;
    assert_eq!(complete_at(&server, FAST).await.unwrap(), Completion::Completed);
    assert_eq!(actions(&asked).len(), 5);
}

#[tokio::test]
async fn without_permission_to_read_hooks_the_action_is_still_completed() {
    let denied = refusal("AccessDenied", "User is not authorized");
    let (server, _) = autoscaling(vec![(403, denied), (200, DONE.into())]).await;
    assert_eq!(complete_at(&server, FAST).await.unwrap(), Completion::Completed);
}

#[tokio::test]
async fn a_forbidden_request_names_the_missing_permission() {
    let denied = || (403, refusal("AccessDenied", "User is not authorized"));
    let (server, _) = autoscaling(vec![(200, HOOK.into()), denied()]).await;
    let once = Retries { deadline: Duration::ZERO, ..FAST };
    let error = complete_at(&server, once).await.unwrap_err().to_string();
    assert!(
        error.contains("grant this machine's role the permission autoscaling:CompleteLifecycleAction"),
        "{error}"
    );
    // While IAM propagates a new permission, Auto Scaling rejects requests, so they are retried.
    let (server, _) =
        autoscaling(vec![(200, HOOK.into()), denied(), (200, HOOK.into()), (200, DONE.into())]).await;
    assert_eq!(complete_at(&server, FAST).await.unwrap(), Completion::Completed);
}
