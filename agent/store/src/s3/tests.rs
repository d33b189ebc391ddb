//! Tests against a real S3 server (s3s-fs), which checks signatures. A layer in front of it simulates faults.

#![allow(clippy::unwrap_used)]

use kops_agent_spec::failure::Failing as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::{Request, Response};
use s3s::Body;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s_fs::FileSystem;
use tempfile::TempDir;

use super::S3Settings;
use crate::{LARGEST_FILE, Store, StoreError};
use kops_agent_net::retry::{FAST, Retries};
use kops_agent_tests::test_server::{Answer, HangUp, TestServer, text};

const SHORT: Retries = Retries { deadline: Duration::from_millis(300), ..FAST };

/// A folder with the bucket `state`, and the S3 service over this folder.
pub(crate) struct Buckets {
    folder: TempDir,
    service: S3Service,
}

impl Buckets {
    pub(crate) fn new() -> Buckets {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("state")).unwrap();
        let mut service = S3ServiceBuilder::new(FileSystem::new(folder.path()).unwrap());
        service.set_auth(SimpleAuth::from_single("the-id", "the-secret"));
        Buckets { folder, service: service.build() }
    }

    pub(crate) fn write(&self, key: &str, bytes: impl AsRef<[u8]>) {
        let file = self.folder.path().join("state").join(key);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, bytes).unwrap();
    }

    /// Serves the buckets. If `before` returns an answer to a request, the server sends this answer instead.
    pub(crate) async fn serve_behind<F>(&self, before: F) -> TestServer
    where
        F: Fn(&Request<Incoming>) -> Option<Answer> + Send + Sync + 'static,
    {
        let service = self.service.clone();
        let before = Arc::new(before);
        TestServer::start(move |request| {
            let (service, before) = (service.clone(), before.clone());
            async move {
                match before(&request) {
                    Some(answer) => answer,
                    None => Ok(service.call(request.map(Body::from)).await.unwrap()),
                }
            }
        })
        .await
    }

    pub(crate) async fn serve(&self) -> TestServer {
        self.serve_behind(|_| None).await
    }
}

pub(crate) fn settings(endpoint: &str, region: &str, secret: &str) -> S3Settings {
    S3Settings::Server {
        endpoint: endpoint.into(),
        region: region.into(),
        access_key_id: "the-id".into(),
        secret_access_key: secret.into(),
    }
}

pub(crate) fn store(server: &TestServer) -> Store {
    Store::new(&[])
        .unwrap()
        .with_s3_settings(settings(&server.url, "us-east-1", "the-secret"))
        .with_retries(FAST)
}

pub(crate) fn s3_error(status: u16, code: &str) -> Response<Body> {
    text(
        status,
        &format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>as it is</Message></Error>"),
    )
}

#[tokio::test]
async fn an_object_is_read_with_a_valid_signature() {
    let buckets = Buckets::new();
    buckets.write("a.example.com/cluster-completed.spec", "kind: Cluster\n");
    buckets.write("a.example.com/with space+plus", "odd");
    let server = buckets.serve().await;
    let store = store(&server);
    assert_eq!(
        store.read("s3://state/a.example.com/cluster-completed.spec").await.unwrap(),
        b"kind: Cluster\n"
    );
    assert_eq!(store.read("s3://state//a.example.com/with space+plus").await.unwrap(), b"odd");
}

#[tokio::test]
async fn a_signed_download_url_needs_no_credentials() {
    let buckets = Buckets::new();
    buckets.write("release/a+b", "0123456789");
    let server = buckets.serve().await;
    let store = store(&server);
    // kOps escapes the key in the URL of a download.
    let location = store.locate_download("s3://state/release/a%2Bb").await.unwrap().unwrap();
    assert_eq!((location.size, location.has_headers()), (Some(10), false));
    assert!(!format!("{location:?}").contains("Signature"), "{location:?}");
    let client = kops_agent_net::http::client().unwrap();
    let rest = client.get(location.url).header("range", "bytes=4-").send().await.unwrap();
    assert_eq!(
        (rest.status().as_u16(), kops_agent_net::http::said(rest, 1000).await.as_str()),
        (206, "456789")
    );
    let missing = store.locate_download("s3://state/release/none").await.unwrap_err();
    assert!(matches!(missing, StoreError::NotFound { .. }), "{missing:?}");
}

#[tokio::test]
async fn a_store_works_in_another_task() {
    let buckets = Buckets::new();
    buckets.write("config", "x");
    let server = buckets.serve().await;
    let store = Arc::new(store(&server));
    let reader = store.clone();
    let read = tokio::spawn(async move { reader.read("s3://state/config").await });
    assert_eq!(read.await.unwrap().unwrap(), b"x");
    tokio::spawn(async move { store.list("s3://state").await }).await.unwrap().unwrap();
}

