//! Tests against a malicious server, which sends endless responses, endless lists, and text with terminal control codes.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::tests::{Buckets, store};
use super::{MOST_NAMES, MOST_PAGES};
use crate::StoreError;
use kops_agent_net::retry::{FAST, Retries};
use kops_agent_tests::test_server::{TestServer, text};

const SHORT: Retries = Retries { deadline: Duration::from_millis(300), ..FAST };

fn error_with(message: &str) -> String {
    format!("<?xml version=\"1.0\"?><Error><Code>Odd</Code><Message>{message}</Message></Error>")
}

async fn answering(status: u16, body: String) -> TestServer {
    Buckets::new().serve_behind(move |_| Some(Ok(text(status, &body)))).await
}

/// Makes a server that answers each request with the next page of a list, and a counter of the requests. `page` returns the entries and the
/// continuation token of the page with this number.
async fn listing(
    page: impl Fn(u32) -> (String, String) + Send + Sync + 'static,
) -> (TestServer, Arc<AtomicU32>) {
    let asked = Arc::new(AtomicU32::new(0));
    let counter = asked.clone();
    let server = Buckets::new()
        .serve_behind(move |_| {
            let (entries, token) = page(counter.fetch_add(1, Ordering::SeqCst));
            Some(Ok(text(
                200,
                &format!(
                    "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><IsTruncated>true</IsTruncated>\
                     {entries}<NextContinuationToken>{token}</NextContinuationToken></ListBucketResult>"
                ),
            )))
        })
        .await;
    (server, asked)
}

fn entry(name: &str) -> String {
    format!("<Contents><Key>c/{name}</Key><ETag>e</ETag></Contents>")
}

fn assert_is_endless(error: &StoreError) {
    assert!(matches!(error, StoreError::Refused { status: 200, .. }), "{error:?}");
    assert!(error.to_string().contains("pages have no end"), "{error}");
}

#[tokio::test]
async fn a_message_is_short_and_has_no_terminal_control_characters() {
    let harm = "esc &#x9b;2J&#x202e;\n";
    for status in [400, 500] {
        let server = answering(status, error_with(&format!("{harm}{}", "x".repeat(500_000)))).await;
        let store = store(&server).with_retries(SHORT);
        let error = store.read("s3://state/config").await.unwrap_err().to_string();
        assert!(error.contains("Odd") && error.contains("esc"), "{error}");
        assert!(error.len() < 700 && !error.contains(['\u{9b}', '\u{202e}', '\n']), "{error:?}");
    }
}

#[tokio::test]
async fn an_endless_error_is_read_up_to_the_limit() {
    for status in [400, 403, 500] {
        let server = answering(status, error_with(&"x".repeat(2 * 1024 * 1024))).await;
        let store = store(&server).with_retries(SHORT);
        let error = store.read("s3://state/config").await.unwrap_err().to_string();
        assert!(error.contains("length limit exceeded"), "{error}");
        assert!(error.len() < 2500, "{}", error.len());
    }
    let server = answering(200, "x".repeat(17 * 1024 * 1024)).await;
    let store = store(&server).with_retries(SHORT);
    let error = store.list("s3://state/c").await.unwrap_err().to_string();
    assert!(error.contains("length limit exceeded"), "{error}");
}

#[tokio::test]
async fn an_endless_list_is_refused() {
    // The server sends the same token with every page.
    let (server, asked) = listing(|_| (entry("a"), "again".to_owned())).await;
    assert_is_endless(&store(&server).list("s3://state/c").await.unwrap_err());
    assert_eq!(asked.load(Ordering::SeqCst), 2);

    // The server sends a new token with every page, so the list never ends.
    let (server, asked) = listing(|page| (String::new(), page.to_string())).await;
    assert_is_endless(&store(&server).list("s3://state/c").await.unwrap_err());
    assert_eq!(asked.load(Ordering::SeqCst) as usize, MOST_PAGES);

    // The list has more names than `MOST_NAMES`.
    let per_page = 20_000;
    let names = move |page| (0..per_page).map(|name| entry(&format!("{page:04}-{name:06}"))).collect();
    let (server, asked) = listing(move |page| (names(page), page.to_string())).await;
    assert_is_endless(&store(&server).list("s3://state/c").await.unwrap_err());
    assert_eq!(asked.load(Ordering::SeqCst) as usize, MOST_NAMES / per_page + 1);
}

#[tokio::test]
async fn a_list_without_etags_shows_a_change_too() {
    let of = async |modified: &str, size: u32| {
        let listed = format!(
            "<Contents><Key>c/m</Key><LastModified>{modified}</LastModified><Size>{size}</Size></Contents>"
        );
        let (server, _) = listing(move |page| match page {
            0 => (listed.clone(), String::new()),
            _ => (entry("z2"), String::new()),
        })
        .await;
        store(&server).versions("s3://state/c", "a", "z").await.unwrap()["m"].clone()
    };
    let before = of("2026-11-26T10:00:00Z", 10).await;
    assert_eq!(of("2026-11-26T10:00:00Z", 10).await, before);
    assert_ne!(of("2026-11-26T10:00:01Z", 10).await, before);
    assert_ne!(of("2026-11-26T10:00:00Z", 11).await, before);
}

#[tokio::test]
async fn an_endless_list_of_versions_is_refused() {
    let (server, asked) = listing(|_| (entry("m"), String::new())).await;
    assert_is_endless(&store(&server).versions("s3://state/c", "a", "z").await.unwrap_err());
    assert_eq!(asked.load(Ordering::SeqCst), 2);

    let (server, asked) = listing(|page| (entry(&format!("m{page:06}")), String::new())).await;
    assert_is_endless(&store(&server).versions("s3://state/c", "a", "z").await.unwrap_err());
    assert_eq!(asked.load(Ordering::SeqCst) as usize, MOST_PAGES);
}
