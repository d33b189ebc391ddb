//! What a machine's token on AWS has, what it must fit, and why one is refused.

use thiserror::Error;

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
    #[error(
        "the token was signed {seconds} seconds ago, and holds for {VALID_FOR}: see that both machines' clocks are right"
    )]
    Expired { seconds: i64 },
    /// It was signed in the future.
    #[error(
        "the token is signed with a time {seconds} seconds ahead, and {AHEAD} are let pass: see that both machines' \
         clocks are right"
    )]
    FromTheFuture { seconds: i64 },
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