#[tokio::test]
async fn names_directly_below_are_listed_over_all_pages() {
    let buckets = Buckets::new();
    let mut expected: Vec<String> = (0..1100).map(|number| format!("group-{number:04}")).collect();
    for name in &expected {
        buckets.write(&format!("c/instancegroup/{name}"), "");
    }
    buckets.write("c/instancegroup/folder/deeper/file", "");
    buckets.write("c/instancegroups", "");
    expected.insert(0, "folder".into());
    let server = buckets.serve().await;
    let store = store(&server);
    assert_eq!(store.list("s3://state/c/instancegroup").await.unwrap(), expected);
    assert_eq!(store.list("s3://state/c/instancegroup/folder/").await.unwrap(), ["deeper"]);
    assert_eq!(store.list("s3://state").await.unwrap(), ["c"]);
    assert_eq!(store.list("s3://state/d").await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_missing_object_a_missing_bucket_and_a_denied_object_have_different_errors() {
    let buckets = Buckets::new();
    let requests = Arc::new(AtomicU32::new(0));
    let counter = requests.clone();
    let server = buckets
        .serve_behind(move |request| {
            counter.fetch_add(1, Ordering::SeqCst);
            match request.uri().path() {
                "/state/denied" => Some(Ok(s3_error(403, "AccessDenied"))),
                "/other/config" => Some(Ok(s3_error(404, "NoSuchBucket"))),
                _ => None,
            }
        })
        .await;
    let store = store(&server);

    let missing = store.read("s3://state/config").await.unwrap_err();
    assert!(matches!(missing, StoreError::NotFound { .. }), "{missing:?}");
    assert!(missing.to_string().contains("s3://state/config does not exist"), "{missing}");
    assert!(missing.kind().is_configuration());

    let denied = store.read("s3://state/denied").await.unwrap_err();
    assert!(matches!(denied, StoreError::Forbidden { .. }), "{denied:?}");
    assert!(denied.to_string().contains("403") && denied.to_string().contains("s3:ListBucket"), "{denied}");
    assert!(!denied.kind().is_configuration(), "a permission may still be given");

    let elsewhere = store.read("s3://other/config").await.unwrap_err();
    assert!(matches!(elsewhere, StoreError::WrongBucket { .. }), "{elsewhere:?}");
    assert!(elsewhere.to_string().contains("\"other\""), "{elsewhere}");
    assert_eq!(requests.load(Ordering::SeqCst), 3, "permanent errors are not retried");

    let unlisted = store.list("s3://nowhere/c").await.unwrap_err();
    assert!(matches!(unlisted, StoreError::WrongBucket { .. }), "{unlisted:?}");
}

#[tokio::test]
async fn a_wrong_secret_is_refused_and_not_shown() {
    let buckets = Buckets::new();
    buckets.write("config", "x");
    let server = buckets.serve().await;
    let store = store(&server).with_s3_settings(settings(&server.url, "us-east-1", "not-the-secret"));
    let error = store.read("s3://state/config").await.unwrap_err();
    assert!(matches!(error, StoreError::Credentials { .. }), "{error:?}");
    assert!(error.to_string().contains("SignatureDoesNotMatch"), "{error}");
    assert!(!format!("{error} {error:?} {store:?}").contains("not-the-secret"));
}

#[tokio::test]
async fn other_answers_about_credentials_say_what_to_do() {
    let buckets = Buckets::new();
    let server = buckets
        .serve_behind(|request| {
            let (_, code) = request.uri().path().rsplit_once('/').unwrap();
            Some(Ok(s3_error(if code == "ExpiredToken" { 400 } else { 403 }, code)))
        })
        .await;
    let store = store(&server);
    for (code, advice) in [
        ("RequestTimeTooSkewed", "clock is wrong"),
        ("ExpiredToken", "get new credentials"),
        ("InvalidAccessKeyId", "check the access key"),
    ] {
        let error = store.read(&format!("s3://state/{code}")).await.unwrap_err();
        assert!(matches!(error, StoreError::Credentials { .. }), "{error:?}");
        assert!(error.to_string().contains(advice), "{error}");
    }
}

#[tokio::test]
async fn temporary_errors_are_retried_until_success() {
    let buckets = Buckets::new();
    buckets.write("config", "kind: Cluster");
    let requests = AtomicU32::new(0);
    let server = buckets
        .serve_behind(move |_| match requests.fetch_add(1, Ordering::SeqCst) {
            0 => Some(Ok(s3_error(503, "SlowDown"))),
            1 => Some(Err(HangUp)),
            2 => Some(Ok(text(500, "<html>bad gateway</html>"))),
            3 => Some(Ok(s3_error(400, "RequestTimeout"))),
            4 => {
                let mut short = text(200, "kind");
                short.headers_mut().insert("content-length", 13.into());
                Some(Ok(short))
            }
            _ => None,
        })
        .await;
    assert_eq!(store(&server).read("s3://state/config").await.unwrap(), b"kind: Cluster");
}

#[tokio::test]
async fn an_object_with_a_wrong_checksum_is_refused() {
    let buckets = Buckets::new();
    buckets.write("config", "kind: Cluster");
    let requests = AtomicU32::new(0);
    let server = buckets
        .serve_behind(move |_| {
            let first = requests.fetch_add(1, Ordering::SeqCst) == 0;
            let mut forged = text(200, "kind: Forgery");
            forged.headers_mut().insert("x-amz-checksum-crc32", "AAAAAA==".parse().unwrap());
            first.then_some(Ok(forged))
        })
        .await;
    assert_eq!(store(&server).read("s3://state/config").await.unwrap(), b"kind: Cluster");
}

#[tokio::test]
async fn a_server_that_always_fails_ends_the_retries() {
    let buckets = Buckets::new();
    let requests = Arc::new(AtomicU32::new(0));
    let counter = requests.clone();
    let server = buckets
        .serve_behind(move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
            Some(Ok(s3_error(503, "SlowDown")))
        })
        .await;
    let error = store(&server).with_retries(SHORT).read("s3://state/config").await.unwrap_err();
    let StoreError::Unreachable { attempts, cause, .. } = &error else { panic!("{error:?}") };
    assert_eq!(*attempts, requests.load(Ordering::SeqCst), "the SDK must not retry, too");
    assert!(cause.contains("503 SlowDown"), "{error}");
    assert!(!error.kind().is_configuration());
}

#[tokio::test]
async fn an_unreachable_server_ends_the_retries_with_the_reason() {
    // The test has bound the port but does not listen, so connections to the port are refused.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let settings = settings(&format!("http://{}", socket.local_addr().unwrap()), "us-east-1", "the-secret");
    let store = Store::new(&[]).unwrap().with_s3_settings(settings).with_retries(SHORT);
    let error = store.read("s3://state/config").await.unwrap_err().to_string();
    assert!(error.contains("cannot be reached") && error.contains("onnection refused"), "{error}");
}

#[tokio::test]
async fn a_silent_server_ends_the_retries() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = settings(&format!("http://{}", silent.local_addr().unwrap()), "us-east-1", "the-secret");
    let store = Store::new(&[])
        .unwrap()
        .with_s3_settings(settings)
        .with_retries(Retries { attempt: Duration::from_millis(100), ..SHORT });
    let error = store.read("s3://state/config").await.unwrap_err().to_string();
    assert!(error.contains("no answer within"), "{error}");
}

