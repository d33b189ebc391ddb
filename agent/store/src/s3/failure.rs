//! Interprets an S3 error: retry, use another region, or show an error message to the operator.

use std::error::Error;
use std::fmt;

use aws_sdk_s3::config::Region;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::ConnectorError;

use super::super::backend::Place;
use super::super::error::StoreError;
use kops_agent_net::Said;
use kops_agent_net::causes::in_one_line;
use kops_agent_net::retry::GaveUp;

/// The failure of one attempt to send a request.
#[derive(Debug)]
pub(super) enum S3Failure {
    Passing {
        cause: String,
    },
    /// The SDK did not send the request. Its error does not say whether credentials are missing.
    NotSent {
        cause: String,
    },
    /// This machine has no credentials, or does not have them yet.
    NoCredentials {
        cause: String,
    },
    /// The bucket is in a different region. S3 usually names this region.
    OtherRegion {
        region: Option<Region>,
        answer: Answer,
    },
    TooLarge,
    Answered(Answer),
}

/// An error response of S3.
#[derive(Debug)]
pub(super) struct Answer {
    status: u16,
    said: Said,
}

impl fmt::Display for S3Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            S3Failure::Passing { cause } | S3Failure::NotSent { cause } => f.write_str(cause),
            S3Failure::NoCredentials { cause } => write!(f, "no credentials: {cause}"),
            S3Failure::OtherRegion { answer, .. } | S3Failure::Answered(answer) => {
                f.write_str(&answer.in_words())
            }
            S3Failure::TooLarge => f.write_str("it is too large"),
        }
    }
}

impl S3Failure {
    pub(super) fn passing(cause: String) -> S3Failure {
        S3Failure::Passing { cause }
    }

    /// The failure if a body is incomplete or has a wrong checksum.
    pub(super) fn of_body(error: impl Error) -> S3Failure {
        S3Failure::passing(format!("the answer broke off: {}", in_one_line(&error)))
    }

    fn of_connector(error: &ConnectorError) -> S3Failure {
        let cause = in_one_line(error);
        if error.is_io() || error.is_timeout() || error.as_other().is_some() {
            S3Failure::Passing { cause }
        } else {
            S3Failure::NotSent { cause }
        }
    }

    fn of_answer(response: &HttpResponse, code: Option<&str>, message: Option<&str>) -> S3Failure {
        let status = response.status().as_u16();
        let said = match (code, message) {
            // The body is not in S3's format, so it is from another server, such as a proxy.
            (None, None) => Said::of_body(response.body().bytes().unwrap_or_default()),
            (code, message) => Said::new(code.unwrap_or_default(), message.unwrap_or_default()),
        };
        let answer = Answer { status, said };
        let region =
            || response.headers().get("x-amz-bucket-region").map(|name| Region::new(name.to_owned()));
        match (status, answer.said.code.as_str()) {
            (429 | 500.., _) | (_, "SlowDown" | "RequestTimeout" | "Throttling" | "ThrottlingException") => {
                S3Failure::passing(format!("it answers {}", answer.in_words()))
            }
            (301 | 307, _)
            | (_, "PermanentRedirect" | "TemporaryRedirect" | "AuthorizationHeaderMalformed") => {
                S3Failure::OtherRegion { region: region(), answer }
            }
            _ => S3Failure::Answered(answer),
        }
    }
}

impl Answer {
    fn in_words(&self) -> String {
        format!("{} {}", self.status, self.said.in_words()).trim_end().to_owned()
    }
}

impl<E> From<SdkError<E, HttpResponse>> for S3Failure
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    fn from(error: SdkError<E, HttpResponse>) -> S3Failure {
        match error {
            SdkError::ServiceError(error) => {
                S3Failure::of_answer(error.raw(), error.err().code(), error.err().message())
            }
            SdkError::DispatchFailure(error) => match error.as_connector_error() {
                Some(error) => S3Failure::of_connector(error),
                None => S3Failure::NotSent { cause: "the request could not be sent".into() },
            },
            SdkError::TimeoutError(_) => S3Failure::passing("it took too long".into()),
            // The answer is invalid: it is incomplete, or it is from another server, such as a proxy.
            SdkError::ResponseError(ref answer) => {
                let status = answer.raw().status().as_u16();
                S3Failure::passing(format!("its answer ({status}) cannot be read: {}", in_one_line(&error)))
            }
            other => S3Failure::NotSent { cause: in_one_line(&other) },
        }
    }
}

/// Converts the failure of the last attempt into the error for the operator. `region` is the region that gets the bucket's requests.
pub(super) fn store_error(object: &Place, region: &str, gave_up: GaveUp<S3Failure>) -> StoreError {
    let url = object.url.clone();
    match gave_up.error {
        S3Failure::Passing { cause } | S3Failure::NotSent { cause } => {
            StoreError::Unreachable { url, cause, attempts: gave_up.attempts, waited: gave_up.waited }
        }
        S3Failure::NoCredentials { cause } => StoreError::Credentials {
            url,
            problem: format!(
                "no credentials were found ({cause}); give the instance a role, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. If the \
                 server is not Amazon's, set S3_ENDPOINT instead"
            ),
        },
        S3Failure::TooLarge => StoreError::TooLarge { url },
        S3Failure::OtherRegion { answer, .. } | S3Failure::Answered(answer) => {
            of_answer(&in_partition(object, region), answer)
        }
    }
}

