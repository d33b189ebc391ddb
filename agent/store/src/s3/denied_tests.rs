//! Tests of S3's reasons to deny a file. The error shows the store's own message, and advice that fits.

#![allow(clippy::unwrap_used)]

use super::tests::settings;
use crate::{Store, StoreError};
use kops_agent_net::retry::FAST;
use kops_agent_spec::failure::Failing as _;
use kops_agent_tests::test_server::{TestServer, text};

/// An S3 server that answers every request with this status and body.
async fn server(status: u16, body: &str) -> TestServer {
    let body = body.to_owned();
    TestServer::start(move |_| {
        let answer = text(status, &body);
        async move { Ok(answer) }
    })
    .await
}

fn error(code: &str, message: &str) -> String {
    format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{message}</Message></Error>")
}

fn store(server: &TestServer, region: &str) -> Store {
    let settings = settings(&server.url, region, "the-secret");
    Store::new(&[]).unwrap().with_s3_settings(settings).with_retries(FAST)
}

#[tokio::test]
async fn each_reason_of_a_403_has_its_advice() {
    const USER: &str =
        "User: arn:aws:sts::111122223333:assumed-role/nodes/i-0 is not authorized to perform: ";
    let denied = |words: &str| ("AccessDenied", format!("{USER}{words}"));
    for ((code, message), advice) in [
        (
            ("AccessDenied", "Access Denied".into()),
            "give it s3:GetObject on arn:aws:s3:::state/config and s3:ListBucket",
        ),
        (
            denied("s3:GetObject because no identity-based policy allows the s3:GetObject action"),
            "give it s3:GetObject on arn:aws:s3:::state/config",
        ),
        (
            denied("kms:Decrypt on resource: arn:aws:kms:us-east-1:111122223333:key/abcd"),
            "let this machine's role use the key that encrypts the file (kms:Decrypt)",
        ),
        (
            ("AccessDenied", "The ciphertext refers to a customer master key that does not exist".into()),
            "use the key that encrypts the file",
        ),
        (
            denied("s3:GetObject with an explicit deny in a VPC endpoint policy"),
            "the policy of the VPC endpoint for S3, through which this machine asks, has to allow s3:GetObject",
        ),
        (
            denied("s3:GetObject with an explicit deny in a service control policy"),
            "the organization's service control policy has to allow s3:GetObject",
        ),
        (
            denied("s3:GetObject because no resource control policy allows it"),
            "the organization's resource control policy has to allow",
        ),
        (
            denied("s3:GetObject because no permissions boundary allows it"),
            "the permissions boundary of this",
        ),
        (
            denied("s3:GetObject with an explicit deny in a resource-based policy"),
            "the bucket's own policy has",
        ),
        (
            ("InvalidObjectState", "The operation is not valid for the object's storage class".into()),
            "the file was moved to an archive: restore it",
        ),
        (
            ("AllAccessDisabled", "All access to this object has been disabled".into()),
            "ask the provider's support",
        ),
        (("AccountProblem", "There is a problem with your account".into()), "ask the provider's support"),
    ] {
        let server = server(403, &error(code, &message)).await;
        let store = store(&server, "us-east-1");
        let read = store.read("s3://state/config").await.unwrap_err();
        let located = store.locate_download("s3://state/config").await.unwrap_err();
        for denied in [read, located] {
            assert!(matches!(denied, StoreError::Forbidden { .. }), "{denied:?}");
            assert!(!denied.kind().is_configuration());
            let denied = denied.to_string();
            let words = format!("access denied (403): the store says \"{code}: {message}\"; ");
            assert!(denied.contains(&words) && denied.contains(advice), "{denied}");
            let is_of_rights = advice.starts_with("give it");
            assert_eq!(denied.contains("this machine's role may not read it"), is_of_rights, "{denied}");
        }
    }
}

#[tokio::test]
async fn arns_have_the_partition_of_the_region() {
    let server = server(403, &error("AccessDenied", "Access Denied")).await;
    for (region, partition) in [
        ("eu-west-1", "aws"),
        ("cn-north-1", "aws-cn"),
        ("us-gov-west-1", "aws-us-gov"),
        ("us-iso-east-1", "aws-iso"),
        ("us-isob-east-1", "aws-iso-b"),
        ("", "aws"),
    ] {
        let denied = store(&server, region).read("s3://state/config").await.unwrap_err().to_string();
        assert!(
            denied.contains(&format!("s3:ListBucket on arn:{partition}:s3:::state.")),
            "{region}: {denied}"
        );
    }
}

#[tokio::test]
async fn errors_of_other_statuses_have_message_and_advice() {
    for (status, body, told) in [
        (
            400,
            error("KMS.DisabledException", "key/abcd is disabled."),
            "answers 400 KMS.DisabledException: key/abcd is disabled.; let this",
        ),
        (
            403,
            "<html><h1>Blocked</h1> by the gateway</html>".into(),
            "the store says \"Blocked by the gateway\"; this is no answer of an S3 server: check the proxy",
        ),
        (403, String::new(), "access denied (403): this machine's role"),
        (
            418,
            "a teapot".into(),
            "answers 418 : a teapot; this is no answer of an S3 server: check the proxy",
        ),
    ] {
        let server = server(status, &body).await;
        let refused = store(&server, "us-east-1").read("s3://state/config").await.unwrap_err().to_string();
        assert!(refused.contains(told), "{refused}");
    }
}

#[tokio::test]
async fn a_web_page_is_refused() {
    for page in ["<!DOCTYPE html><title>Log in</title><p>Pay here", "\u{feff}\n <HTML>Log in</HTML>"] {
        let server = server(200, page).await;
        let store = store(&server, "us-east-1");
        let in_clear = Store::new(&[]).unwrap().reading_in_clear();
        let by_http = in_clear.read(&format!("{}/config", server.url)).await;
        for read in [store.read("s3://state/config").await, by_http] {
            let error = read.unwrap_err();
            assert!(
                matches!(error, StoreError::Page { .. }) && !error.kind().is_configuration(),
                "{error:?}"
            );
            let error = error.to_string();
            assert!(error.contains("Log in") && error.contains("captive portal"), "{error}");
        }
    }
}
