//! Failures of HTTP requests to a store, and the operator's error messages for them. Each store interprets its own
//! answers. S3's SDK has its own errors (`s3/failure.rs`).

use std::fmt;
use std::time::Duration;

use kops_agent_net::causes::in_one_line;
use kops_agent_net::retry::GaveUp;
use kops_agent_net::{Said, http};
use reqwest::{Response, StatusCode};

use super::backend::Place;
use super::error::StoreError;

#[derive(Debug)]
pub(crate) enum Failure {
    Passing(String),
    /// This machine has no credentials, or the store rejects them.
    Credentials(String),
    /// The environment or the cloud must change before the store can be read.
    Settings(String),
    /// The store sends a redirect that the agent does not follow.
    Redirected(String),
    /// The store itself reports that the file does not exist.
    Absent,
    /// The store itself reports that the bucket does not exist.
    NoBucket,
    /// This machine may not read the file.
    Forbidden {
        said: Said,
        /// The advice for the reason in `said`. `None` means the default advice: grant the missing permission.
        advice: Option<String>,
    },
    /// The store answers with an error that no other variant describes.
    Refused {
        status: StatusCode,
        /// The store's error code. It may be empty.
        code: String,
        /// The store's message and a possible cause. The text may be empty.
        message: String,
    },
    TooLarge,
}

impl Failure {
    /// The failure of a request whose response is missing or incomplete.
    pub(crate) fn of_transport(error: reqwest::Error) -> Failure {
        Failure::Passing(in_one_line(&error.without_url()))
    }

    /// The failure for a status that has no special meaning in this store. `hint` is a possible cause. It may be empty.
    pub(crate) fn of_status(status: StatusCode, said: &Said, hint: &str) -> Failure {
        if http::is_temporary(status) {
            return Failure::Passing(
                format!("it answers {status} {}", said.in_words()).trim_end().to_owned(),
            );
        }
        let message = [said.message.as_str(), hint].into_iter().filter(|words| !words.is_empty());
        let message = message.collect::<Vec<_>>().join("; ");
        Failure::Refused { status, code: said.code.clone(), message }
    }

    /// How long a failed request is retried. Zero if a retry does not help.
    pub(crate) fn retried_for(&self) -> Duration {
        match self {
            Failure::Passing(_) => Duration::MAX,
            _ => Duration::ZERO,
        }
    }

    /// The error of a request that was sent only once.
    pub(crate) fn after_one_try(self, place: &Place) -> StoreError {
        store_error(place, GaveUp { error: self, attempts: 1, waited: Duration::ZERO })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Passing(problem)
            | Failure::Credentials(problem)
            | Failure::Settings(problem)
            | Failure::Redirected(problem) => f.write_str(problem),
            Failure::Absent => f.write_str("it does not exist"),
            Failure::NoBucket => f.write_str("its bucket does not exist"),
            Failure::Forbidden { said, .. } => write!(f, "access denied {}", said.in_words()),
            Failure::Refused { status, code, .. } => write!(f, "it answers {status} {code}"),
            Failure::TooLarge => f.write_str("it is too large"),
        }
    }
}

/// Reads the body of a response. Fails if the body has more than `largest` bytes.
pub(crate) async fn body(answer: Response, largest: u64) -> Result<Vec<u8>, Failure> {
    let largest = usize::try_from(largest).unwrap_or(usize::MAX);
    http::body(answer, largest).await.map_err(Failure::of_transport)?.ok_or(Failure::TooLarge)
}

/// Converts the failure of the last attempt into the error for the operator.
pub(crate) fn store_error(place: &Place, gave_up: GaveUp<Failure>) -> StoreError {
    let GaveUp { error, attempts, waited } = gave_up;
    let url = place.url.clone();
    match error {
        Failure::Passing(cause) => StoreError::Unreachable { url, cause, attempts, waited },
        Failure::Credentials(problem) => StoreError::Credentials { url, problem },
        Failure::Settings(problem) => StoreError::BadSettings(problem),
        Failure::Redirected(problem) => StoreError::BadUrl { url, problem },
        Failure::Absent => StoreError::NotFound { url, place: String::new() },
        Failure::NoBucket => place.wrong_bucket(),
        Failure::Forbidden { said, advice } => place.forbidden(&said, advice),
        Failure::Refused { status, code, message } => {
            StoreError::Refused { url, status: status.as_u16(), code, message }
        }
        Failure::TooLarge => StoreError::TooLarge { url },
    }
}
