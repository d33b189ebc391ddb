//! HTTP requests to cloud APIs: one request, one response of bounded length, one error type.
//!
//! APIs report errors in different formats. Each cloud describes its format as an [`Api`]. Callers see the same classes of errors for every
//! API: temporary, not found, forbidden. A machine counts as absent only if the API reports that it does not exist. A missing permission, a
//! throttled request, a missing response or an unreadable response does not prove that a machine is absent.

mod client;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kops_agent_net::aws_sdk::SetupError;
use kops_agent_net::http::{self, HttpError, innermost_cause};
use kops_agent_net::tls::NoCaBundle;
use kops_agent_spec::failure::{Failing, Kind};
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Client, Request, Url};
use serde::{Deserialize, Deserializer};
use thiserror::Error;

use crate::calls::Outcome;

pub(crate) use client::{AccessTokens, ApiClient};

/// The longest `Retry-After` that a retry waits for. A longer value is cut to this value: limits are often lifted sooner, and a rejected
/// retry costs little.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The maximum number of characters of an error code in a message.
const LONGEST_CODE: usize = 64;

/// A cloud API, and how it reports errors.
#[derive(Debug)]
pub struct Api {
    /// The API's name in messages.
    pub(crate) name: &'static str,
    /// The unit that the rate limit applies to, such as `account` or `project`.
    pub(crate) limited: &'static str,
    /// Reads the error from a response body; `None` if the body does not have the form of this API's errors.
    pub(crate) read: fn(&[u8]) -> Option<ErrorBody>,
    /// Classifies an error by its HTTP status and its code. It is not called for status 429, which always means throttling.
    pub(crate) meaning: fn(u16, &str) -> Meaning,
    /// The advice for an error, by action, status and code. It begins with punctuation, or is empty.
    pub(crate) advice: fn(&str, u16, &str) -> String,
}

#[derive(Debug, Default)]
pub(crate) struct ErrorBody {
    /// The API's error code; may be empty.
    pub(crate) code: String,
    /// The API's explanation; empty if it may contain a secret.
    pub(crate) message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    Throttled,
    Forbidden,
    NotFound,
    Refused,
}

