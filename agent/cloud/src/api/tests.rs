//! How the responses of each API are classified.

#![allow(clippy::unwrap_used)]

use kops_agent_cluster::identity::digital_ocean::Droplet;
use kops_agent_cluster::identity::hetzner::HetznerServer;
use kops_agent_cluster::identity::linode::LinodeInstance;
use kops_agent_cluster::identity::openstack::OpenstackServer;
use kops_agent_cluster::identity::scaleway::ScalewayServer;
use kops_agent_tests::test_server::{HangUp, TestServer, text};

use super::*;
use crate::aws::{autoscaling, ec2, sts};
use crate::azure::arm;
use crate::gce::compute;
use crate::inventory::Listed as _;
use crate::openstack::keystone;

/// How callers treat an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Absent,
    Forbidden,
    Throttled,
    /// The API rejects the request permanently.
    Refused,
    Trouble,
    /// The response cannot be read, and a retry does not help.
    Garbage,
}

fn told(error: &ApiError) -> Told {
    let told = match error {
        ApiError::Throttled(_) => Told::Throttled,
        error if error.is_absent() => Told::Absent,
        error if error.is_forbidden() => Told::Forbidden,
        error if error.may_pass() => Told::Trouble,
        error if error.is_refusal() => Told::Refused,
        _ => Told::Garbage,
    };
    // Each error belongs to one class only.
    let of_one = [
        (error.is_absent(), Told::Absent),
        (error.is_forbidden(), Told::Forbidden),
        (matches!(error, ApiError::Throttled(_)), Told::Throttled),
    ];
    assert!(of_one.iter().all(|(is, of)| *is == (told == *of)), "{error:?}");
    assert_eq!(error.may_pass(), matches!(told, Told::Throttled | Told::Trouble), "{error:?}");
    let expected = match told {
        Told::Absent => Outcome::Success,
        Told::Throttled => Outcome::Throttled,
        _ => Outcome::Error,
    };
    assert_eq!(error.outcome(), expected, "{error:?}");
    told
}

/// Sends a request to a stand-in that responds with this status and body.
async fn asked(api: &'static Api, status: u16, body: &str) -> Result<Vec<u8>, ApiError> {
    let body = body.to_owned();
    let server = TestServer::start(move |_| {
        let body = body.clone();
        async move { Ok(text(status, &body)) }
    })
    .await;
    ask_at(api, &server.url).await
}

async fn ask_at(api: &'static Api, url: &str) -> Result<Vec<u8>, ApiError> {
    kops_agent_net::tls::install_provider();
    let client = Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let request = client.get(url).build().unwrap();
    ask(&client, request, Question { api, action: "Act", endpoint: url, longest: 4096 }).await
}

fn xml(code: &str) -> String {
    format!("<R><Errors><Error><Code>{code}</Code><Message>m</Message></Error></Errors></R>")
}

