//! Tests reading a store as an instance of Amazon does: the role and the region come from a metadata service, and the endpoint comes from
//! the environment. The environment belongs to a process, so the test runs in a child process.

#![allow(clippy::unwrap_used)]

use std::process::Stdio;

use tokio::process::Command;

use super::tests::Buckets;
use crate::Store;
use kops_agent_tests::fake_imds::FakeImds;

const URL: &str = "s3://state/a.example.com/config";

#[tokio::test]
#[ignore = "the tests below run it in a process with other variables"]
async fn child() {
    match Store::new(&[]).unwrap().read(URL).await {
        Ok(bytes) => assert_eq!(bytes, b"kind: Cluster"),
        Err(error) => panic!("{error}"),
    }
}

/// Runs the test `child` in a process with these variables and an empty home folder. Returns its output, and whether it succeeded.
async fn read_in(environment: &[(&str, &str)]) -> (String, bool) {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "s3::instance_role_tests::child", "--ignored", "--nocapture"])
        .env_clear()
        .env("HOME", home.path())
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (String::from_utf8_lossy(&text).into_owned(), output.status.success())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_instance_role_that_appears_late_reads_the_store() {
    let buckets = Buckets::new();
    buckets.write("a.example.com/config", "kind: Cluster");
    // The metadata service reports the region eu-west-1, so every signature must be for this region.
    let server = buckets
        .serve_behind(|request| {
            let signature = request.headers()["authorization"].to_str().unwrap();
            assert!(signature.contains("/eu-west-1/s3/"), "{signature}");
            assert_eq!(request.headers()["x-amz-security-token"], "the-session");
            None
        })
        .await;
    let imds = FakeImds::start(&[]).await;
    imds.let_credentials_be_late(2);
    let (output, success) =
        read_in(&[("AWS_ENDPOINT_URL_S3", &server.url), ("AWS_EC2_METADATA_SERVICE_ENDPOINT", &imds.url())])
            .await;
    assert!(success, "{output}");
    assert!(output.contains("1 passed"), "{output}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn kops_own_variables_name_another_server() {
    let buckets = Buckets::new();
    buckets.write("a.example.com/config", "kind: Cluster");
    let server = buckets.serve().await;
    let (output, success) = read_in(&[
        ("S3_ENDPOINT", &server.url),
        ("S3_REGION", "fra1"),
        ("S3_ACCESS_KEY_ID", "the-id"),
        ("S3_SECRET_ACCESS_KEY", "the-secret"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ])
    .await;
    assert!(success && output.contains("1 passed"), "{output}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_missing_ca_bundle_is_reported_before_any_request() {
    let (output, success) = read_in(&[
        ("SSL_CERT_FILE", "/nowhere.crt"),
        ("S3_ENDPOINT", "https://127.0.0.1:1"),
        ("S3_ACCESS_KEY_ID", "the-id"),
        ("S3_SECRET_ACCESS_KEY", "the-secret"),
    ])
    .await;
    assert!(!success && output.contains("no CA bundle on this host: install ca-certificates"), "{output}");
}
