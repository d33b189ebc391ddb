//! A machine's token on AWS: a request for the machine's own identity. The machine signs this request, and kops-controller sends it to STS.
//!
//! The machine signs `GetCallerIdentity` with its instance's role. The signed part includes the hash of the request to kops-controller. A
//! server that receives the signed request learns from STS who signed it. Nodes send the first form ([`PREFIX_V1`]). kops-controller
//! accepts both forms.
//!
//! This module rejects everything that it can reject without asking STS. The request to STS contains only checked parts.
//!
//! Source: upstream's `pkg/bootstrap/awsbootstrap`; the Signature Version 4 chapters of the IAM User Guide.

mod caller;
mod checks;
mod signing;
mod token;
mod v1;
mod v2;

pub use caller::{Caller, CallerRefusal};
pub use checks::body_hash;
pub use token::{
    AHEAD, ALGORITHM, AwsToken, Expected, STS_BODY, STS_CONTENT_TYPE, STS_SERVICE, StsCall, TokenProblem,
    VALID_FOR,
};
pub use v2::sts_query;

/// The prefix of a token of the first form: signed headers of a POST.
pub const PREFIX_V1: &str = "x-aws-sts ";
/// The prefix of a token of the second form: a presigned URL.
pub const PREFIX_V2: &str = "x-aws-sts-v2 ";
/// The header that binds a token to a request. Its value is [`body_hash`].
pub const REQUEST_HASH_HEADER: &str = "X-Kops-Request-Sha";
impl AwsToken {
    /// Reads a token that came with this request body. `None` if the token is not from AWS.
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
