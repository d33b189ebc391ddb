#![allow(clippy::unwrap_used)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::*;

const HOST: &str = "sts.us-east-1.amazonaws.com";
/// 2024-05-18 13:19:02 UTC.
const SIGNED_AT: i64 = 1_716_038_342;
const SIGNATURE: &str = "198684464845d2d52947df10171b6291e1b2223ce4bd82a380087761d91246f9";
const HASH: &str = "2dhlzFTsYGePGxGQhK15rn+TV9HEUZxkV94zFLf7uoo";

/// A token from upstream's tests, made by nodeup 1.29 (`TestVerifyAWSSDKV1Token`) on 2024-05-18 at 18:59:04 UTC.
const OF_NODEUP_1_29: &str = "x-aws-sts eyJBdXRob3JpemF0aW9uIjpbIkFXUzQtSE1BQy1TSEEyNTYgQ3JlZGVudGlhbD1mYWtlYWNjZXNza2V5LzIwMjQwNTE4L3VzLWVhc3QtMS9zdHMvYXdzNF9yZXF1ZXN0LCBTaWduZWRIZWFkZXJzPWNvbnRlbnQtbGVuZ3RoO2NvbnRlbnQtdHlwZTtob3N0O3gtYW16LWRhdGU7eC1rb3BzLXJlcXVlc3Qtc2hhLCBTaWduYXR1cmU9MGJkYWYyZTFmYjYxMGRjMjBlMzgyN2MzYWIwYzdiN2Q3ZWUzZjY5ZGMwZTUwNmQ3Y2Y3MTFlZjU5YTA4MzljZCJdLCJDb250ZW50LUxlbmd0aCI6WyI0MyJdLCJDb250ZW50LVR5cGUiOlsiYXBwbGljYXRpb24veC13d3ctZm9ybS11cmxlbmNvZGVkOyBjaGFyc2V0PXV0Zi04Il0sIlVzZXItQWdlbnQiOlsiYXdzLXNkay1nby8xLjUyLjYgKGdvMS4yMi4zOyBsaW51eDsgYW1kNjQpIl0sIlgtQW16LURhdGUiOlsiMjAyNDA1MThUMTg1OTA0WiJdLCJYLUtvcHMtUmVxdWVzdC1TaGEiOlsiMmRobHpGVHNZR2VQR3hHUWhLMTVybitUVjlIRVVaeGtWOTR6RkxmN3VvbyJdfQ==";

fn parse_at(token: &str, now: i64) -> Result<AwsToken, TokenProblem> {
    let expected = Expected { sts_host: HOST, region: "us-east-1", now };
    AwsToken::parse(token, b"test-body", &expected).unwrap()
}

fn v1() -> Value {
    json!({
        "Authorization": [format!(
            "AWS4-HMAC-SHA256 Credential=fakeaccesskey/20240518/us-east-1/sts/aws4_request, \
             SignedHeaders=content-length;content-type;host;x-amz-date;x-kops-request-sha, Signature={SIGNATURE}"
        )],
        "Content-Type": [STS_CONTENT_TYPE],
        "X-Amz-Date": ["20240518T131902Z"],
        "X-Kops-Request-Sha": [HASH],
    })
}

fn v2() -> Value {
    let url = format!(
        "https://{HOST}/?Action=GetCallerIdentity&Version=2011-06-15&X-Amz-Algorithm=AWS4-HMAC-SHA256\
         &X-Amz-Credential=fakeaccesskey%2F20240518%2Fus-east-1%2Fsts%2Faws4_request&X-Amz-Date=20240518T131902Z\
         &X-Amz-SignedHeaders=host%3Bx-kops-request-sha&X-Amz-Signature={SIGNATURE}"
    );
    json!({"url": url, "method": "GET", "headers": {"Host": [HOST], "X-Kops-Request-Sha": [HASH]}})
}

fn read(prefix: &str, token: &Value) -> Result<AwsToken, TokenProblem> {
    parse_at(&format!("{prefix}{}", STANDARD.encode(token.to_string())), SIGNED_AT)
}

#[test]
fn the_first_token_form_is_accepted_and_only_checked_headers_are_sent() {
    let token = read(PREFIX_V1, &v1()).unwrap();
    assert_eq!((token.signature.as_str(), token.signed_at), (SIGNATURE, SIGNED_AT));
    assert_eq!(token.call.query, None);
    let names: Vec<&str> = token.call.headers.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["authorization", "x-amz-date", "x-kops-request-sha", "content-type"]);

    let token = parse_at(OF_NODEUP_1_29, SIGNED_AT + 20_402).unwrap();
    assert!(token.call.headers.iter().all(|(name, _)| *name != "user-agent"));
    assert_eq!(body_hash(b"test-body"), HASH);
}

