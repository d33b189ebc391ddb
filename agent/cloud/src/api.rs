//! Questions to a cloud's API over HTTP, whatever it speaks: one request, an answer of bounded length, and one error.
//!
//! APIs say no in words of their own, which each cloud describes as an [`Api`]. What callers decide by is the same for all: an
//! error may pass, or names what does not exist, or what this machine has no right to. Only what an API says does not exist is
//! absent: no right to it, a throttled request, no answer or one that is not understood say nothing of that.

mod client;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kops_agent_net::aws_sdk::SetupError;
use kops_agent_net::http::{self, HttpError, innermost_cause};
use kops_agent_net::tls::NoCaBundle;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Client, Request, Url};
use serde::{Deserialize, Deserializer};
use thiserror::Error;

use crate::calls::Outcome;

pub(crate) use client::{AccessTokens, ApiClient};

/// The longest `Retry-After` that is honoured. A longer one is cut to this: limits are often lifted sooner, and a refused retry costs little.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The most characters of an error's code that are repeated.
const LONGEST_CODE: usize = 64;

/// An API, and how it says no.
#[derive(Debug)]
pub struct Api {
    /// The API, as messages call it.
    pub(crate) name: &'static str,
    /// What its rate limit is counted for.
    pub(crate) limited: &'static str,
    /// The error that a body tells of; `None` if the body is none that this API would write.
    pub(crate) read: fn(&[u8]) -> Option<ErrorBody>,
    /// What an error means, by its HTTP status and its code. A status of 429 is not asked about.
    pub(crate) meaning: fn(u16, &str) -> Meaning,
    /// What to do about an error, by its action, status and code; begins with punctuation, or is empty.
    pub(crate) advice: fn(&str, u16, &str) -> String,
}

/// What a body tells of an error.
#[derive(Debug, Default)]
pub(crate) struct ErrorBody {
    /// The API's name of it; may be empty.
    pub(crate) code: String,
    /// The API's explanation, if it holds no secret; may be empty.
    pub(crate) message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The API asks to be asked less.
    Throttled,
    /// The API knows what asks, and gives it no right to do so.
    Forbidden,
    /// What was asked about does not exist.
    NotFound,
    Refused,
}

impl Meaning {
    /// What an error means by its status alone, of an API that only lists: that it has no such list is no word of what would be
    /// in there.
    pub(crate) fn by_status(status: u16, _code: &str) -> Meaning {
        match status {
            401 | 403 => Meaning::Forbidden,
            _ => Meaning::Refused,
        }
    }
}

/// What is asked of an API, and where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    pub(crate) api: &'static Api,
    /// What is asked, as the API's reference names it.
    pub(crate) action: &'static str,
    /// Where, as messages show it.
    pub(crate) endpoint: &'a str,
    /// The longest answer that is read, in bytes.
    pub(crate) longest: usize,
}

/// An error that an API answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorAnswer {
    api: &'static str,
    limited: &'static str,
    action: &'static str,
    pub status: u16,
    /// The API's name of the error (`InvalidInstanceID.NotFound`); may be empty.
    pub code: String,
    /// The API's explanation; may be empty.
    pub message: String,
    /// What to do; begins with punctuation, or is empty.
    advice: String,
    /// For how long the API asks not to be asked, if it says so.
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
    /// The code, or the status where there is none.
    fn reason(&self) -> String {
        if self.code.is_empty() { self.status.to_string() } else { self.code.clone() }
    }
}

