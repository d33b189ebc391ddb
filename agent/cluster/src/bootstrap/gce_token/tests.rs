//! openssl made the token, in upstream's layout, for a request with the body `test-body`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;

const TOKEN: &str = include_str!("token.json");
const KEY: &str = include_str!("pub.pem");
const OTHER_KEY: &str = include_str!("other.pem");
const BODY: &[u8] = b"test-body";
const MADE_AT: i64 = 1_700_000_000;

fn cluster() -> GceCluster {
    GceCluster { name: "c.example.com".into(), project: "my-project".into(), region: "us-test1".into() }
}

fn parsed(json: &str, body: &[u8], now: i64) -> Result<GceToken, TokenProblem> {
    let expected = Expected { cluster: &cluster(), max_skew: USUAL_SKEW, now };
    GceToken::parse(&format!("{PREFIX}{}", STANDARD.encode(json)), body, &expected).unwrap()
}

/// The token with `before` replaced by `after` in its data. The signature no longer matches.
fn saying(before: &str, after: &str) -> String {
    let mut token: serde_json::Value = serde_json::from_str(TOKEN).unwrap();
    let data = STANDARD.decode(token["data"].as_str().unwrap()).unwrap();
    let data = String::from_utf8(data).unwrap();
    assert!(data.contains(before), "{data}");
    token["data"] = STANDARD.encode(data.replace(before, after)).into();
    token.to_string()
}

#[test]
fn a_token_identifies_its_instance() {
    let token = parsed(TOKEN, BODY, MADE_AT + 299).unwrap();
    assert_eq!(token.instance, InstancePath { zone: "us-test1-a".into(), name: "nodes-x1y2".into() });
    assert_eq!(token.verify(KEY), Ok(()));
    assert_eq!((token.signature.len(), token.signed_at), (256, MADE_AT));
    assert!(!format!("{token:?}").contains("signature"));
}

#[test]
fn tokens_have_the_form_of_upstreams_nodes() {
    let theirs: serde_json::Value = serde_json::from_str(TOKEN).unwrap();
    let decoded = |field: &str| STANDARD.decode(theirs[field].as_str().unwrap()).unwrap();
    let claim = Claim {
        project: "my-project".into(),
        zone: "us-test1-a".into(),
        instance: "nodes-x1y2".into(),
        timestamp: MADE_AT,
    };
    let data = claim.data(BODY);
    assert_eq!(String::from_utf8(data.clone()), String::from_utf8(decoded("data")));
    let token = token(data, decoded("signature"));
    assert_eq!(token, format!("x-gce-tpm {}", STANDARD.encode(TOKEN.trim_end())));
}

#[test]
fn a_changed_claim_or_another_key_is_rejected() {
    let token = parsed(TOKEN, BODY, MADE_AT).unwrap();
    assert_eq!(token.verify(OTHER_KEY), Err(TokenProblem::NotSigned(SIGNER)));
    let other = parsed(&saying("nodes-x1y2", "control-plane-x1y2"), BODY, MADE_AT).unwrap();
    assert_eq!(other.verify(KEY), Err(TokenProblem::NotSigned(SIGNER)));
    for key in ["", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"] {
        assert_eq!(token.verify(key).unwrap_err().reason(), "NoSigningKey");
    }
    let p256 = "-----BEGIN PUBLIC KEY-----\n\
        MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEaxfR8uEsQkf4vOblY6RA8ncDfYEt\n\
        6zOg9KE5RdiYwpZP40Li/hp/m47n60p8D54WK84zV2sxXs7LtkBoN79R9Q==\n\
        -----END PUBLIC KEY-----\n";
    assert_eq!(token.verify(p256), Err(TokenProblem::UnusableKey("it is not an RSA key")));
}

#[test]
fn wrong_tokens_are_rejected_without_a_request() {
    for (json, reason) in [
        ("{}".to_owned(), "MalformedToken"),
        ("[".to_owned(), "MalformedToken"),
        (saying("node-bootstrap", "other"), "TokenForOtherCall"),
        (saying("1700000000", "1700000301"), "TokenExpired"),
        (saying("1700000000", "1699999699"), "TokenExpired"),
        (saying("1700000000", "-9223372036854775808"), "TokenExpired"),
        (saying("requestHash", "requestHush"), "TokenOfOtherRequest"),
        (saying("my-project", "other-project"), "InstanceOfOtherCluster"),
        (saying("us-test1-a", "us-test2-a"), "InstanceOfOtherCluster"),
        (saying("us-test1-a", ""), "MalformedToken"),
        (saying("nodes-x1y2", "../../nodes-x1y2"), "MalformedToken"),
        (saying("nodes-x1y2", ""), "MalformedToken"),
        (TOKEN.replace("\"signature\"", "\"unsigned\""), "WrongSignature"),
    ] {
        assert_eq!(parsed(&json, BODY, MADE_AT).unwrap_err().reason(), reason, "{json}");
    }
    assert_eq!(parsed(TOKEN, b"other-body", MADE_AT), Err(TokenProblem::OtherRequest));
    let expected = Expected { cluster: &cluster(), max_skew: USUAL_SKEW, now: MADE_AT };
    assert!(GceToken::parse("x-aws-sts AAAA", BODY, &expected).is_none());
    let junk = GceToken::parse("x-gce-tpm !", BODY, &expected).unwrap();
    assert_eq!(junk, Err(TokenProblem::Malformed("it is not base64")));
}