#[test]
fn the_second_token_form_is_accepted() {
    let token = read(PREFIX_V2, &v2()).unwrap();
    assert_eq!(token.signed_at, SIGNED_AT);
    assert!(token.call.query.unwrap().starts_with("Action=GetCallerIdentity&Version="));
    assert_eq!(token.call.headers, [("x-kops-request-sha", HASH.to_owned())]);
}

#[test]
fn a_token_with_another_prefix_is_not_from_aws() {
    let expected = Expected { sts_host: HOST, region: "us-east-1", now: SIGNED_AT };
    for token in ["", "x-aws-sts", "x-gce-tpm e30=", "Bearer x", " x-aws-sts e30="] {
        assert!(AwsToken::parse(token, b"", &expected).is_none(), "{token:?}");
    }
}

#[test]
fn a_token_is_valid_for_15_minutes() {
    let token = format!("{PREFIX_V1}{}", STANDARD.encode(v1().to_string()));
    for (now, reason) in [
        (SIGNED_AT + VALID_FOR, None),
        (SIGNED_AT + VALID_FOR + 1, Some("TokenExpired")),
        (SIGNED_AT - AHEAD, None),
        (SIGNED_AT - AHEAD - 1, Some("TokenFromTheFuture")),
        (i64::MIN, Some("TokenFromTheFuture")),
        (i64::MAX, Some("TokenExpired")),
    ] {
        assert_eq!(parse_at(&token, now).err().map(|problem| problem.reason()), reason, "{now}");
    }
}

fn changed(mut token: Value, pointer: &str, value: Value) -> Value {
    *token.pointer_mut(pointer).unwrap() = value;
    token
}

fn with(mut token: Value, header: &str, value: Value) -> Value {
    token.as_object_mut().unwrap().insert(header.to_owned(), value);
    token
}

#[test]
fn false_tokens_of_the_first_form_are_rejected() {
    let authorization = v1()["Authorization"][0].as_str().unwrap().to_owned();
    let signed = |from: &str, to: &str| {
        assert!(authorization.contains(from));
        changed(v1(), "/Authorization/0", json!(authorization.replace(from, to)))
    };
    for (token, reason) in [
        (changed(v1(), "/X-Kops-Request-Sha/0", json!("x")), "TokenOfOtherRequest"),
        (changed(v1(), "/X-Kops-Request-Sha", json!([HASH, HASH])), "MalformedToken"),
        (signed(";x-kops-request-sha", ""), "TokenNotBound"),
        (signed(";host", ""), "TokenNotBound"),
        (signed(";x-amz-date", ""), "TokenNotBound"),
        (signed(";host", ";host;x-evil"), "MalformedToken"),
        (with(v1(), "X-Amz-Security-Token", json!(["s"])), "TokenNotBound"),
        (with(v1(), "X-Evil", json!(["s"])), "MalformedToken"),
        (with(v1(), "Host", json!(["evil"])), "MalformedToken"),
        (with(v1(), "authorization", json!(["s"])), "MalformedToken"),
        (with(v1(), "Content-Length", json!(["44"])), "TokenForOtherCall"),
        (with(v1(), "User-Agent", json!(["a\r\nX-Evil: b"])), "MalformedToken"),
        (signed("us-east-1", "eu-west-1"), "TokenForOtherCall"),
        (signed("/sts/", "/iam/"), "TokenForOtherCall"),
        (signed("20240518/", "20240517/"), "MalformedToken"),
        (signed("aws4_request", "aws5_request"), "MalformedToken"),
        (signed("AWS4-HMAC-SHA256", "AWS4-HMAC-SHA1"), "MalformedToken"),
        (signed("Signature=19", "Signature=1"), "MalformedToken"),
        (signed("Signature=", "Signature=;Signature="), "MalformedToken"),
        (signed(", Signature", ", Signature=x, Signature"), "MalformedToken"),
        (signed(", Signature", ", Evil=x, Signature"), "MalformedToken"),
        (changed(v1(), "/X-Amz-Date/0", json!("yesterday")), "MalformedToken"),
        (changed(v1(), "/Content-Type/0", json!("text/plain")), "MalformedToken"),
        (json!([]), "MalformedToken"),
        (json!({}), "TokenOfOtherRequest"),
    ] {
        let problem = read(PREFIX_V1, &token).expect_err(&token.to_string());
        assert_eq!(problem.reason(), reason, "{token}");
        assert!(!problem.to_string().contains("evil"), "{problem}");
    }
    assert_eq!(parse_at("x-aws-sts !", SIGNED_AT).unwrap_err().reason(), "MalformedToken");
}

