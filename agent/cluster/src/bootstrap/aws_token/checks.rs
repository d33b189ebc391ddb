//! Checks that both forms of a token share.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};
use time::PrimitiveDateTime;
use time::macros::format_description;

use super::token::{AHEAD, Expected, TokenProblem, VALID_FOR};

/// The hash of a request's body in a token: SHA-256 in base64 without padding.
pub fn body_hash(body: &[u8]) -> String {
    STANDARD_NO_PAD.encode(Sha256::digest(body))
}

/// Headers in Go's JSON form: each with a list of values.
pub(super) type JsonHeaders = BTreeMap<String, Vec<String>>;

/// Decodes the payload of a token: JSON in base64.
pub(super) fn decode<T: DeserializeOwned>(payload: &str) -> Result<T, TokenProblem> {
    let json = STANDARD.decode(payload).map_err(|_| TokenProblem::Malformed("it is not base64"))?;
    serde_json::from_slice(&json).map_err(|_| TokenProblem::Malformed("its JSON has the wrong form"))
}

/// The headers in `known`, by lower-case name, each with one value. Unknown headers are rejected, so that none is forwarded.
pub(super) fn one_of_each(
    headers: JsonHeaders,
    known: &[&'static str],
) -> Result<BTreeMap<&'static str, String>, TokenProblem> {
    let mut found = BTreeMap::new();
    for (name, values) in headers {
        let name = known
            .iter()
            .find(|known| known.eq_ignore_ascii_case(&name))
            .ok_or(TokenProblem::Malformed("it has an unknown header"))?;
        let Ok([value]) = <[String; 1]>::try_from(values) else {
            return Err(TokenProblem::Malformed("one of its headers does not have exactly one value"));
        };
        if value.bytes().any(|byte| !(b' '..=b'~').contains(&byte)) {
            return Err(TokenProblem::Malformed("one of its headers has invalid characters"));
        }
        if found.insert(*name, value).is_some() {
            return Err(TokenProblem::Malformed("it has a header twice"));
        }
    }
    Ok(found)
}

/// Checks that the token was made for this request.
pub(super) fn check_hash(found: Option<&String>, body: &[u8]) -> Result<(), TokenProblem> {
    match found.is_some_and(|found| *found == body_hash(body)) {
        true => Ok(()),
        false => Err(TokenProblem::OtherRequest),
    }
}

/// Parses a Signature Version 4 time into seconds since 1970, and checks that the time is neither too old nor too far in the future.
pub(super) fn check_time(date: &str, expected: &Expected<'_>) -> Result<i64, TokenProblem> {
    let signed =
        PrimitiveDateTime::parse(date, format_description!("[year][month][day]T[hour][minute][second]Z"))
            .map_err(|_| TokenProblem::Malformed("X-Amz-Date is not a time"))?;
    let signed_at = signed.assume_utc().unix_timestamp();
    let age = expected.now.saturating_sub(signed_at);
    match age {
        seconds if seconds > VALID_FOR => Err(TokenProblem::Expired { seconds }),
        ahead if ahead < -AHEAD => Err(TokenProblem::FromTheFuture { seconds: ahead.saturating_neg() }),
        _ => Ok(signed_at),
    }
}