/// If a request is not signed for eu-west-1, answers like S3 for a bucket in eu-west-1: with a redirect, or with the bucket's location.
fn only_in_eu_west_1(request: &Request<Incoming>, says_where: bool) -> Option<Answer> {
    let signature = request.headers().get("authorization").unwrap().to_str().unwrap();
    if signature.contains("/eu-west-1/s3/") {
        return None;
    }
    if request.uri().query().is_some_and(|query| query.contains("location")) {
        let location =
            "<LocationConstraint xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">EU</LocationConstraint>";
        return Some(Ok(text(200, location)));
    }
    let mut redirect = s3_error(301, "PermanentRedirect");
    if says_where {
        redirect.headers_mut().insert("x-amz-bucket-region", "eu-west-1".parse().unwrap());
    }
    Some(Ok(redirect))
}

#[tokio::test]
async fn the_buckets_own_region_is_found_and_remembered() {
    for says_where in [true, false] {
        let buckets = Buckets::new();
        buckets.write("config", "x");
        let redirects = Arc::new(AtomicU32::new(0));
        let counter = redirects.clone();
        let server = buckets
            .serve_behind(move |request| {
                let answer = only_in_eu_west_1(request, says_where);
                counter.fetch_add(u32::from(answer.is_some()), Ordering::SeqCst);
                answer
            })
            .await;
        let store = store(&server);
        for _ in 0..3 {
            assert_eq!(store.read("s3://state/config").await.unwrap(), b"x");
        }
        assert_eq!(store.list("s3://state").await.unwrap(), ["config"]);
        let expected = if says_where { 1 } else { 2 };
        assert_eq!(redirects.load(Ordering::SeqCst), expected, "says where: {says_where}");
    }
}

#[tokio::test]
async fn an_endless_redirect_is_an_error() {
    let buckets = Buckets::new();
    let server = buckets
        .serve_behind(|_| {
            let mut redirect = s3_error(301, "PermanentRedirect");
            redirect.headers_mut().insert("x-amz-bucket-region", "eu-west-1".parse().unwrap());
            Some(Ok(redirect))
        })
        .await;
    let error = store(&server).read("s3://state/config").await.unwrap_err();
    assert!(matches!(error, StoreError::Refused { status: 301, .. }), "{error:?}");
}

#[tokio::test]
async fn an_object_that_is_too_large_is_not_read() {
    let buckets = Buckets::new();
    let file = buckets.folder.path().join("state/large");
    fs::File::create(&file).unwrap().set_len(LARGEST_FILE + 1).unwrap();
    assert!(Path::new(&file).exists());
    let server = buckets.serve().await;
    let error = store(&server).read("s3://state/large").await.unwrap_err();
    assert!(matches!(error, StoreError::TooLarge { .. }), "{error:?}");
}
