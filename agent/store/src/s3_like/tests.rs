//! Tests the schemes of other clouds. The server is the S3 server of the `s3://` tests.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use kops_agent_tests::test_server::TestServer;
use parking_lot::Mutex;

use crate::StoreError;
use crate::s3::tests::{Buckets, s3_error, settings, store};

/// The schemes of clouds with S3-compatible stores.
const SCHEMES: [&str; 4] = ["do", "hos", "linode", "scw"];

async fn served() -> (Buckets, TestServer) {
    let buckets = Buckets::new();
    for (key, text) in [
        ("c/cluster-completed.spec", "kind: Cluster"),
        ("c/config", "kind: Cluster"),
        ("c/instancegroup/nodes", "kind: InstanceGroup"),
        ("release/a+b", "0123456789"),
    ] {
        buckets.write(key, text);
    }
    let server = buckets.serve().await;
    (buckets, server)
}

#[tokio::test]
async fn a_store_is_read_and_listed() {
    let (_buckets, server) = served().await;
    let store = store(&server);
    for scheme in SCHEMES {
        let url = |rest: &str| format!("{scheme}://state/{rest}");
        assert_eq!(store.read(&url("c/config")).await.unwrap(), b"kind: Cluster");
        assert_eq!(
            store.list(&url("c")).await.unwrap(),
            ["cluster-completed.spec", "config", "instancegroup"]
        );
        assert_eq!(store.list(&url("none")).await.unwrap(), Vec::<String>::new());
        let versions = store.versions(&url("c"), "config", "instancegroup/nodes").await.unwrap();
        assert_eq!(versions.keys().collect::<Vec<_>>(), ["config", "instancegroup/nodes"]);
    }
}

#[tokio::test]
async fn errors_have_the_urls_own_scheme_and_the_reason() {
    let (buckets, _) = served().await;
    let server = buckets
        .serve_behind(|request| match request.uri().path() {
            "/state/secret" => Some(Ok(s3_error(403, "AccessDenied"))),
            path if path.starts_with("/other") => Some(Ok(s3_error(404, "NoSuchBucket"))),
            _ => None,
        })
        .await;
    let store = store(&server);
    for scheme in SCHEMES {
        let absent = store.read(&format!("{scheme}://state/c/none")).await.unwrap_err();
        assert!(matches!(&absent, StoreError::NotFound { url, .. } if url.starts_with(scheme)), "{absent:?}");

        let denied = store.read(&format!("{scheme}://state/secret")).await.unwrap_err();
        assert!(matches!(denied, StoreError::Forbidden { .. }), "{denied:?}");
        let key = "a key (S3_ACCESS_KEY_ID) that may read and list the bucket state";
        assert!(denied.to_string().contains(key), "{denied}");

        let elsewhere = store.read(&format!("{scheme}://other/config")).await.unwrap_err();
        assert!(matches!(&elsewhere, StoreError::WrongBucket { bucket, .. } if bucket == "other"));

        let nowhere = store.read(&format!("{scheme}:///config")).await.unwrap_err().to_string();
        assert!(nowhere.contains(&format!("use the form {scheme}://BUCKET/CLUSTER")), "{nowhere}");
    }
}

#[tokio::test]
async fn no_checksums_are_requested_from_linode() {
    let (buckets, _) = served().await;
    let asked = Arc::<Mutex<Vec<bool>>>::default();
    let log = Arc::clone(&asked);
    let server = buckets
        .serve_behind(move |request| {
            log.lock().push(request.headers().contains_key("x-amz-checksum-mode"));
            None
        })
        .await;
    let store = store(&server);
    for scheme in SCHEMES {
        store.read(&format!("{scheme}://state/c/config")).await.unwrap();
    }
    let expected = SCHEMES.map(|scheme| scheme != "linode");
    assert_eq!(*asked.lock(), expected);
}

#[tokio::test]
async fn a_wrong_secret_is_refused_and_not_shown() {
    let (_buckets, server) = served().await;
    let store = store(&server).with_s3_settings(settings(&server.url, "nyc3", "not-the-secret"));
    for scheme in SCHEMES {
        let error = store.read(&format!("{scheme}://state/c/config")).await.unwrap_err();
        assert!(matches!(error, StoreError::Credentials { .. }), "{error:?}");
        assert!(!format!("{error} {error:?} {store:?}").contains("not-the-secret"));
    }
}

#[tokio::test]
async fn a_download_is_located_and_fetched() {
    let (_buckets, server) = served().await;
    let store = store(&server);
    let client = kops_agent_net::LocationClient::new().unwrap();
    for scheme in SCHEMES {
        let location =
            store.locate_download(&format!("{scheme}://state/release/a%2Bb")).await.unwrap().unwrap();
        assert_eq!(location.size, Some(10));
        let answer = client.request(reqwest::Method::GET, &location).send().await.unwrap();
        assert_eq!(kops_agent_net::http::said(answer, 1000).await, "0123456789");
        let missing = store.locate_download(&format!("{scheme}://state/release/none")).await.unwrap_err();
        assert!(matches!(missing, StoreError::NotFound { .. }), "{missing:?}");
    }
}
