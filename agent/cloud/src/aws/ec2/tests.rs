//! EC2 is a stand-in on loopback that verifies every signature.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use aws_credential_types::provider::future;
use aws_sdk_s3::config::ProvideCredentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime};

use super::*;
use crate::aws::endpoint::amazon;
use crate::aws::query::text_of;
use kops_agent_tests::test_server::{TestServer, text};

const REGION: &str = "eu-west-1";
const ASSIGNED: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<AssignIpv6AddressesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">
    <requestId>59dbff89-35bd-4eac-99ed-be587EXAMPLE</requestId>
    <networkInterfaceId>eni-0123456789abcdef0</networkInterfaceId>
    <assignedIpv6Addresses/>
    <assignedIpv6PrefixSet><item>2001:db8:1234:1a00:9691::/80</item></assignedIpv6PrefixSet>
</AssignIpv6AddressesResponse>"#;

fn refusal(code: &str, message: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error><Code>{code}</Code>\
         <Message>{message}</Message></Error></Errors><RequestID>ea966190-f9aa</RequestID></Response>"
    )
}

fn credentials(secret: &str) -> Credentials {
    Credentials::new("AKIDEXAMPLE", secret, Some("the-session".into()), None, "test")
}

pub(crate) fn ec2(endpoint: &str, secret: &str) -> Ec2 {
    let provider = SharedCredentialsProvider::new(credentials(secret));
    Ec2::new(endpoint, REGION, Some(provider)).unwrap()
}

/// A stand-in for EC2 that knows one secret. It gives the same response to every request that is signed with this secret.
async fn stand_in(status: u16, answer: String) -> TestServer {
    TestServer::start(move |request| {
        let answer = answer.clone();
        async move {
            Ok(match verify(request).await {
                Ok(form) if form.contains("&Version=2016-11-15&") => text(status, &answer),
                Ok(form) => text(400, &refusal("InvalidAction", &form)),
                Err(code) => text(401, &refusal(code, "it is &lt;not&gt; valid")),
            })
        }
    })
    .await
}

/// Verifies the signature of a request: signs the request again, and compares both signatures. Returns the request's body, which is a form.
async fn verify(request: hyper::Request<Incoming>) -> Result<String, &'static str> {
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    let (Some(authorization), Some(date), Some(host), Some(content_type)) =
        (header("authorization"), header("x-amz-date"), header("host"), header("content-type"))
    else {
        return Err("MissingAuthenticationToken");
    };
    let format = format_description!("[year][month][day]T[hour][minute][second]Z");
    let date = PrimitiveDateTime::parse(date, &format).unwrap().assume_utc();
    assert!((OffsetDateTime::now_utc() - date).abs() < time::Duration::minutes(5), "{date}");
    let (authorization, url) = (authorization.to_owned(), format!("http://{host}{}", request.uri().path()));
    let content_type = content_type.to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let identity = credentials("the-secret").into();
    let parameters = v4::SigningParams::builder()
        .identity(&identity)
        .region(REGION)
        .name("ec2")
        .time(date.into())
        .settings(SigningSettings::default())
        .build()
        .unwrap()
        .into();
    let headers = [("content-type", content_type.as_str())];
    let signable =
        SignableRequest::new("POST", url, headers.into_iter(), SignableBody::Bytes(&body)).unwrap();
    let (expected, _) = sign(signable, &parameters).unwrap().into_parts();
    let expected = expected.headers().find(|(name, _)| *name == "authorization").unwrap().1.to_owned();
    match authorization == expected {
        true => Ok(String::from_utf8(body.to_vec()).unwrap()),
        false => Err("AuthFailure"),
    }
}

#[tokio::test]
async fn a_signed_query_returns_the_document() {
    let server = stand_in(200, ASSIGNED.into()).await;
    let ec2 = ec2(&server.url, "the-secret");
    let parameters = [("NetworkInterfaceId", "eni-0123456789abcdef0"), ("Filter.1.Value.1", "a b&c=ü")];
    let document = ec2.query("AssignIpv6Addresses", &parameters).await.unwrap();
    assert_eq!(document, ASSIGNED);
}

#[tokio::test]
async fn a_wrong_secret_is_rejected_with_advice() {
    let server = stand_in(200, ASSIGNED.into()).await;
    let error = ec2(&server.url, "wrong").query("DescribeInstances", &[("A", "b")]).await.unwrap_err();
    assert!(!error.may_pass());
    let error = error.to_string();
    assert_eq!(
        error,
        "EC2 answers DescribeInstances with 401 AuthFailure: it is <not> valid; check the access key and its \
         secret, and this machine's clock"
    );
}