fn google(reason: &str) -> String {
    format!(r#"{{"error": {{"code": 1, "message": "m", "errors": [{{"reason": "{reason}"}}]}}}}"#)
}

fn digital_ocean(id: &str) -> String {
    format!(r#"{{"id": "{id}", "message": "m"}}"#)
}

fn hetzner(code: &str) -> String {
    format!(r#"{{"error": {{"code": "{code}", "message": "m"}}}}"#)
}

fn linode(reason: &str) -> String {
    format!(r#"{{"errors": [{{"reason": "{reason}"}}]}}"#)
}

fn scaleway(kind: &str) -> String {
    format!(r#"{{"type": "{kind}", "message": "m"}}"#)
}

fn openstack(fault: &str) -> String {
    format!(r#"{{"{fault}": {{"code": 1, "title": "Title", "message": "m"}}}}"#)
}

#[tokio::test]
async fn a_forbidden_slow_or_unreadable_answer_does_not_mean_absent() {
    let (droplets, servers) = (Droplet::API.api, HetznerServer::API.api);
    let (instances, scw) = (LinodeInstance::API.api, ScalewayServer::API.api);
    let (ec2, autoscaling, sts) = (&ec2::SERVICE.api, &autoscaling::SERVICE.api, &sts::API);
    let (arm, compute) = (&arm::API, &compute::API);
    let (nova, keystone) = (OpenstackServer::API.api, &keystone::API);
    for (api, status, body, expected) in [
        (ec2, 400, xml("InvalidInstanceID.NotFound"), Told::Absent),
        (ec2, 400, xml("InvalidInstanceID.Malformed"), Told::Absent),
        (ec2, 403, xml("UnauthorizedOperation"), Told::Forbidden),
        (ec2, 401, xml("AuthFailure"), Told::Refused),
        (ec2, 400, xml("InvalidAction"), Told::Refused),
        (ec2, 503, xml("RequestLimitExceeded"), Told::Throttled),
        (ec2, 400, xml("Throttling"), Told::Throttled),
        (ec2, 500, xml("InternalError"), Told::Trouble),
        (ec2, 404, xml("NotFound"), Told::Refused),
        (autoscaling, 403, xml("AccessDenied"), Told::Forbidden),
        (autoscaling, 400, xml("Throttling"), Told::Throttled),
        (autoscaling, 400, xml("ValidationError"), Told::Refused),
        (autoscaling, 500, xml("InternalFailure"), Told::Trouble),
        (sts, 403, xml("SignatureDoesNotMatch"), Told::Refused),
        (sts, 403, xml("AccessDenied"), Told::Refused),
        (sts, 400, xml("Throttling"), Told::Throttled),
        (sts, 500, xml("InternalFailure"), Told::Trouble),
        (arm, 404, hetzner("ResourceNotFound"), Told::Absent),
        (arm, 404, hetzner("NotFound"), Told::Absent),
        (arm, 404, hetzner("ResourceGroupNotFound"), Told::Refused),
        (arm, 404, hetzner("SubscriptionNotFound"), Told::Refused),
        (arm, 403, hetzner("AuthorizationFailed"), Told::Forbidden),
        (arm, 401, hetzner("ExpiredAuthenticationToken"), Told::Forbidden),
        (arm, 429, hetzner("TooManyRequests"), Told::Throttled),
        (arm, 400, hetzner("InvalidParameter"), Told::Refused),
        (arm, 409, hetzner("OperationNotAllowed"), Told::Refused),
        (arm, 500, hetzner("InternalServerError"), Told::Trouble),
        (compute, 404, google("notFound"), Told::Absent),
        (compute, 404, google(""), Told::Refused),
        (compute, 404, "{}".into(), Told::Refused),
        (compute, 403, google("forbidden"), Told::Forbidden),
        (compute, 403, google("insufficientPermissions"), Told::Forbidden),
        (compute, 401, google("authError"), Told::Forbidden),
        (compute, 403, google("rateLimitExceeded"), Told::Throttled),
        (compute, 403, google("quotaExceeded"), Told::Throttled),
        (compute, 503, google("backendError"), Told::Trouble),
        (compute, 400, google("invalid"), Told::Refused),
        (droplets, 401, digital_ocean("unauthorized"), Told::Forbidden),
        (droplets, 403, digital_ocean("forbidden"), Told::Forbidden),
        (droplets, 404, digital_ocean("not_found"), Told::Refused),
        (droplets, 503, digital_ocean("service_unavailable"), Told::Trouble),
        (servers, 401, hetzner("unauthorized"), Told::Forbidden),
        (servers, 403, hetzner("forbidden"), Told::Forbidden),
        (servers, 404, hetzner("not_found"), Told::Refused),
        (servers, 503, hetzner("unavailable"), Told::Trouble),
        (instances, 401, linode("Invalid Token"), Told::Forbidden),
        (instances, 403, linode("Unauthorized"), Told::Forbidden),
        (instances, 404, linode("Not found"), Told::Refused),
        (instances, 400, linode("Cannot filter on x"), Told::Refused),
        (instances, 429, linode("Too many requests"), Told::Throttled),
        (instances, 503, linode("Unavailable"), Told::Trouble),
        (nova, 401, openstack("error"), Told::Forbidden),
        (nova, 403, openstack("forbidden"), Told::Forbidden),
        (nova, 404, openstack("itemNotFound"), Told::Refused),
        (nova, 400, openstack("badRequest"), Told::Refused),
        (nova, 413, openstack("overLimit"), Told::Throttled),
        (nova, 429, openstack("overLimit"), Told::Throttled),
        (nova, 500, openstack("computeFault"), Told::Trouble),
        (keystone, 401, openstack("error"), Told::Forbidden),
        (keystone, 403, openstack("error"), Told::Forbidden),
        (keystone, 404, openstack("error"), Told::Refused),
        (keystone, 429, openstack("error"), Told::Throttled),
        (keystone, 500, openstack("error"), Told::Trouble),
        (scw, 401, scaleway("denied_authentication"), Told::Forbidden),
        (scw, 403, scaleway("permissions_denied"), Told::Forbidden),
        (scw, 404, scaleway("unknown_resource"), Told::Refused),
        (scw, 400, scaleway("invalid_request_error"), Told::Refused),
        (scw, 429, scaleway("too_many_requests"), Told::Throttled),
        (scw, 503, r#"{"message": "unavailable"}"#.into(), Told::Trouble),
    ] {
        let error = asked(api, status, &body).await.unwrap_err();
        assert_eq!(told(&error), expected, "{}: {status} {body}", api.name);
    }
    // A response that does not have the form of this API's errors comes from another server, such as a proxy.
    for api in [ec2, autoscaling, sts, arm, compute, droplets, servers, instances, scw, nova, keystone] {
        for (status, expected) in [
            (403, Told::Garbage),
            (404, Told::Garbage),
            (302, Told::Garbage),
            (429, Told::Throttled),
            (500, Told::Trouble),
            (502, Told::Trouble),
        ] {
            for body in ["", "<html>No</html>"] {
                let error = asked(api, status, body).await.unwrap_err();
                assert_eq!(told(&error), expected, "{}: {status} {body}", api.name);
                assert!(error.to_string().contains(&status.to_string()), "{error}");
            }
        }
        let too_long = asked(api, 200, &"x".repeat(5000)).await.unwrap_err();
        assert_eq!(told(&too_long), Told::Garbage, "{too_long}");
        assert_eq!(asked(api, 200, "whole").await.unwrap(), b"whole");
        let server = TestServer::start(|_| async { Err(HangUp) }).await;
        let lost = ask_at(api, &server.url).await.unwrap_err();
        assert!(matches!(lost, ApiError::Unreachable { .. }) && told(&lost) == Told::Trouble, "{lost}");
    }
}

#[tokio::test]
async fn messages_name_the_action_the_endpoint_and_the_remedy() {
    for (status, body, expected) in [
        (
            403,
            xml("UnauthorizedOperation"),
            "EC2 answers Act with 403 UnauthorizedOperation: m; grant this machine's role the permission ec2:Act",
        ),
        (
            503,
            xml("RequestLimitExceeded"),
            "EC2 throttles Act (RequestLimitExceeded): this account sends too many requests at the moment",
        ),
        (429, String::new(), "EC2 throttles Act (429): this account sends too many requests at the moment"),
        (400, xml("a\n(b)"), "EC2 answers Act with 400 ab: m"),
        (
            502,
            "<html/>".into(),
            "answers Act with 502, which is not an answer of EC2: the response contains no error message",
        ),
    ] {
        let error = asked(&ec2::SERVICE.api, status, &body).await.unwrap_err().to_string();
        assert!(error.ends_with(expected), "{error}");
    }
    // STS repeats the signed request in its explanation, so the message omits the explanation.
    let error = asked(&sts::API, 403, &xml("SignatureDoesNotMatch")).await.unwrap_err();
    assert_eq!(error.to_string(), "STS answers Act with 403 SignatureDoesNotMatch");
}

#[tokio::test]
async fn retry_after_is_honoured_up_to_a_maximum() {
    for (header, expected) in [
        ("7", Some(Duration::from_secs(7))),
        (" 7 ", Some(Duration::from_secs(7))),
        ("86400", Some(LONGEST_PAUSE)),
        ("18446744073709551615", Some(LONGEST_PAUSE)),
        ("-1", None),
        ("soon", None),
    ] {
        let server = TestServer::start(move |_| async move {
            let mut answer = text(429, "");
            answer.headers_mut().insert("retry-after", header.parse().unwrap());
            Ok(answer)
        })
        .await;
        let error = ask_at(&compute::API, &server.url).await.unwrap_err();
        assert_eq!(error.retry_after(), expected, "{header}");
    }
}

#[test]
fn an_endpoint_is_an_http_url_without_a_query() {
    let base = |endpoint: &str| base_url(endpoint, "EXAMPLE_URL", "https://api.example.com");
    for endpoint in
        ["", "api.example.com", "ftp://api.example.com", "https://", "https://api.example.com/?a=b"]
    {
        let error = base(endpoint).unwrap_err();
        assert!(error.is_configuration(), "{endpoint}");
        let told = format!(
            "EXAMPLE_URL is {endpoint:?}, which is not the URL of an API, such as https://api.example.com"
        );
        assert_eq!(error.to_string(), told);
    }
    for (endpoint, url) in [
        ("https://api.example.com", "https://api.example.com/v2/machines"),
        ("http://[::1]:8080/", "http://[::1]:8080/v2/machines"),
        ("https://example.com/api/", "https://example.com/api/v2/machines"),
    ] {
        assert_eq!(below(&base(endpoint).unwrap(), "/v2/machines").as_str(), url);
    }
}
