//! The first form of a token: the signed headers of a POST to STS.

use super::checks::{JsonHeaders, check_hash, check_time, decode, one_of_each};
use super::signing::Signing;
use super::token::{ALGORITHM, AwsToken, Expected, STS_BODY, STS_CONTENT_TYPE, StsCall, TokenProblem};

const AUTHORIZATION: &str = "authorization";
const CONTENT_LENGTH: &str = "content-length";
const CONTENT_TYPE: &str = "content-type";
const DATE: &str = "x-amz-date";
const SESSION: &str = "x-amz-security-token";
const HASH: &str = "x-kops-request-sha";
/// Older nodes of upstream send this header without signing it.
const USER_AGENT: &str = "user-agent";

const KNOWN: [&str; 7] = [AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, DATE, SESSION, HASH, USER_AGENT];

pub(super) fn parse(payload: &str, body: &[u8], expected: &Expected<'_>) -> Result<AwsToken, TokenProblem> {
    let headers = one_of_each(decode::<JsonHeaders>(payload)?, &KNOWN)?;
    check_hash(headers.get(HASH), body)?;
    let date = headers.get(DATE).ok_or(TokenProblem::Malformed("it has no X-Amz-Date"))?;
    let signed_at = check_time(date, expected)?;
    if headers.get(CONTENT_TYPE).is_some_and(|kind| kind != STS_CONTENT_TYPE) {
        return Err(TokenProblem::Malformed("its Content-Type is wrong"));
    }
    if headers.get(CONTENT_LENGTH).is_some_and(|length| *length != STS_BODY.len().to_string()) {
        return Err(TokenProblem::OtherCall("its Content-Length is wrong"));
    }
    let authorization =
        headers.get(AUTHORIZATION).ok_or(TokenProblem::Malformed("it has no Authorization"))?;
    let signing = signing(authorization)?;
    let mut must_cover = vec!["host", DATE, HASH];
    must_cover.extend(headers.contains_key(SESSION).then_some(SESSION));
    signing.check(date, &must_cover, &[CONTENT_LENGTH, CONTENT_TYPE], expected)?;
    let signature = signing.signature.to_owned();
    let sent = |name: &&str| ![CONTENT_LENGTH, CONTENT_TYPE, USER_AGENT].contains(name);
    let mut headers: Vec<_> = headers.into_iter().filter(|(name, _)| sent(name)).collect();
    headers.push((CONTENT_TYPE, STS_CONTENT_TYPE.to_owned()));
    Ok(AwsToken { call: StsCall { query: None, headers }, signature, signed_at })
}

/// The parts of an `Authorization` header. Each part must occur exactly once.
fn signing(authorization: &str) -> Result<Signing<'_>, TokenProblem> {
    let parts = authorization
        .strip_prefix(ALGORITHM)
        .and_then(|rest| rest.strip_prefix(' '))
        .ok_or(TokenProblem::Malformed("its Authorization does not begin with AWS4-HMAC-SHA256"))?;
    let (mut credential, mut signed_headers, mut signature) = (None, None, None);
    for part in parts.split(", ") {
        let place = match part.split_once('=') {
            Some(("Credential", value)) => credential.replace(value),
            Some(("SignedHeaders", value)) => signed_headers.replace(value),
            Some(("Signature", value)) => signature.replace(value),
            _ => return Err(TokenProblem::Malformed("its Authorization has an unknown part")),
        };
        if place.is_some() {
            return Err(TokenProblem::Malformed("its Authorization has a part twice"));
        }
    }
    match (credential, signed_headers, signature) {
        (Some(credential), Some(signed_headers), Some(signature)) => {
            Ok(Signing { credential, signed_headers, signature })
        }
        _ => Err(TokenProblem::Malformed("its Authorization lacks a part")),
    }
}