#[test]
fn false_tokens_of_the_second_form_are_rejected() {
    let url = v2()["url"].as_str().unwrap().to_owned();
    let with_url = |from: &str, to: &str| {
        assert!(url.contains(from));
        changed(v2(), "/url", json!(url.replace(from, to)))
    };
    for (token, reason) in [
        (changed(v2(), "/headers/X-Kops-Request-Sha/0", json!("x")), "TokenOfOtherRequest"),
        (changed(v2(), "/method", json!("POST")), "TokenForOtherCall"),
        (changed(v2(), "/headers/Host/0", json!("evil")), "TokenForOtherCall"),
        (with_url("https://", "http://"), "TokenForOtherCall"),
        (with_url(HOST, "evil.example.com"), "TokenForOtherCall"),
        (with_url(HOST, "sts.us-east-1.amazonaws.com@evil.example.com"), "TokenForOtherCall"),
        (with_url(HOST, "sts.us-east-1.amazonaws.com.evil.example.com"), "TokenForOtherCall"),
        (with_url("/?", "/../?"), "TokenForOtherCall"),
        (with_url("Action=GetCallerIdentity", "Action=AssumeRole"), "TokenForOtherCall"),
        (with_url("/?", "/?Action=AssumeRole&"), "TokenForOtherCall"),
        (with_url("/?", "/?RoleArn=x&"), "TokenForOtherCall"),
        (with_url("&Version", "&Version=1&Version"), "TokenForOtherCall"),
        (with_url("&Version", "#&Version"), "MalformedToken"),
        (with_url("&Version", "+&Version"), "MalformedToken"),
        (with_url("%3Bx-kops-request-sha", ""), "TokenNotBound"),
        (with_url("&X-Amz-Algorithm=AWS4-HMAC-SHA256", ""), "MalformedToken"),
        (json!({}), "MalformedToken"),
    ] {
        let problem = read(PREFIX_V2, &token).expect_err(&token.to_string());
        assert_eq!(problem.reason(), reason, "{token}");
    }
}

/// The test cases of upstream's `TestGetSTSRequestInfo`.
#[test]
fn only_one_url_asks_for_the_callers_identity() {
    for (url, is_valid) in [
        ("https://sts.us-east-1.amazonaws.com/", false),
        ("https://sts.us-east-1.amazonaws.com/Foo", false),
        ("https://sts.us-east-1.amazonaws.com/?Action=GetCallerIdentity", true),
        ("https://sts.us-east-1.amazonaws.com/Foo?Action=GetCallerIdentity", false),
        ("https://sts.us-east-1.amazonaws.com/?Action=GetCallerIdentity&Action=GetCallerIdentity", false),
        ("http://sts.us-east-1.amazonaws.com/?Action=GetCallerIdentity", false),
        ("//sts.us-east-1.amazonaws.com/?Action=GetCallerIdentity", false),
    ] {
        assert_eq!(sts_query(url, HOST).is_ok(), is_valid, "{url}");
    }
}

#[test]
fn only_an_instance_with_a_role_of_nodes_is_a_node() {
    const ID: &str = "i-0123456789abcdef0";
    let caller = |arn: &str, session: &str| Caller {
        arn: arn.into(),
        user_id: format!("AROAEXAMPLE:{session}"),
        account: "123456789012".into(),
    };
    let own = caller("arn:aws:sts::123456789012:assumed-role/control-plane/i-0fffffffffffffff0", "x");
    let roles = ["nodes.c.example.com".to_owned()];
    let arn = format!("arn:aws:sts::123456789012:assumed-role/nodes.c.example.com/{ID}");
    assert_eq!(caller(&arn, ID).instance_id(&own, &roles).unwrap(), ID);
    let stranger = Caller { account: "210987654321".into(), ..caller(&arn, ID) };
    for (caller, reason) in [
        (stranger, "OtherAccount"),
        (caller(&arn.replace("123456789012", "210987654321"), ID), "OtherAccount"),
        (caller(&arn, "i-0fffffffffffffff0"), "OtherRole"),
        (caller(&arn.replace("arn:aws:", "arn:aws-cn:"), ID), "OtherRole"),
        (caller(&arn.replace("nodes.c", "bastions.c"), ID), "OtherRole"),
        (caller(&arn.replace(ID, "admin"), "admin"), "OtherRole"),
        (caller(&format!("{arn}/x"), ID), "OtherRole"),
        (caller(&arn.replace("sts::", "ec2::"), ID), "OtherRole"),
        (caller("arn:aws:iam::123456789012:user/Alice", ID), "OtherRole"),
        (caller("", ID), "OtherRole"),
    ] {
        assert_eq!(caller.instance_id(&own, &roles).unwrap_err().reason(), reason, "{caller:?}");
    }
    let unknown = Caller::default();
    assert!(unknown.instance_id(&unknown, &roles).is_err());
    let refused =
        caller(&arn.replace("nodes.c", "bastions.c"), ID).instance_id(&own, &roles).unwrap_err().to_string();
    assert!(
        refused.contains("bastions.c.example.com") && refused.ends_with("which are nodes.c.example.com"),
        "{refused}"
    );
}