#[tokio::test]
async fn throttling_is_a_distinct_error() {
    let limit = refusal("RequestLimitExceeded", "Request limit exceeded.");
    let server = stand_in(503, limit).await;
    let error = ec2(&server.url, "the-secret").query("DescribeInstances", &[("A", "b")]).await.unwrap_err();
    assert!(
        matches!(&error, ApiError::Throttled(answer) if answer.code == "RequestLimitExceeded")
            && error.may_pass(),
        "{error:?}"
    );
}

#[tokio::test]
async fn rejections_by_ec2_differ_from_answers_of_other_servers() {
    for (status, answer, passing, expected) in [
        (
            403,
            refusal("UnauthorizedOperation", "No."),
            false,
            "grant this machine's role the permission ec2:DescribeInst",
        ),
        (400, refusal("InvalidInstanceID.NotFound", "i-1"), false, "400 InvalidInstanceID.NotFound: i-1"),
        (500, refusal("InternalError", ""), true, "500 InternalError"),
        (502, "<html>Bad Gateway</html>".into(), true, "with 502, which is not an answer of EC2"),
        (404, String::new(), false, "with 404, which is not an answer of EC2"),
    ] {
        let server = stand_in(status, answer).await;
        let error = ec2(&server.url, "the-secret").query("DescribeInstances", &[("A", "b")]).await;
        let error = error.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(error.may_pass(), passing, "{error}");
    }
}

#[tokio::test]
async fn missing_connections_and_credentials_are_temporary_errors() {
    // Nothing listens on this port. The port stays bound, so that no other process can take it.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap());
    let error = ec2(&url, "the-secret").query("DescribeInstances", &[]).await.unwrap_err();
    assert!(matches!(&error, ApiError::Unreachable { .. }) && error.may_pass(), "{error}");

    let ec2 = Ec2::new(&url, REGION, None).unwrap();
    let error = ec2.query("DescribeInstances", &[]).await.unwrap_err();
    assert!(matches!(&error, ApiError::NoCredentials { .. }) && error.may_pass(), "{error}");
}

/// A provider that counts the requests for credentials. The credentials expire after `good_for`.
#[derive(Debug)]
struct Counting {
    asked: Arc<AtomicU32>,
    good_for: Duration,
}

impl ProvideCredentials for Counting {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let end = SystemTime::now() + self.good_for;
        let fresh =
            Credentials::new("AKIDEXAMPLE", "the-secret", Some("the-session".into()), Some(end), "test");
        future::ProvideCredentials::ready(Ok(fresh))
    }
}

#[tokio::test]
async fn credentials_are_cached_until_shortly_before_they_expire() {
    let server = stand_in(200, ASSIGNED.into()).await;
    for (good_for, expected) in [(Duration::from_secs(3600), 1), (Duration::from_secs(60), 3)] {
        let asked = Arc::new(AtomicU32::new(0));
        let provider = SharedCredentialsProvider::new(Counting { asked: asked.clone(), good_for });
        let ec2 = Ec2::new(&server.url, REGION, Some(provider)).unwrap();
        for _ in 0..3 {
            ec2.query("DescribeInstances", &[("A", "b")]).await.unwrap();
        }
        assert_eq!(asked.load(Ordering::SeqCst), expected);
    }
}

#[test]
fn every_partition_has_its_endpoint() {
    for (region, is_dual_stack, expected) in [
        ("eu-west-1", false, "https://ec2.eu-west-1.amazonaws.com"),
        ("us-gov-west-1", false, "https://ec2.us-gov-west-1.amazonaws.com"),
        ("cn-north-1", false, "https://ec2.cn-north-1.amazonaws.com.cn"),
        ("us-iso-east-1", false, "https://ec2.us-iso-east-1.c2s.ic.gov"),
        ("us-isob-east-1", false, "https://ec2.us-isob-east-1.sc2s.sgov.gov"),
        ("us-isof-south-1", false, "https://ec2.us-isof-south-1.csp.hci.ic.gov"),
        ("eusc-de-east-1", false, "https://ec2.eusc-de-east-1.amazonaws.eu"),
        ("eu-west-1", true, "https://ec2.eu-west-1.api.aws"),
        ("cn-north-1", true, "https://ec2.cn-north-1.api.amazonwebservices.com.cn"),
    ] {
        assert_eq!(amazon("ec2", region, is_dual_stack), expected);
    }
}

#[test]
fn xml_elements_are_found_at_any_depth_and_unescaped() {
    assert_eq!(text_of(ASSIGNED, "item").as_deref(), Some("2001:db8:1234:1a00:9691::/80"));
    assert_eq!(text_of("<a><b/><c> x &amp; y </c></a>", "b").as_deref(), Some(""));
    assert_eq!(text_of("<a><b/><c> x &amp; y </c></a>", "c").as_deref(), Some("x & y"));
    assert_eq!(text_of(ASSIGNED, "Code"), None);
    assert_eq!(text_of("no XML", "Code"), None);
}
