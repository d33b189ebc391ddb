//! The parts of a signature: key, day, region, service and covered headers.

use super::token::{Expected, STS_SERVICE, TokenProblem};

/// The parts of a signature in an `Authorization` header or a query.
pub(super) struct Signing<'a> {
    /// An example is `KEY/20240518/us-east-1/sts/aws4_request`.
    pub(super) credential: &'a str,
    /// Names of headers in lower case, separated by semicolons.
    pub(super) signed_headers: &'a str,
    pub(super) signature: &'a str,
}

impl Signing<'_> {
    /// Checks the form of the signature, its scope, and the headers that it covers. The signature must cover all of `must_cover`, and only
    /// headers that are sent.
    pub(super) fn check(
        &self,
        date: &str,
        must_cover: &[&'static str],
        may_cover: &[&str],
        expected: &Expected<'_>,
    ) -> Result<(), TokenProblem> {
        let is_signature = self.signature.len() == 64
            && self.signature.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        if !is_signature {
            return Err(TokenProblem::Malformed("its signature is malformed"));
        }
        let scope: Vec<&str> = self.credential.split('/').collect();
        let &[key, day, region, service, "aws4_request"] = scope.as_slice() else {
            return Err(TokenProblem::Malformed("its credential is malformed"));
        };
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(TokenProblem::Malformed("its credential is malformed"));
        }
        if !date.starts_with(day) || day.len() != 8 {
            return Err(TokenProblem::Malformed("its credential is for another day than X-Amz-Date"));
        }
        if region != expected.region {
            return Err(TokenProblem::OtherCall("it is signed for another region"));
        }
        if service != STS_SERVICE {
            return Err(TokenProblem::OtherCall("it is signed for another service"));
        }
        let covered: Vec<&str> = self.signed_headers.split(';').collect();
        if let Some(missing) = must_cover.iter().find(|name| !covered.contains(name)) {
            return Err(TokenProblem::NotSigned(missing));
        }
        match covered.iter().all(|name| must_cover.contains(name) || may_cover.contains(name)) {
            true => Ok(()),
            false => Err(TokenProblem::Malformed("its signature covers an unknown header")),
        }
    }
}