/// Returns the place with the ARNs in `rights` changed to the partition of the region.
fn in_partition(object: &Place, region: &str) -> Place {
    let rights = object.rights.replace("arn:aws:", &format!("arn:{}:", partition(region)));
    Place { rights, ..object.clone() }
}

fn of_answer(object: &Place, answer: Answer) -> StoreError {
    const NOBODYS: &str = "this is no answer of an S3 server: check the proxy, DNS and S3_ENDPOINT";
    let url = object.url.clone();
    let credentials = |what_to_do: &str| StoreError::Credentials {
        url: url.clone(),
        problem: format!("{}; {what_to_do}", answer.in_words()),
    };
    match (answer.status, answer.said.code.as_str()) {
        (_, "NoSuchBucket") => StoreError::WrongBucket { url, bucket: object.bucket.clone() },
        (404, _) | (_, "NoSuchKey") => StoreError::NotFound { url, place: String::new() },
        (_, "RequestTimeTooSkewed" | "RequestExpired") => {
            credentials("this machine's clock is wrong: set it (is chrony or timesyncd running?)")
        }
        (_, "InvalidAccessKeyId" | "SignatureDoesNotMatch" | "InvalidSecurity") => {
            credentials("check the access key and its secret")
        }
        (_, "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired") => {
            credentials("get new credentials; the credentials of an instance's role renew themselves")
        }
        // Every S3 server sends a body with a code, except in a response to HEAD. So a body without a code is from another server, such
        // as a proxy.
        (403, "") if !answer.said.message.is_empty() => {
            object.forbidden(&answer.said, Some(NOBODYS.to_owned()))
        }
        (403, _) => object.forbidden(&answer.said, advice(&answer.said, &object.rights)),
        (status, _) => {
            let Said { code, message } = answer.said.clone();
            let hint =
                advice(&answer.said, &object.rights).or_else(|| code.is_empty().then(|| NOBODYS.to_owned()));
            let words = [Some(message), hint].into_iter().flatten().filter(|words| !words.is_empty());
            StoreError::Refused { url, status, code, message: words.collect::<Vec<_>>().join("; ") }
        }
    }
}

/// Advice for an error response whose reason is known and is not a missing permission of the role. `None` for all other responses.
///
/// Sources: Amazon S3's "List of error codes"; IAM's "Troubleshoot access denied error messages", for the kinds of policies.
fn advice(said: &Said, rights: &str) -> Option<String> {
    const KEY: &str = "let this machine's role use the key that encrypts the file (kms:Decrypt), in the role's policy and in the key's \
                       policy, and check that the key is enabled";
    const POLICIES: [(&str, &str); 7] = [
        ("VPC endpoint policy", "the policy of the VPC endpoint for S3, through which this machine asks,"),
        ("service control policy", "the organization's service control policy"),
        ("resource control policy", "the organization's resource control policy"),
        ("permissions boundary", "the permissions boundary of this machine's role"),
        ("session policy", "the session policy of these credentials"),
        ("resource-based policy", "the bucket's own policy"),
        ("explicit deny in an identity-based policy", "each policy of this machine's role"),
    ];
    let code = said.code.as_str();
    match code {
        "InvalidObjectState" => Some(
            "the file was moved to an archive: restore it (`aws s3api restore-object`), and exempt the state store from lifecycle rules"
                .to_owned(),
        ),
        "AllAccessDisabled" | "AccountProblem" | "InvalidPayer" | "NotSignedUp" | "UnauthorizedAccess" | "UserSuspended" => Some(
            "the provider has closed the bucket or its account, and no policy can open it: ask the provider's support, or look at billing"
                .to_owned(),
        ),
        code if code.starts_with("KMS.") => Some(KEY.to_owned()),
        _ if ["kms:", "KMS key", "ciphertext refers"].iter().any(|words| said.mentions(words)) => {
            Some(KEY.to_owned())
        }
        _ => {
            let (_, policy) = POLICIES.iter().find(|(words, _)| said.mentions(words))?;
            Some(format!("{policy} has to allow {rights}"))
        }
    }
}

/// The partition of a region in ARNs. Source: the AWS General Reference, "Amazon Resource Names (ARNs)".
fn partition(region: &str) -> &'static str {
    const PARTITIONS: [(&str, &str); 7] = [
        ("cn-", "aws-cn"),
        ("us-gov-", "aws-us-gov"),
        ("us-isob-", "aws-iso-b"),
        ("us-isof-", "aws-iso-f"),
        ("us-iso-", "aws-iso"),
        ("eu-isoe-", "aws-iso-e"),
        ("eusc-", "aws-eusc"),
    ];
    PARTITIONS.iter().find(|(prefix, _)| region.starts_with(prefix)).map_or("aws", |(_, partition)| partition)
}
