//! openssl made the token, in upstream's layout, for a request with the body `test-body`. `negated.json` has the same claim with
//! ECDSA's other valid signature.

#![allow(clippy::unwrap_used)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;

const TOKEN: &str = include_str!("token.json");
const NEGATED: &str = include_str!("negated.json");
const KEY: &str = include_str!("pub.pem");
const OTHER_KEY: &str = include_str!("other.pem");
const BODY: &[u8] = b"test-body";
const MADE_AT: i64 = 1_700_000_000;

fn parsed(json: &str, body: &[u8], now: i64) -> Result<HostToken, TokenProblem> {
    HostToken::parse(&format!("{PREFIX}{}", STANDARD.encode(json)), body, USUAL_SKEW, now).unwrap()
}

fn decoded(json: &str, field: &str) -> Vec<u8> {
    let token: serde_json::Value = serde_json::from_str(json).unwrap();
    STANDARD.decode(token[field].as_str().unwrap()).unwrap()
}

/// The token with `before` replaced by `after` in its data. The signature no longer matches.
fn saying(before: &str, after: &str) -> String {
    let data = String::from_utf8(decoded(TOKEN, "data")).unwrap();
    assert!(data.contains(before), "{data}");
    let mut token: serde_json::Value = serde_json::from_str(TOKEN).unwrap();
    token["data"] = STANDARD.encode(data.replace(before, after)).into();
    token.to_string()
}

#[test]
fn a_token_identifies_its_host() {
    let read = parsed(TOKEN, BODY, MADE_AT + 300).unwrap();
    assert_eq!((read.host.as_str(), read.signed_at), ("vm1", MADE_AT));
    assert_eq!(read.verify(KEY), Ok(()));
    assert!(!format!("{read:?}").contains("signed"));
    assert!(HostToken::parse("x-gce-tpm e30=", BODY, USUAL_SKEW, MADE_AT).is_none());
}

#[test]
fn tokens_have_the_form_of_upstreams_machines() {
    let made = data("vm1", KEY, BODY, MADE_AT);
    assert_eq!(String::from_utf8(made.clone()), String::from_utf8(decoded(TOKEN, "data")));
    let token = token(made, decoded(TOKEN, "signature"));
    assert_eq!(token, format!("x-pki-tpm {}", STANDARD.encode(TOKEN.trim_end())));
}

#[test]
fn a_changed_claim_or_another_key_is_rejected() {
    let read = parsed(TOKEN, BODY, MADE_AT).unwrap();
    assert_eq!(read.verify(OTHER_KEY), Err(TokenProblem::NotSigned(SIGNER)));
    let other = parsed(&saying("vm1", "vm2"), BODY, MADE_AT).unwrap();
    assert_eq!((other.host.as_str(), other.verify(KEY)), ("vm2", Err(TokenProblem::NotSigned(SIGNER))));
    for key in [
        "",
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        &KEY.replace("PUBLIC", "PRIVATE"),
    ] {
        assert_eq!(read.verify(key).unwrap_err().reason(), "NoSigningKey", "{key}");
    }
    let rsa = include_str!("../gce_token/pub.pem");
    assert_eq!(read.verify(rsa), Err(TokenProblem::UnusableKey("it is not an EC key")));
}

/// ECDSA accepts a signature and its negation. If their fingerprints differed, an intercepted token could be used a second time.
#[test]
fn another_signature_of_a_claim_has_the_same_fingerprint() {
    let (one, negated) = (parsed(TOKEN, BODY, MADE_AT).unwrap(), parsed(NEGATED, BODY, MADE_AT).unwrap());
    assert_ne!(decoded(TOKEN, "signature"), decoded(NEGATED, "signature"));
    assert_eq!((one.verify(KEY), negated.verify(KEY)), (Ok(()), Ok(())));
    assert_eq!(one.fingerprint(), negated.fingerprint());
}

#[test]
fn wrong_tokens_are_rejected_without_a_request() {
    for (json, reason) in [
        ("{}".to_owned(), "MalformedToken"),
        ("[".to_owned(), "MalformedToken"),
        (r#"{"data": "e30=", "signature": "AA=="}"#.to_owned(), "TokenForOtherCall"),
        (saying("node-bootstrap", "other"), "TokenForOtherCall"),
        (saying("1700000000", "1700000301"), "TokenExpired"),
        (saying("1700000000", "1699999699"), "TokenExpired"),
        (saying("1700000000", "-9223372036854775808"), "TokenExpired"),
        (saying("requestHash", "requestHush"), "TokenOfOtherRequest"),
        (saying("vm1", "../vm1"), "MalformedToken"),
        (saying("vm1", "VM1"), "MalformedToken"),
        (saying("\"vm1\"", "\"\""), "MalformedToken"),
    ] {
        assert_eq!(parsed(&json, BODY, MADE_AT).unwrap_err().reason(), reason, "{json}");
    }
    assert_eq!(parsed(TOKEN, b"other-body", MADE_AT), Err(TokenProblem::OtherRequest));
    assert!(matches!(parsed(TOKEN, BODY, MADE_AT - 301), Err(TokenProblem::OtherTime { seconds: 301, .. })));
    let mut unsigned: serde_json::Value = serde_json::from_str(TOKEN).unwrap();
    unsigned["signature"] = "".into();
    assert_eq!(parsed(&unsigned.to_string(), BODY, MADE_AT), Err(TokenProblem::NotSigned(SIGNER)));
    for payload in ["", "%", "e30"] {
        let token = format!("{PREFIX}{payload}");
        assert!(HostToken::parse(&token, BODY, USUAL_SKEW, MADE_AT).unwrap().is_err(), "{payload}");
    }
}
