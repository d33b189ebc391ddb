//! Tests against a web server on loopback, without TLS. The tests of the whole program cover TLS.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kops_agent_net::retry::FAST;
use kops_agent_tests::test_server::{TestServer, text};

use super::*;
use crate::{Found, Store};
use kops_agent_spec::failure::Failing as _;

/// Makes a server whose file `/passes` fails at the first request. Also returns a counter of the requests for this file.
async fn web() -> (TestServer, Arc<AtomicUsize>) {
    let asked = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&asked);
    let server = TestServer::start(move |request| {
        let path = request.uri().path().to_owned();
        let is_first = path != "/passes" || counted.fetch_add(1, Ordering::Relaxed) == 0;
        async move {
            let to = |location: &str| {
                let mut answer = text(302, "");
                answer.headers_mut().insert("location", location.parse().unwrap());
                answer
            };
            Ok(match path.as_str() {
                "/c/config" => text(200, "kind: Cluster"),
                "/passes" if is_first => text(503, ""),
                "/passes" => text(200, "it passed"),
                "/moved" => to("/c/config"),
                "/circle" => to("/circle"),
                "/c/pki/private/ca/keyset.yaml" => text(403, ""),
                "/login" => text(401, ""),
                "/gone" => text(410, "not\u{1b}[2J here"),
                "/nothing" => text(204, ""),
                "/busy" => text(429, ""),
                "/large" => text(200, &"x".repeat(usize::try_from(LARGEST_FILE).unwrap() + 1)),
                _ => text(404, ""),
            })
        }
    })
    .await;
    (server, asked)
}

fn store() -> Store {
    Store::new(&[]).unwrap().with_retries(FAST).reading_in_clear()
}

#[tokio::test]
async fn a_file_is_read_after_a_redirect_and_after_a_retry() {
    let (server, _) = web().await;
    let read = async |path: &str| store().read(&format!("{}{path}", server.url)).await.unwrap();
    assert_eq!(read("/c/config").await, b"kind: Cluster");
    assert_eq!(read("/moved").await, b"kind: Cluster");
    assert_eq!(read("/passes").await, b"it passed");
}

#[tokio::test]
async fn each_failure_has_its_own_error() {
    let (server, _) = web().await;
    let retries = Retries { deadline: Duration::from_millis(50), ..FAST };
    let store = store().with_retries(retries);
    let error = async |path: &str| store.read(&format!("{}{path}", server.url)).await.unwrap_err();
    assert!(matches!(error("/none").await, StoreError::NotFound { .. }));
    assert!(matches!(error("/large").await, StoreError::TooLarge { .. }));
    assert!(matches!(error("/busy").await, StoreError::Unreachable { .. }));
    assert!(matches!(error("/nothing").await, StoreError::Refused { status: 204, .. }));
    let forbidden = error("/c/pki/private/ca/keyset.yaml").await;
    assert!(matches!(forbidden, StoreError::Forbidden { .. }), "{forbidden:?}");
    assert!(forbidden.to_string().contains("read access without a login on the web server 127.0.0.1:"));
    let login = error("/login").await;
    assert!(matches!(login, StoreError::Credentials { .. }), "{login:?}");
    assert!(login.to_string().contains("401 Unauthorized; it wants a login"), "{login}");
    let gone = error("/gone").await.to_string();
    assert!(gone.ends_with("the store answers 410 : not [2J here"), "{gone}");
    let circle = error("/circle").await;
    assert!(circle.kind().is_configuration() && circle.to_string().contains("in a circle"), "{circle}");
}

/// A web server does not list its files, so the agent cannot know whether a denied file exists. The agent also cannot know this if it has
/// no permission to list a bucket.
#[tokio::test]
async fn without_lists_a_denied_file_is_denied_and_a_missing_file_is_absent() {
    let (server, _) = web().await;
    let look = async |path: &str| store().read_if_present(&format!("{}{path}", server.url)).await.unwrap();
    assert!(matches!(look("/c/pki/private/ca/keyset.yaml").await, Found::Denied(_)));
    assert!(matches!(look("/c/pki/private/none/keyset.yaml").await, Found::Absent));
    assert!(matches!(look("/c/config").await, Found::There(_)));

    let folder = format!("{}/c", server.url);
    for error in
        [store().list(&folder).await.unwrap_err(), store().versions(&folder, "a", "z").await.unwrap_err()]
    {
        assert!(matches!(error, StoreError::NoLists { .. }), "{error:?}");
        assert!(error.kind().is_configuration());
        assert!(error.to_string().contains("http:// stores have no lists"), "{error}");
    }
}

#[tokio::test]
async fn downloads_from_web_servers_need_no_store() {
    let store = store();
    assert!(store.locate_download("https://dl.k8s.io/release/kubelet").await.unwrap().is_none());
}