impl Meaning {
    /// Classifies an error by its status alone, for APIs that only list machines. A 404 for the list does not mean that a machine is
    /// absent, so a 404 is `Refused`.
    pub(crate) fn by_status(status: u16, _code: &str) -> Meaning {
        match status {
            401 | 403 => Meaning::Forbidden,
            _ => Meaning::Refused,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    pub(crate) api: &'static Api,
    /// The action, as the API's reference names it.
    pub(crate) action: &'static str,
    /// The endpoint, as messages show it.
    pub(crate) endpoint: &'a str,
    /// The maximum size of the response, in bytes.
    pub(crate) longest: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorAnswer {
    api: &'static str,
    limited: &'static str,
    action: &'static str,
    pub status: u16,
    /// The API's error code (`InvalidInstanceID.NotFound`); may be empty.
    pub code: String,
    /// The API's explanation; may be empty.
    pub message: String,
    /// Advice; begins with punctuation, or is empty.
    advice: String,
    retry_after: Option<Duration>,
}

impl fmt::Display for ErrorAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ErrorAnswer { api, action, status, code, message, advice, .. } = self;
        let space = if code.is_empty() { "" } else { " " };
        let colon = if message.is_empty() { "" } else { ": " };
        write!(f, "{api} answers {action} with {status}{space}{code}{colon}{message}{advice}")
    }
}

impl ErrorAnswer {
    /// The error code, or the status if there is no code.
    fn reason(&self) -> String {
        if self.code.is_empty() { self.status.to_string() } else { self.code.clone() }
    }
}

#[derive(Clone, Debug, Error)]
pub enum ApiError {
    /// There is no response, or the response breaks off. The API may have carried out the request.
    #[error("cannot ask {endpoint} for {action}: {cause}; check the network, DNS and proxy")]
    Unreachable { action: &'static str, endpoint: String, cause: String },
    /// The rate limit is exceeded. A retry after a pause can succeed.
    #[error(
        "{} throttles {} ({}): this {} sends too many requests at the moment",
        .0.api, .0.action, .0.reason(), .0.limited
    )]
    Throttled(Box<ErrorAnswer>),
    #[error("{0}")]
    Forbidden(Box<ErrorAnswer>),
    #[error("{0}")]
    NotFound(Box<ErrorAnswer>),
    /// The API rejects the request, or has an internal error.
    #[error("{0}")]
    Refused(Box<ErrorAnswer>),
    /// The response comes from another server, such as a proxy, or the response cannot be read.
    #[error("{endpoint} answers {action} with {status}, which is not an answer of {api}: {problem}")]
    Garbage { api: &'static str, action: &'static str, endpoint: String, status: u16, problem: String },
    #[error("no credentials for {api}: {cause}")]
    NoCredentials {
        api: &'static str,
        /// Why there are no credentials, with advice.
        cause: String,
        /// Whether credentials may become available soon.
        may_pass: bool,
    },
    #[error("cannot make a request to {endpoint}: {cause}")]
    NoRequest { endpoint: String, cause: String },
    #[error(
        "{variable} is not set, or is not a token; set it to a token with read access to the project, for \
         example the token of kops-controller"
    )]
    NoToken { variable: &'static str },
    /// A setting is missing or wrong: the location of the API or of the cluster (project, zone, region), or the login.
    #[error("{variable} {problem}")]
    NoPlace {
        variable: &'static str,
        /// The problem, with advice.
        problem: String,
        /// Whether a later attempt may find the setting.
        may_pass: bool,
    },
    #[error("{variable} is {endpoint:?}, which is not the URL of an API, such as {usual}")]
    BadEndpoint { variable: &'static str, endpoint: String, usual: &'static str },
    /// The API needs TLS, and this host has no CA bundle.
    #[error(transparent)]
    NoCaBundle(#[from] NoCaBundle),
    /// The HTTP client cannot be created.
    #[error("{0}")]
    Http(Arc<HttpError>),
    #[error("the AWS settings in the environment are wrong: {0}")]
    Settings(Arc<SetupError>),
}

impl Failing for ApiError {
    fn kind(&self) -> Kind {
        match self {
            ApiError::Unreachable { .. } | ApiError::NoRequest { .. } => Kind::CloudUnreachable,
            ApiError::Throttled(_) => Kind::CloudThrottled,
            ApiError::Forbidden(_) => Kind::CloudForbidden,
            ApiError::NotFound(_) | ApiError::Refused(_) | ApiError::Garbage { .. } => Kind::CloudRefused,
            ApiError::NoCredentials { .. } | ApiError::NoToken { .. } => Kind::CloudCredentials,
            ApiError::NoPlace { .. } | ApiError::BadEndpoint { .. } | ApiError::Settings(_) => {
                Kind::CloudSettings
            }
            ApiError::NoCaBundle(error) => error.kind(),
            ApiError::Http(error) => error.kind(),
        }
    }
}

impl From<HttpError> for ApiError {
    fn from(error: HttpError) -> ApiError {
        ApiError::Http(Arc::new(error))
    }
}

impl From<SetupError> for ApiError {
    fn from(error: SetupError) -> ApiError {
        ApiError::Settings(Arc::new(error))
    }
}

impl ApiError {
    /// The error for a request that was not sent because the queue is full.
    pub(crate) fn queue_full(api: &'static Api, action: &'static str, code: &str) -> ApiError {
        let Api { name, limited, .. } = api;
        ApiError::Throttled(Box::new(ErrorAnswer {
            api: name,
            limited,
            action,
            status: 429,
            code: code.to_owned(),
            message: String::new(),
            advice: String::new(),
            retry_after: None,
        }))
    }

    /// Whether the same request may succeed later. Before you repeat a request that is not idempotent, check whether the first request was
    /// carried out.
    pub fn may_pass(&self) -> bool {
        match self {
            ApiError::Unreachable { .. } | ApiError::Throttled(_) => true,
            ApiError::Refused(answer) => answer.status >= 500,
            ApiError::Garbage { status, .. } => *status >= 500,
            ApiError::NoCredentials { may_pass, .. } | ApiError::NoPlace { may_pass, .. } => *may_pass,
            ApiError::Forbidden(_)
            | ApiError::NotFound(_)
            | ApiError::NoRequest { .. }
            | ApiError::NoToken { .. }
            | ApiError::BadEndpoint { .. }
            | ApiError::NoCaBundle(_)
            | ApiError::Http(_)
            | ApiError::Settings(_) => false,
        }
    }

    /// How long `Retries` may retry after this error: zero if a retry cannot help.
    pub(crate) fn retried_for(&self) -> Duration {
        if self.may_pass() { Duration::MAX } else { Duration::ZERO }
    }

    /// Whether the API reports that the requested object does not exist.
    pub fn is_absent(&self) -> bool {
        matches!(self, ApiError::NotFound(_))
    }

    pub fn is_forbidden(&self) -> bool {
        matches!(self, ApiError::Forbidden(_))
    }

    /// Whether the API understood the request and rejects it permanently (4xx).
    pub fn is_refusal(&self) -> bool {
        match self {
            ApiError::Forbidden(answer) | ApiError::NotFound(answer) | ApiError::Refused(answer) => {
                (400..500).contains(&answer.status)
            }
            _ => false,
        }
    }

    /// Whether the configuration must change before a retry can succeed.
    pub fn is_configuration(&self) -> bool {
        matches!(
            self,
            ApiError::NoToken { .. }
                | ApiError::BadEndpoint { .. }
                | ApiError::NoPlace { may_pass: false, .. }
        )
    }

    /// The HTTP status, if there was a response.
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            ApiError::Garbage { status, .. } => Some(*status),
            error => error.answer().map(|answer| answer.status),
        }
    }

    /// The pause that the API asks for, at most [`LONGEST_PAUSE`]; `None` if it specifies no pause.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.answer()?.retry_after.map(|pause| pause.min(LONGEST_PAUSE))
    }

    /// The outcome of the call, for metrics. Not found counts as success.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            ApiError::NotFound(_) => Outcome::Success,
            ApiError::Throttled(_) => Outcome::Throttled,
            _ => Outcome::Error,
        }
    }

    fn answer(&self) -> Option<&ErrorAnswer> {
        match self {
            ApiError::Throttled(answer)
            | ApiError::Forbidden(answer)
            | ApiError::NotFound(answer)
            | ApiError::Refused(answer) => Some(answer),
            _ => None,
        }
    }
}