/// Why a cloud's API did not do what it was asked.
#[derive(Clone, Debug, Error)]
pub enum ApiError {
    /// Nothing answers, or not to the end. Whether the request was carried out is not known.
    #[error("cannot ask {endpoint} for {action}: {cause}; check the network, DNS and proxy")]
    Unreachable {
        action: &'static str,
        /// Where.
        endpoint: String,
        cause: String,
    },
    /// More is asked than the API lets; the same request will succeed later.
    #[error(
        "{} puts off {} ({}): this {} asks it too much at the moment",
        .0.api, .0.action, .0.reason(), .0.limited
    )]
    Throttled(Box<ErrorAnswer>),
    /// The API gives no right to it.
    #[error("{0}")]
    Forbidden(Box<ErrorAnswer>),
    /// What was asked about does not exist.
    #[error("{0}")]
    NotFound(Box<ErrorAnswer>),
    /// The API says no, or has trouble of its own.
    #[error("{0}")]
    Refused(Box<ErrorAnswer>),
    /// Something else answers, or answers what cannot be read.
    #[error("{endpoint} answers {action} with {status}, and not as {api} does: {problem}")]
    Garbage {
        api: &'static str,
        action: &'static str,
        /// Where.
        endpoint: String,
        status: u16,
        problem: String,
    },
    /// There are no credentials to ask with.
    #[error("there are no credentials to ask {api} with: {cause}")]
    NoCredentials {
        api: &'static str,
        /// Why not, and what to do.
        cause: String,
        /// Whether there may be some in a moment.
        may_pass: bool,
    },
    /// There can be no request.
    #[error("cannot make a request to {endpoint}: {cause}")]
    NoRequest {
        /// Where it was to go.
        endpoint: String,
        /// Why not.
        cause: String,
    },
    /// The environment has no token.
    #[error(
        "{variable} is not set, or is no token: give this process a token of the project that may read it, as \
         kops-controller has one"
    )]
    NoToken {
        /// The variable that should have it.
        variable: &'static str,
    },
    /// It is not known where in the cloud to ask.
    #[error("{variable} {problem}")]
    NoPlace {
        /// The variable that should say it.
        variable: &'static str,
        /// What is wrong with it, and what to do.
        problem: String,
        /// Whether it may be known in a moment.
        may_pass: bool,
    },
    /// The environment names an endpoint that is none.
    #[error("{variable} is {endpoint:?}, which is no URL of an API, as {usual} would be")]
    BadEndpoint { variable: &'static str, endpoint: String, usual: &'static str },
    /// The API needs TLS, and this host has no certificate authorities.
    #[error(transparent)]
    NoCaBundle(#[from] NoCaBundle),
    /// There can be no HTTP client.
    #[error("{0}")]
    Http(Arc<HttpError>),
    /// No credentials can be asked for.
    #[error("the environment's settings of AWS are wrong: {0}")]
    Settings(Arc<SetupError>),
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
    /// A request that was not sent, for too many wait to be.
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

    /// Whether the same request may succeed later. Where it is one that does more when made twice, look first whether the
    /// earlier one was carried out.
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

    /// For how long the same request is made again, as `Retries` ask: not at all where that cannot help.
    pub(crate) fn retried_for(&self) -> Duration {
        if self.may_pass() { Duration::MAX } else { Duration::ZERO }
    }

    /// Whether the API says that what was asked about does not exist.
    pub fn is_absent(&self) -> bool {
        matches!(self, ApiError::NotFound(_))
    }

    /// Whether the API gives no right to what was asked.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, ApiError::Forbidden(_))
    }

    /// Whether the API has understood the request, and says no to it for good.
    pub fn is_refusal(&self) -> bool {
        match self {
            ApiError::Forbidden(answer) | ApiError::NotFound(answer) | ApiError::Refused(answer) => {
                (400..500).contains(&answer.status)
            }
            _ => false,
        }
    }

    /// Whether the configuration has to change before trying again can help.
    pub fn is_configuration(&self) -> bool {
        matches!(
            self,
            ApiError::NoToken { .. }
                | ApiError::BadEndpoint { .. }
                | ApiError::NoPlace { may_pass: false, .. }
        )
    }

    /// The HTTP status, if there was an answer.
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            ApiError::Garbage { status, .. } => Some(*status),
            error => error.answer().map(|answer| answer.status),
        }
    }

    /// For how long the API asks not to be asked, at most [`LONGEST_PAUSE`]; `None` if it does not say.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.answer()?.retry_after.map(|pause| pause.min(LONGEST_PAUSE))
    }

    /// What came of a call, for metrics: that something does not exist is an answer.
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

/// The URL of an API that a variable may name.
///
/// # Errors
/// If it is none of HTTP, or has a query.
pub(crate) fn base_url(endpoint: &str, variable: &'static str, usual: &'static str) -> Result<Url, ApiError> {
    let is_base =
        |url: &Url| matches!(url.scheme(), "http" | "https") && url.query().is_none() && url.has_host();
    let bad = || ApiError::BadEndpoint { variable, endpoint: endpoint.to_owned(), usual };
    Url::parse(endpoint).ok().filter(is_base).ok_or_else(bad)
}

/// What is at a path below an API's URL.
pub(crate) fn below(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    url.set_path(&format!("{}/{}", base.path().trim_end_matches('/'), path.trim_start_matches('/')));
    url
}

/// What came of a call, for metrics.
pub(crate) fn outcome<T>(asked: &Result<T, ApiError>) -> Outcome {
    asked.as_ref().map_or_else(ApiError::outcome, |_| Outcome::Success)
}

/// Sends a request once, and gives the body of an answer whose status is 200, or 201 of what a request makes.
///
/// # Errors
/// If there is no answer, a longer one than the question takes, or one with another status.
pub(crate) async fn ask(
    client: &Client,
    request: Request,
    question: Question<'_>,
) -> Result<Vec<u8>, ApiError> {
    ask_whole(client, request, question).await.map(|(_headers, body)| body)
}

/// The same, and gives the answer's headers as well.
///
/// # Errors
/// As there.
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
    /// Something that answers in the API's place, or an answer that cannot be read.
    pub(crate) fn garbage(self, status: u16, problem: impl fmt::Display) -> ApiError {
        let Question { api, action, endpoint, .. } = self;
        let (endpoint, problem) = (endpoint.to_owned(), problem.to_string());
        ApiError::Garbage { api: api.name, action, endpoint, status, problem }
    }

    /// No answer.
    pub(crate) fn unreachable(self, cause: String) -> ApiError {
        ApiError::Unreachable { action: self.action, endpoint: self.endpoint.to_owned(), cause }
    }

    /// An answer of the API as text.
    pub(crate) fn text(self, body: Vec<u8>) -> Result<String, ApiError> {
        String::from_utf8(body).map_err(|_| self.garbage(200, "it is no text"))
    }

    fn error(self, status: u16, retry_after: Option<Duration>, body: &[u8]) -> ApiError {
        let Api { name, limited, read, meaning, advice } = self.api;
        let is_throttled = status == 429;
        let (code, message) = match read(body) {
            Some(ErrorBody { code, message }) => (plain(&code), message),
            None if is_throttled => Default::default(),
            None => return self.garbage(status, "it tells of no error"),
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

/// A code without what no API has in one: it becomes part of a line of the log.
fn plain(code: &str) -> String {
    let is_of_code = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    code.chars().filter(is_of_code).take(LONGEST_CODE).collect()
}

/// A field that is `null` is as one that is not there: one machine that is written in another way must not take the list of all
/// others away.
pub(crate) fn null_is_empty<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    field: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(field)?.unwrap_or_default())
}

#[cfg(test)]
mod tests;
