//! The contents of a machine's token on AWS, the expected values, and the reasons for rejection.

use thiserror::Error;

/// The body of the POST request to STS whose signature is in a token of the first form (signed headers).
pub const STS_BODY: &str = "Action=GetCallerIdentity&Version=2011-06-15";
pub const STS_CONTENT_TYPE: &str = "application/x-www-form-urlencoded; charset=utf-8";
/// The name of STS in a signature's scope.
pub const STS_SERVICE: &str = "sts";
/// The prefix of a Signature Version 4 `Authorization` header.
pub const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Seconds that a token stays valid after signing. STS accepts a signature for the same time.
pub const VALID_FOR: i64 = 15 * 60;
/// Seconds that a machine's clock may be ahead.
pub const AHEAD: i64 = 5 * 60;

/// The values against which a token is checked.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// The host of STS, with its port if it is not the default port. Requests go only to this host.
    pub sts_host: &'a str,
    /// The region in the scope of signatures.
    pub region: &'a str,
    /// Seconds since 1970.
    pub now: i64,
}

/// A token that passed all local checks. Only STS can check the signature.
#[derive(Clone, PartialEq, Eq)]
pub struct AwsToken {
    pub call: StsCall,
    /// The signature in hexadecimal digits. No two requests have the same signature.
    pub signature: String,
    /// The time of signing, by the machine's clock, in seconds since 1970.
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
    /// The query after `/?`, exactly as signed. If it is `None`, the request is a POST of [`STS_BODY`].
    pub query: Option<String>,
    /// The headers, with lower-case names. `host` and `content-length` are missing, because the HTTP client sets them.
    pub headers: Vec<(&'static str, String)>,
}

impl std::fmt::Debug for StsCall {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("StsCall(redacted)")
    }
}

/// Why a token is rejected. Messages do not repeat the token, because the token may be secret.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TokenProblem {
    #[error("the token is not well-formed: {0}")]
    Malformed(&'static str),
    #[error("the token was made for another request, not for this one")]
    OtherRequest,
    #[error("the token's signature does not cover {0}")]
    NotSigned(&'static str),
    /// The signed request is for a different action or a different server.
    #[error("the token does not ask this region's STS for the caller's identity: {0}")]
    OtherCall(&'static str),
    #[error(
        "the token was signed {seconds} seconds ago, and is valid for {VALID_FOR} seconds: check the clocks of both machines"
    )]
    Expired { seconds: i64 },
    #[error(
        "the token is signed with a time {seconds} seconds ahead, but at most {AHEAD} seconds are allowed: \
         check the clocks of both machines"
    )]
    FromTheFuture { seconds: i64 },
}

impl TokenProblem {
    /// A short reason for metrics.
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