/// Parses the base URL of an API. `variable` is the environment variable that may set it.
pub(crate) fn base_url(endpoint: &str, variable: &'static str, usual: &'static str) -> Result<Url, ApiError> {
    let is_base =
        |url: &Url| matches!(url.scheme(), "http" | "https") && url.query().is_none() && url.has_host();
    let bad = || ApiError::BadEndpoint { variable, endpoint: endpoint.to_owned(), usual };
    Url::parse(endpoint).ok().filter(is_base).ok_or_else(bad)
}

pub(crate) fn below(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    url.set_path(&format!("{}/{}", base.path().trim_end_matches('/'), path.trim_start_matches('/')));
    url
}

pub(crate) fn outcome<T>(asked: &Result<T, ApiError>) -> Outcome {
    asked.as_ref().map_or_else(ApiError::outcome, |_| Outcome::Success)
}

/// Sends a request once, and returns the body of a response with status 200 or 201. A response that is longer than `question` permits is
/// an error.
pub(crate) async fn ask(
    client: &Client,
    request: Request,
    question: Question<'_>,
) -> Result<Vec<u8>, ApiError> {
    ask_whole(client, request, question).await.map(|(_headers, body)| body)
}

/// Like `ask`, and also returns the response headers.
pub(crate) async fn ask_whole(
    client: &Client,
    request: Request,
    question: Question<'_>,
) -> Result<(HeaderMap, Vec<u8>), ApiError> {
    let lost = |error| question.unreachable(innermost_cause(error));
    let answer = client.execute(request).await.map_err(lost)?;
    let status = answer.status().as_u16();
    let retry_after = answer
        .headers()
        .get(RETRY_AFTER)
        .and_then(|seconds| seconds.to_str().ok()?.trim().parse().ok())
        .map(Duration::from_secs);
    let headers = answer.headers().clone();
    let body = http::body(answer, question.longest).await.map_err(lost)?;
    let body = body.ok_or_else(|| question.garbage(status, "it is too long"))?;
    match status {
        200 | 201 => Ok((headers, body)),
        _ => Err(question.error(status, retry_after, &body)),
    }
}

impl Question<'_> {
    /// The error for a response of another server, or a response that cannot be read.
    pub(crate) fn garbage(self, status: u16, problem: impl fmt::Display) -> ApiError {
        let Question { api, action, endpoint, .. } = self;
        let (endpoint, problem) = (endpoint.to_owned(), problem.to_string());
        ApiError::Garbage { api: api.name, action, endpoint, status, problem }
    }

    pub(crate) fn unreachable(self, cause: String) -> ApiError {
        ApiError::Unreachable { action: self.action, endpoint: self.endpoint.to_owned(), cause }
    }

    pub(crate) fn text(self, body: Vec<u8>) -> Result<String, ApiError> {
        String::from_utf8(body).map_err(|_| self.garbage(200, "it is not UTF-8 text"))
    }

    fn error(self, status: u16, retry_after: Option<Duration>, body: &[u8]) -> ApiError {
        let Api { name, limited, read, meaning, advice } = self.api;
        let is_throttled = status == 429;
        let (code, message) = match read(body) {
            Some(ErrorBody { code, message }) => (plain(&code), message),
            None if is_throttled => Default::default(),
            None => return self.garbage(status, "the response contains no error message"),
        };
        let meaning = if is_throttled { Meaning::Throttled } else { meaning(status, &code) };
        let answer = Box::new(ErrorAnswer {
            api: name,
            limited,
            action: self.action,
            status,
            advice: advice(self.action, status, &code),
            code,
            message,
            retry_after,
        });
        match meaning {
            Meaning::Throttled => ApiError::Throttled(answer),
            Meaning::Forbidden => ApiError::Forbidden(answer),
            Meaning::NotFound => ApiError::NotFound(answer),
            Meaning::Refused => ApiError::Refused(answer),
        }
    }
}

/// Keeps only the characters that occur in API error codes, because the code becomes part of a log line.
fn plain(code: &str) -> String {
    let is_of_code = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    code.chars().filter(is_of_code).take(LONGEST_CODE).collect()
}

/// Reads a `null` field as its default. One machine with an unusual field must not make the list of all machines unreadable.
pub(crate) fn null_is_empty<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    field: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(field)?.unwrap_or_default())
}

#[cfg(test)]
mod tests;
