//! Errors of requests to the API server.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use kops_agent_spec::failure::{Failing, Failure, Kind};
use kube::Error;
use kube::core::Status;
use tokio::time::timeout;

/// Timeout of one request. It is long because a webhook may take half a minute.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The reason in a 409 response if another field manager owns the field.
const FIELD_CONFLICT: &str = "FieldManagerConflict";

#[derive(Debug)]
pub enum ApiError {
    /// The API server rejected the request.
    Refused(Box<Status>),
    /// The API server did not answer, or its answer was unreadable.
    Unanswered(String),
}

impl ApiError {
    /// Whether the object does not exist, or the API server does not serve its kind.
    pub fn is_not_found(&self) -> bool {
        matches!(self, ApiError::Refused(status) if status.is_not_found() || status.code == 404)
    }

    /// Whether the object to create already exists.
    pub fn is_already_there(&self) -> bool {
        matches!(self, ApiError::Refused(status) if status.is_already_exists())
    }

    /// Whether the request would change an immutable field.
    pub fn is_of_immutable_field(&self) -> bool {
        // The message depends on the kind of the object. The words are for Deployments and Jobs, for StatefulSets and
        // PersistentVolumeClaims, and for Services, in this order.
        const WORDS: [&str; 3] = ["immutable", "updates to", "may not change"];
        matches!(self, ApiError::Refused(status) if status.code == 422
            && WORDS.iter().any(|words| status.message.contains(words)))
    }

    /// The conflicting fields, each with the manager that owns it. Empty if there is no field conflict.
    pub fn field_conflicts(&self) -> Vec<String> {
        let ApiError::Refused(status) = self else { return Vec::new() };
        let causes = status.details.iter().flat_map(|details| &details.causes);
        causes
            .filter(|cause| cause.reason == FIELD_CONFLICT)
            .map(|cause| format!("{} ({})", cause.field, cause.message))
            .collect()
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ApiError::Refused(status) if status.message.is_empty() => {
                write!(f, "the API server rejects the request ({} {})", status.code, status.reason)
            }
            ApiError::Refused(status) => write!(f, "the API server rejects the request: {}", status.message),
            ApiError::Unanswered(problem) => write!(f, "the API server does not answer: {problem}"),
        }
    }
}

impl std::error::Error for ApiError {}

impl Failing for ApiError {
    fn kind(&self) -> Kind {
        match self {
            ApiError::Refused(_) => Kind::ApiServerRefused,
            ApiError::Unanswered(_) => Kind::ApiServerUnanswered,
        }
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Failure {
        Failure::new(error.kind(), error.to_string())
    }
}

/// Waits for the answer to a request, until the timeout.
pub async fn answer<T>(request: impl Future<Output = Result<T, Error>>) -> Result<T, ApiError> {
    match timeout(TIMEOUT, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(Error::Api(status))) => Err(ApiError::Refused(status)),
        Ok(Err(error)) => Err(ApiError::Unanswered(error.to_string())),
        Err(_) => Err(ApiError::Unanswered(format!("timeout after {} s", TIMEOUT.as_secs()))),
    }
}
