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

/// What a token of the first form begins with: signed headers of a POST.
pub const PREFIX_V1: &str = "x-aws-sts ";
/// What a token of the second form begins with: a presigned URL.
pub const PREFIX_V2: &str = "x-aws-sts-v2 ";
/// The header that binds a token to a request: [`body_hash`].
pub const REQUEST_HASH_HEADER: &str = "X-Kops-Request-Sha";
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
