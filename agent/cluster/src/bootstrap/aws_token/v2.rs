//! The second form of a token: a presigned URL of STS.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::checks::{JsonHeaders, check_hash, check_time, decode, one_of_each};
use super::signing::Signing;
use super::token::{ALGORITHM, AwsToken, Expected, StsCall, TokenProblem};

const HOST: &str = "host";
const HASH: &str = "x-kops-request-sha";

const ACTION: &str = "Action";
const DATE: &str = "X-Amz-Date";
/// The parameters that a presigned URL may have.
const PARAMETERS: [&str; 9] = [
    ACTION,
    "Version",
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    DATE,
    "X-Amz-Expires",
    "X-Amz-Security-Token",
    "X-Amz-SignedHeaders",
    "X-Amz-Signature",
];

#[derive(Deserialize)]
struct Json {
    url: String,
    method: String,
    headers: JsonHeaders,
}

pub(super) fn parse(payload: &str, body: &[u8], expected: &Expected<'_>) -> Result<AwsToken, TokenProblem> {
    let token: Json = decode(payload)?;
    if token.method != "GET" {
        return Err(TokenProblem::OtherCall("its method is not GET"));
    }
    let mut headers = one_of_each(token.headers, &[HOST, HASH])?;
    check_hash(headers.get(HASH), body)?;
    if headers.remove(HOST).is_some_and(|host| host != expected.sts_host) {
        return Err(TokenProblem::OtherCall("its host is wrong"));
    }
    let query = sts_query(&token.url, expected.sts_host)?;
    let parameters = parameters(query)?;
    let parameter = |name| parameters.get(name).map(String::as_str);
    let needed =
        |name| parameter(name).ok_or(TokenProblem::Malformed("its URL lacks a part of the signature"));
    if needed("X-Amz-Algorithm")? != ALGORITHM {
        return Err(TokenProblem::Malformed("its signature is not AWS4-HMAC-SHA256"));
    }
    let date = needed(DATE)?;
    let signed_at = check_time(date, expected)?;
    let signing = Signing {
        credential: needed("X-Amz-Credential")?,
        signed_headers: needed("X-Amz-SignedHeaders")?,
        signature: needed("X-Amz-Signature")?,
    };
    signing.check(date, &[HOST, HASH], &[], expected)?;
    let signature = signing.signature.to_owned();
    let call = StsCall { query: Some(query.to_owned()), headers: headers.into_iter().collect() };
    Ok(AwsToken { call, signature, signed_at })
}

/// The query of `url`. Fails unless the URL asks STS at this host for the caller's identity, and for nothing else.
pub fn sts_query<'a>(url: &'a str, host: &str) -> Result<&'a str, TokenProblem> {
    let rest = url
        .strip_prefix("https://")
        .ok_or(TokenProblem::OtherCall("its URL does not begin with https://"))?;
    let rest = rest.strip_prefix(host).ok_or(TokenProblem::OtherCall("its host is wrong"))?;
    let query = rest.strip_prefix("/?").ok_or(TokenProblem::OtherCall("its host or path is wrong"))?;
    // Only these characters are accepted, because STS might parse other characters differently than this parser.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%&=".contains(&byte);
    if !query.bytes().all(is_plain) {
        return Err(TokenProblem::Malformed("its URL has invalid characters"));
    }
    let mut actions = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == ACTION);
    match (actions.next(), actions.next()) {
        (Some((_, action)), None) if action == "GetCallerIdentity" => Ok(query),
        _ => Err(TokenProblem::OtherCall("its action is not GetCallerIdentity")),
    }
}

/// The parameters of a query, each at most once. Unknown parameters are rejected.
fn parameters(query: &str) -> Result<BTreeMap<&'static str, String>, TokenProblem> {
    let mut parameters = BTreeMap::new();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let name = PARAMETERS
            .iter()
            .find(|known| **known == name)
            .ok_or(TokenProblem::OtherCall("its URL has an unknown parameter"))?;
        if parameters.insert(*name, value.into_owned()).is_some() {
            return Err(TokenProblem::OtherCall("its URL has a parameter twice"));
        }
    }
    Ok(parameters)
}
