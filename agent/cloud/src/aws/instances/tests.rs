//! EC2 is a stand-in on loopback that knows some instances, and counts requests.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::BodyExt as _;

use super::*;
use crate::calls::Outcome;
use kops_agent_tests::test_server::{TestServer, text};

const UNKNOWN: &str = "i-0fffffffffffffff0";
const MALFORMED: &str = "i-ffffffff";

fn id(number: usize) -> String {
    format!("i-{number:017x}")
}

fn described(ids: &[String]) -> String {
    let items: String = ids
        .iter()
        .map(|id| {
            format!(
                "<item><instancesSet><item><instanceId>{id}</instanceId><instanceState><name>running</name>\
                 </instanceState></item></instancesSet></item>"
            )
        })
        .collect();
    format!("<DescribeInstancesResponse><reservationSet>{items}</reservationSet></DescribeInstancesResponse>")
}

fn refused(code: &str, message: &str) -> String {
    format!(
        "<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors></Response>"
    )
}

/// A stand-in for EC2. It throttles the first `throttled` requests. If requested instances do not exist, the error names them.
async fn ec2(throttled: usize) -> (TestServer, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let server = TestServer::start(move |request| {
        let number = count.fetch_add(1, Ordering::SeqCst);
        async move {
            let form = request.into_body().collect().await.unwrap().to_bytes();
            let ids: Vec<String> = form_urlencoded::parse(&form)
                .filter(|(name, _)| name.starts_with("InstanceId."))
                .map(|(_, id)| id.into_owned())
                .collect();
            if number < throttled {
                return Ok(text(503, &refused("RequestLimitExceeded", "Request limit exceeded.")));
            }
            if ids.iter().any(|id| id == MALFORMED) {
                let message = format!("Invalid id: \"{MALFORMED}\"");
                return Ok(text(400, &refused("InvalidInstanceID.Malformed", &message)));
            }
            if ids.iter().any(|id| id == UNKNOWN) {
                let message = format!("The instance IDs '{UNKNOWN}' do not exist");
                return Ok(text(400, &refused("InvalidInstanceID.NotFound", &message)));
            }
            Ok(text(200, &described(&ids)))
        }
    })
    .await;
    (server, asked)
}

fn instances(server: &TestServer, calls: &CloudCalls) -> Instances {
    Instances::new(Ec2::for_tests(&server.url), calls.clone())
}

#[tokio::test]
async fn many_questions_share_few_calls() {
    let (server, asked) = ec2(0).await;
    let calls = CloudCalls::default();
    // A full batch does not wait for the end of the window.
    let window = Duration::from_secs(60);
    let instances = Instances::with(TIMEOUT, window, Ec2::for_tests(&server.url), calls.clone());
    let questions = (0..5000).map(|number| {
        let instances = instances.clone();
        async move { instances.get(&id(number)).await.unwrap().unwrap().instance_id.clone() }
    });
    let answers = futures_util::future::join_all(questions).await;
    assert!(answers.iter().enumerate().all(|(number, answer)| *answer == id(number)));
    let asked = asked.load(Ordering::SeqCst);
    assert_eq!(asked, 5, "calls for 5,000 instances");
    assert_eq!(calls.counted("ec2", "DescribeInstances", Outcome::Success), asked as u64);
}

#[tokio::test]
async fn a_missing_instance_does_not_fail_the_other_questions() {
    let (server, asked) = ec2(0).await;
    let instances = instances(&server, &CloudCalls::default());
    let (id_of_1, id_of_2) = (id(1), id(2));
    let (first, unknown, malformed, second) = tokio::join!(
        instances.get(&id_of_1),
        instances.get(UNKNOWN),
        instances.get(MALFORMED),
        instances.get(&id_of_2)
    );
    assert_eq!(first.unwrap().unwrap().instance_id, id(1));
    assert_eq!((unknown.unwrap(), malformed.unwrap()), (None, None));
    assert_eq!(second.unwrap().unwrap().instance_id, id(2));
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn throttled_questions_are_retried_and_then_fail() {
    let (server, asked) = ec2(1).await;
    let calls = CloudCalls::default();
    let instances = instances(&server, &calls);
    let begun = Instant::now();
    assert!(instances.get(&id(1)).await.unwrap().is_some());
    assert!(begun.elapsed() >= PAUSES.first, "it paused");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    assert_eq!(calls.counted("ec2", "DescribeInstances", Outcome::Throttled), 1);
}

#[tokio::test]
async fn a_failed_request_fails_all_waiting_questions() {
    let instances = Instances::new(Ec2::for_tests("http://127.0.0.1:1"), CloudCalls::default());
    let (id_of_1, id_of_2) = (id(1), id(2));
    let (first, second) = tokio::join!(instances.get(&id_of_1), instances.get(&id_of_2));
    for answer in [first, second] {
        assert!(matches!(*answer.unwrap_err(), ApiError::Unreachable { .. }));
    }
}

#[tokio::test]
async fn hanging_calls_delay_other_questions_only_briefly() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let server = TestServer::start(move |request| {
        let hangs = count.fetch_add(1, Ordering::SeqCst) < CALLS_AT_ONCE;
        async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            let form = request.into_body().collect().await.unwrap().to_bytes();
            let ids: Vec<String> = form_urlencoded::parse(&form)
                .filter(|(name, _)| name.starts_with("InstanceId."))
                .map(|(_, id)| id.into_owned())
                .collect();
            Ok(text(200, &described(&ids)))
        }
    })
    .await;
    const { assert!(TIMEOUT.as_secs() <= 10) };
    let ec2 = Ec2::for_tests(&server.url);
    let instances = Instances::with(Duration::from_secs(1), WINDOW, ec2, CloudCalls::default());
    let mut hanging = Vec::new();
    for number in 0..CALLS_AT_ONCE {
        let instances = instances.clone();
        hanging.push(tokio::spawn(async move { instances.get(&id(number)).await }));
        // Each question must get its own call. So the test waits until the stand-in has received a call before it asks the next question.
        while asked.load(Ordering::SeqCst) <= number {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    for answer in hanging {
        assert!(matches!(*answer.await.unwrap().unwrap_err(), ApiError::Unreachable { .. }));
    }
    // The next question gets an answer. On a busy machine, the answer may take longer than this test's timeout, so the test asks again.
    while !matches!(instances.get(&id(CALLS_AT_ONCE)).await, Ok(Some(_))) {}
}
