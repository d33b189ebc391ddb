//! Tests against a stand-in on loopback, which serves Google's storage and metadata.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use parking_lot::Mutex;

use super::*;
use kops_agent_net::LocationClient;
use kops_agent_tests::test_server::{TestServer, text};

const TOKEN: &str = "/computeMetadata/v1/instance/service-accounts/default/token";

/// The objects of the bucket `state`, with their generations.
const OBJECTS: [(&str, &str); 7] = [
    ("c/cluster-completed.spec", "1"),
    ("c/config", "2"),
    ("c/igconfig/node/nodes/nodeupconfig.yaml", "3"),
    ("c/instancegroup/control-plane", "4"),
    ("c/instancegroup/nodes", "5"),
    ("c/pki/ca", "6"),
    ("cc/config", "7"),
];
const PAGE: usize = 2;

async fn google() -> (TestServer, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let log = Arc::clone(&asked);
    let server = TestServer::start(move |request| {
        let uri = request.uri().clone();
        log.lock().push(uri.path().to_owned());
        let lets_in = request.headers().get("authorization").is_some_and(|value| value == "Bearer hidden");
        async move {
            Ok(match (uri.path(), uri.query()) {
                (TOKEN, _) => text(200, r#"{"access_token": "hidden", "expires_in": 3599}"#),
                (path, _) if path.strip_prefix("/revoked") == Some(TOKEN) => {
                    text(200, r#"{"access_token": "hidden-and-revoked", "expires_in": 3599}"#)
                }
                (_, _) if !lets_in => text(401, ""),
                ("/b/assets/o/release%2Fv1%2Fa%2Bb", Some("fields=size")) => text(200, r#"{"size": "5"}"#),
                ("/b/assets/o/release%2Fv1%2Fa%2Bb", Some("alt=media")) => text(200, "hello"),
                ("/b/assets/o/long", Some("fields=size")) => {
                    let filler = "x".repeat(usize::try_from(LARGEST_METADATA).unwrap());
                    text(200, &format!(r#"{{"size": "5", "filler": "{filler}"}}"#))
                }
                ("/b/assets/o/secret", _) => text(403, ""),
                ("/b/assets/o/blocked", _) => text(403, "<html>Blocked by the gateway</html>"),
                ("/b/assets/o/denied", _) => {
                    let mut answer = text(403, "nodes@p.iam does not have storage.objects.get access.\n");
                    answer.headers_mut().insert(UPLOAD_ID, HeaderValue::from_static("x"));
                    answer
                }
                ("/b/assets/o/busy", _) => text(503, ""),
                ("/b/state/o/c%2Fconfig", Some("alt=media")) => text(200, "kind: Cluster"),
                ("/b/state/o", Some(query)) => text(200, &listed(query)),
                _ => text(404, ""),
            })
        }
    })
    .await;
    (server, asked)
}

/// A page of the bucket's objects in Google's format.
fn listed(query: &str) -> String {
    let query: BTreeMap<String, String> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let get = |name: &str| query.get(name).map_or("", String::as_str);
    let (prefix, delimiter, end) = (get("prefix"), get("delimiter"), get("endOffset"));
    let is_within =
        |name: &str| name.starts_with(prefix) && name >= get("startOffset") && (end.is_empty() || name < end);
    // A name with the delimiter is replaced by its folder, and each folder is listed once.
    let mut entries: Vec<(String, Option<&str>)> = OBJECTS
        .iter()
        .filter(|(name, _)| is_within(name))
        .map(|(name, generation)| match name[prefix.len()..].split_once('/') {
            Some((folder, _)) if delimiter == "/" => (format!("{prefix}{folder}/"), None),
            _ => ((*name).to_owned(), Some(*generation)),
        })
        .collect();
    entries.dedup();
    let start = get("pageToken").parse().unwrap_or(0);
    let page = &entries[start..entries.len().min(start + PAGE)];
    let items: Vec<_> = page
        .iter()
        .filter_map(|(name, generation)| {
            Some(serde_json::json!({"name": name, "generation": (*generation)?}))
        })
        .collect();
    let prefixes: Vec<&String> =
        page.iter().filter(|(_, generation)| generation.is_none()).map(|(name, _)| name).collect();
    let mut answer = serde_json::json!({"kind": "storage#objects", "items": items, "prefixes": prefixes});
    if start + PAGE < entries.len() {
        answer["nextPageToken"] = (start + PAGE).to_string().into();
    }
    answer.to_string()
}

fn gs(server: &TestServer) -> Gs {
    gs_with(server, "")
}

/// Like [`gs`], but the paths in the URLs of the metadata server begin with `below`.
fn gs_with(server: &TestServer, below: &str) -> Gs {
    let retries = Retries { deadline: Duration::from_millis(100), ..Retries::default() };
    let tokens = Tokens::at(format!("{}{below}", server.url), retries).unwrap();
    Gs { endpoint: server.url.clone(), tokens, ..Gs::new(retries).unwrap() }
}

fn place(url: &str) -> Place {
    crate::schemes::place(url).unwrap().1
}

fn url(object: &str) -> Place {
    place(&format!("gs://state/{object}"))
}

#[tokio::test]
async fn requests_for_objects_share_one_token_of_the_instance() {
    let (server, asked) = google().await;
    let gs = gs(&server);
    let file = place("gs://assets/release/v1/a+b");
    let client = LocationClient::new().unwrap();
    for _ in 0..3 {
        let location = gs.locate(&file).await.unwrap();
        assert_eq!((location.size, location.has_headers()), (Some(5), true));
        let answer = client.request(reqwest::Method::GET, &location).send().await.unwrap();
        assert_eq!(kops_agent_net::http::said(answer, 1000).await, "hello");
        assert!(!format!("{location:?}").contains("hidden"));
    }
    assert_eq!(asked.lock().iter().filter(|path| *path == TOKEN).count(), 1);
}

#[tokio::test]
async fn a_size_is_read_from_an_answer_of_bounded_length() {
    let (server, _) = google().await;
    let located = gs(&server).locate(&place("gs://assets/long")).await.unwrap();
    assert_eq!(
        (located.url.query(), located.size),
        (Some("alt=media"), None),
        "the download works without the size"
    );
}

#[tokio::test]
async fn each_failure_has_its_own_error() {
    let (server, _) = google().await;
    let gs = gs(&server);
    let error = async |object| gs.locate(&place(&format!("gs://assets/{object}"))).await.unwrap_err();
    assert!(matches!(error("none").await, StoreError::NotFound { .. }));
    assert!(matches!(error("busy").await, StoreError::Unreachable { .. }));
    let forbidden = [error("secret").await, gs.read(&place("gs://assets/secret")).await.unwrap_err()];
    for forbidden in forbidden {
        assert!(matches!(forbidden, StoreError::Forbidden { .. }), "{forbidden:?}");
        let forbidden = forbidden.to_string();
        for told in ["access denied (403)", "storage.objects.get", "bucket assets", "devstorage.read_only"] {
            assert!(forbidden.contains(told), "{forbidden}");
        }
    }
    for error in [error("blocked").await, gs.read(&place("gs://assets/blocked")).await.unwrap_err()] {
        let error = error.to_string();
        let told = "the store says \"Blocked by the gateway\"; this is no answer of Google's storage: check the proxy";
        assert!(error.contains(told) && !error.contains("storage.objects.get"), "{error}");
    }
    let denied = gs.read(&place("gs://assets/denied")).await.unwrap_err().to_string();
    assert!(denied.contains("give it storage.objects.get"), "{denied}");
    let refused = gs_with(&server, "/revoked").read(&url("c/config")).await.unwrap_err();
    assert!(matches!(refused, StoreError::Credentials { .. }), "{refused:?}");
    assert!(refused.to_string().contains("401") && !refused.to_string().contains("hidden"), "{refused}");

    assert!(matches!(gs.read(&url("c/none")).await.unwrap_err(), StoreError::NotFound { .. }));
    let elsewhere = place("gs://none/c");
    assert!(matches!(gs.list(&elsewhere).await.unwrap_err(), StoreError::WrongBucket { .. }));
    let busy = place("gs://assets/busy");
    assert!(matches!(gs.read(&busy).await.unwrap_err(), StoreError::Unreachable { .. }));
}

/// The error bodies are examples from Google's reference.
#[test]
fn each_reason_of_a_403_has_its_advice() {
    let body = |reason: &str, message: &str| serde_json::json!({"error": {"code": 403, "message": message, "errors": [{"reason": reason, "message": message}]}});
    for (reason, message, advice) in [
        ("forbidden", "nodes@p.iam does not have storage.objects.get access", "give it storage.objects.get"),
        (
            "insufficientPermissions",
            "Insufficient Permission",
            "give this instance the scope devstorage.read_only",
        ),
        ("forbidden", "Request had insufficient authentication scopes.", "give this instance the scope"),
        ("accountDisabled", "The account has been disabled.", "enable billing"),
        ("forbidden", "The billing account for the owning project is disabled", "enable billing"),
        ("accessNotConfigured", "Access Not Configured.", "enable storage.googleapis.com"),
        (
            "forbidden",
            "Request is prohibited by organization's policy. vpcServiceControlsUniqueIdentifier: x",
            "perimeter",
        ),
        ("forbidden", "Permission denied on Cloud KMS key.", "use the key that encrypts the file"),
    ] {
        let answer = body(reason, message).to_string();
        let Failure::Forbidden { said, advice: told } = forbidden(Said::of_body(answer.as_bytes()), true)
        else {
            panic!("{reason}")
        };
        let told = place("gs://state/c/config").forbidden(&said, told).to_string();
        assert!(told.contains(&format!("the store says \"{reason}: {message}\"; ")), "{told}");
        assert!(told.contains(advice), "{told}");
    }
    let slow = forbidden(Said::of_body(body("rateLimitExceeded", "Slow down").to_string().as_bytes()), true);
    assert!(matches!(slow, Failure::Passing(_)), "{slow:?}");
}

#[tokio::test]
async fn a_state_store_is_read_and_listed_page_by_page() {
    let (server, _) = google().await;
    let gs = gs(&server);
    assert_eq!(gs.read(&url("c/config")).await.unwrap(), b"kind: Cluster");
    assert_eq!(
        gs.list(&url("c")).await.unwrap(),
        ["cluster-completed.spec", "config", "igconfig", "instancegroup", "pki"]
    );
    assert_eq!(gs.list(&url("c/instancegroup/")).await.unwrap(), ["control-plane", "nodes"]);
    assert_eq!(gs.list(&url("")).await.unwrap(), ["c", "cc"]);
    assert_eq!(gs.list(&url("none")).await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn versions_are_generations_of_the_objects_between_two() {
    let (server, _) = google().await;
    let versions = gs(&server).versions(&url("c"), "config", "instancegroup/nodes").await.unwrap();
    let versions: Vec<(&str, &str)> =
        versions.iter().map(|(name, version)| (name.as_str(), version.as_str())).collect();
    assert_eq!(
        versions,
        [
            ("config", "2"),
            ("igconfig/node/nodes/nodeupconfig.yaml", "3"),
            ("instancegroup/control-plane", "4"),
            ("instancegroup/nodes", "5")
        ]
    );
}

#[test]
fn names_are_escaped_as_one_segment() {
    assert_eq!(escaped("a/b%2Fc d-._~").to_string(), "a%2Fb%252Fc%20d-._~");
}
