//! What an error of S3 means: retry, ask another region, or what to tell the operator.

use std::error::Error;
use std::fmt;

use aws_sdk_s3::config::Region;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::ConnectorError;

use super::super::backend::Place;
use super::super::error::StoreError;
use kops_agent_net::causes::in_one_line;
use kops_agent_net::retry::GaveUp;
use kops_agent_spec::terminal::one_line;

/// The most that is told of the server's own words, in characters. They get into logs and the record.
const LONGEST_WORDS: usize = 300;

/// What went wrong in one attempt.
#[derive(Debug)]
pub(super) enum S3Failure {
    /// It may work later.
    Passing { cause: String },
    /// It was not even sent, for a reason that the SDK keeps to itself.
    NotSent { cause: String },
    /// This machine has no credentials, or not yet.
    NoCredentials { cause: String },
    /// The bucket is in another region; S3 usually says in which.
    OtherRegion { region: Option<Region>, answer: Answer },
    /// More than is read.
    TooLarge,
    /// S3 said no.
    Answered(Answer),
}

/// An error that S3 answered with.
#[derive(Debug)]
pub(super) struct Answer {
    status: u16,
    code: String,
    message: String,
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

    /// The answer began, but did not end well: its end is missing, or its checksum is wrong.
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
        let answer = Answer {
            status,
            code: one_line(code.unwrap_or_default(), LONGEST_WORDS),
            message: one_line(message.unwrap_or_default(), LONGEST_WORDS),
        };
        let region =
            || response.headers().get("x-amz-bucket-region").map(|name| Region::new(name.to_owned()));
        match (status, answer.code.as_str()) {
            (301 | 307, _)
            | (_, "PermanentRedirect" | "TemporaryRedirect" | "AuthorizationHeaderMalformed") => {
                S3Failure::OtherRegion { region: region(), answer }
            }
            (429 | 500.., _) | (_, "SlowDown" | "RequestTimeout" | "Throttling" | "ThrottlingException") => {
                S3Failure::passing(format!("it answers {}", answer.in_words()))
            }
            _ => S3Failure::Answered(answer),
        }
    }
}

impl Answer {
    fn in_words(&self) -> String {
        [&self.status.to_string(), &self.code, &self.message]
            .into_iter()
            .filter(|word| !word.is_empty())
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(" ")
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
            // An answer that is none: cut off, or another server's.
            SdkError::ResponseError(ref answer) => {
                let status = answer.raw().status().as_u16();
                S3Failure::passing(format!("its answer ({status}) cannot be read: {}", in_one_line(&error)))
            }
            other => S3Failure::NotSent { cause: in_one_line(&other) },
        }
    }
}

/// What to tell the operator.
pub(super) fn store_error(object: &Place, gave_up: GaveUp<S3Failure>) -> StoreError {
    let url = object.url.clone();
    match gave_up.error {
        S3Failure::Passing { cause } | S3Failure::NotSent { cause } => {
            StoreError::Unreachable { url, cause, attempts: gave_up.attempts, waited: gave_up.waited }
        }
        S3Failure::NoCredentials { cause } => StoreError::Credentials {
            url,
            problem: format!(
                "none were found ({cause}); give the instance a role, set AWS_ACCESS_KEY_ID and \
                 AWS_SECRET_ACCESS_KEY, or S3_ENDPOINT for another S3 server"
            ),
        },
        S3Failure::TooLarge => StoreError::TooLarge { url },
        S3Failure::OtherRegion { answer, .. } | S3Failure::Answered(answer) => of_answer(object, url, answer),
    }
}

fn of_answer(object: &Place, url: String, answer: Answer) -> StoreError {
    let credentials = |what_to_do: &str| StoreError::Credentials {
        url: url.clone(),
        problem: format!("{}; {what_to_do}", answer.in_words()),
    };
    match (answer.status, answer.code.as_str()) {
        (_, "NoSuchBucket") => StoreError::WrongBucket { url, bucket: object.bucket.clone() },
        (404, _) | (_, "NoSuchKey") => StoreError::NotFound { url, place: String::new() },
        (_, "RequestTimeTooSkewed") => {
            credentials("this machine's clock is wrong: set it (is chrony or timesyncd running?)")
        }
        (_, "InvalidAccessKeyId" | "SignatureDoesNotMatch" | "NotSignedUp") => {
            credentials("check the access key and its secret")
        }
        (_, "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired") => {
            credentials("get new ones; those of an instance's role renew themselves")
        }
        (403, _) => StoreError::Forbidden { url, rights: object.rights.clone() },
        _ => StoreError::Refused { url, status: answer.status, code: answer.code, message: answer.message },
    }
}
