//! Questions to a cloud's API over HTTP, whatever it speaks: a request, its status, and a body of bounded length.

use std::time::Duration;

use kops_agent_net::http::{self, innermost_cause};
use reqwest::header::RETRY_AFTER;
use reqwest::{Client, Request};

/// An answer that was read to its end.
pub(crate) struct Answer {
    /// The HTTP status.
    pub(crate) status: u16,
    /// For how long the API asks not to be asked, if it says so.
    pub(crate) retry_after: Option<Duration>,
    /// The body.
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The body as text; `None` if it is none.
    pub(crate) fn text(self) -> Option<String> {
        String::from_utf8(self.body).ok()
    }
}

/// Why there is no answer.
pub(crate) enum NoAnswer {
    /// Nothing answers, or not to the end. Whether the request was carried out is not known.
    Unreachable(String),
    /// The body is longer than what is read.
    TooLong {
        /// The HTTP status.
        status: u16,
    },
}

/// Sends a request once, and reads an answer of at most `longest` bytes.
///
/// # Errors
/// If there is no answer, or a longer one.
pub(crate) async fn ask(client: &Client, request: Request, longest: usize) -> Result<Answer, NoAnswer> {
    let lost = |error| NoAnswer::Unreachable(innermost_cause(error));
    let answer = client.execute(request).await.map_err(lost)?;
    let status = answer.status().as_u16();
    let retry_after = answer
        .headers()
        .get(RETRY_AFTER)
        .and_then(|seconds| seconds.to_str().ok()?.trim().parse().ok())
        .map(Duration::from_secs);
    let body = http::body(answer, longest).await.map_err(lost)?.ok_or(NoAnswer::TooLong { status })?;
    Ok(Answer { status, retry_after, body })
}
