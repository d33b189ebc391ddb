//! A machine's token on AWS: a request for its own identity, signed by the machine and sent by kops-controller.
//!
//! The machine signs `GetCallerIdentity` with its instance's role, and in it the hash of what it asks of
//! kops-controller. Only a server that is sent that signed request learns from STS whose it is. Nodes
//! send the first form of it ([`PREFIX_V1`]); kops-controller takes both.
//!
//! All that can be refused without asking STS is refused here, and what is sent to STS is made of what was checked,
//! and of nothing else.
//!
//! Source: upstream's `pkg/bootstrap/awsbootstrap`; the Signature Version 4 chapters of the IAM User Guide.

mod caller;
mod checks;
mod signing;
mod v1;
mod v2;

pub use caller::{Caller, CallerRefusal};
pub use checks::body_hash;
pub use v2::sts_query;

use thiserror::Error;

/// What a token of the first form begins with: signed headers of a POST.
pub const PREFIX_V1: &str = "x-aws-sts ";
/// What a token of the second form begins with: a presigned URL.
pub const PREFIX_V2: &str = "x-aws-sts-v2 ";
/// The header that binds a token to a request: [`body_hash`].
pub const REQUEST_HASH_HEADER: &str = "X-Kops-Request-Sha";
/// The body of the request that a token of the first form signs.
pub const STS_BODY: &str = "Action=GetCallerIdentity&Version=2011-06-15";
/// The type of [`STS_BODY`].
pub const STS_CONTENT_TYPE: &str = "application/x-www-form-urlencoded; charset=utf-8";
/// The name of STS in a signature's scope.
pub const STS_SERVICE: &str = "sts";
/// What an `Authorization` begins with that Signature Version 4 made.
pub const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// For how many seconds after it was signed a token is good: as long as STS takes a signature.
pub const VALID_FOR: i64 = 15 * 60;
/// By how many seconds a machine's clock may be ahead.
pub const AHEAD: i64 = 5 * 60;

/// What a token must fit.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// The host of STS, with its port where that is not the scheme's own: the only one that is asked.
    pub sts_host: &'a str,
    /// The region that signatures are for.
    pub region: &'a str,
    /// Seconds since 1970.
    pub now: i64,
}

/// A token that says nothing wrong. Whether the signature is right only STS can tell.
#[derive(Clone, PartialEq, Eq)]
pub struct AwsToken {
    /// What to send to STS.
    pub call: StsCall,
    /// The signature, in hexadecimal digits: no two requests have the same.
    pub signature: String,
    /// When it was signed, by the machine's clock, in seconds since 1970.
    pub signed_at: i64,
}

impl std::fmt::Debug for AwsToken {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("AwsToken(redacted)")
    }
}

/// A request to STS that a machine has signed.
#[derive(Clone, PartialEq, Eq)]
pub struct StsCall {
    /// What comes after `/?`, as it was signed; `None` to POST [`STS_BODY`].
    pub query: Option<String>,
    /// The headers, by names in small letters. `host` and `content-length` are not among them: they are what they are.
    pub headers: Vec<(&'static str, String)>,
}

impl std::fmt::Debug for StsCall {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("StsCall(redacted)")
    }
}

/// Why a token is refused. What the token says is not repeated: it may be a secret.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TokenProblem {
    /// It does not have the form that it should.
    #[error("the token is not well-formed: {0}")]
    Malformed(&'static str),
    /// It was made for another request.
    #[error("the token was made for another request than came with it")]
    OtherRequest,
    /// The signature leaves out what it must cover.
    #[error("the token's signature does not cover {0}")]
    NotSigned(&'static str),
    /// It would have something else asked, or another server.
    #[error("the token would not have STS asked for the caller's identity: {0}")]
    OtherCall(&'static str),
    /// It is too old.
    #[error(
        "the token was signed {seconds} seconds ago, and holds for {VALID_FOR}: see that both machines' clocks are right"
    )]
    Expired {
        /// Its age.
        seconds: i64,
    },
    /// It was signed in the future.
    #[error(
        "the token is signed with a time {seconds} seconds ahead, and {AHEAD} are let pass: see that both machines' \
         clocks are right"
    )]
    FromTheFuture {
        /// How far ahead.
        seconds: i64,
    },
}

impl TokenProblem {
    /// It in a word, for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            TokenProblem::Malformed(_) => "MalformedToken",
            TokenProblem::OtherRequest => "TokenOfOtherRequest",
            TokenProblem::NotSigned(_) => "TokenNotBound",
            TokenProblem::OtherCall(_) => "TokenForOtherCall",
            TokenProblem::Expired { .. } => "TokenExpired",
            TokenProblem::FromTheFuture { .. } => "TokenFromTheFuture",
        }
    }
}

impl AwsToken {
    /// Reads a token that came with a request's body; `None` if it is none of AWS's.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(
        token: &str,
        body: &[u8],
        expected: &Expected<'_>,
    ) -> Option<Result<AwsToken, TokenProblem>> {
        if let Some(payload) = token.strip_prefix(PREFIX_V1) {
            return Some(v1::parse(payload, body, expected));
        }
        Some(v2::parse(token.strip_prefix(PREFIX_V2)?, body, expected))
    }
}

#[cfg(test)]
mod tests;
