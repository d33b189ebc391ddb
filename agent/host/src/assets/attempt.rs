//! One request for a download, or for the rest of it, and the answer.

use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, IF_RANGE, RANGE};
use reqwest::{Method, Response, StatusCode, Url};
use tokio::fs::File;
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use super::BUFFER;
use crate::error::{Error, explain};
use kops_agent_net::http::innermost_cause;
use kops_agent_net::{Location, LocationClient, NOT_FOLLOWED, Said};

/// Why an attempt to download failed.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The server does not accept connections or does not answer.
    Unreachable(String),
    /// A retry may succeed.
    Passing(String),
    /// The server sends the right content, but another server may be faster.
    Slow(String),
    /// A retry at the same server cannot succeed.
    Lasting(String),
    /// An operation on this machine failed, for example a write to the disk.
    Own(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Own(error)
    }
}

impl From<reqwest::Error> for Trouble {
    fn from(error: reqwest::Error) -> Trouble {
        let trouble = if error.is_connect() || error.is_timeout() {
            Trouble::Unreachable
        } else if error.is_redirect() || error.is_builder() {
            Trouble::Lasting
        } else {
            Trouble::Passing
        };
        trouble(innermost_cause(error))
    }
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Trouble {
        Trouble::Lasting(explain(&error))
    }
}

/// An answer with a body that is still unread.
pub(super) struct Opened {
    /// The position of the body's first byte in the file.
    pub(super) begins_at: u64,
    /// The size of the file, if the server states it.
    pub(super) total: Option<u64>,
    /// The strong entity tag of this version of the file. `None` if the server sends no strong tag, or does not support ranges.
    pub(super) validator: Option<String>,
    pub(super) body: Body,
}

pub(super) enum Body {
    Http(Response),
    File(File),
    Nothing,
}

impl Body {
    /// The next bytes of the body, or `None` at its end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Trouble> {
        match self {
            // The server is reachable even if the body fails, because it began to answer.
            Body::Http(response) => {
                response.chunk().await.map_err(|error| Trouble::Passing(innermost_cause(error)))
            }
            Body::File(file) => {
                let mut buffer = Vec::with_capacity(BUFFER);
                let size = file.read_buf(&mut buffer).await?;
                Ok((size > 0).then(|| buffer.into()))
            }
            Body::Nothing => Ok(None),
        }
    }
}

/// Requests a file from byte `from` on. `validator` identifies the version of the file from which the earlier bytes come. With a validator,
/// a server that now has another version answers with the whole file.
pub(super) async fn open(
    client: &LocationClient,
    at: &Location,
    from: u64,
    validator: Option<&str>,
    limit: Duration,
) -> Result<Opened, Trouble> {
    if at.url.scheme() == "file" {
        let file = File::open(path(&at.url)?).await?;
        let total = file.metadata().await?.len();
        return Ok(Opened { begins_at: 0, total: Some(total), validator: None, body: Body::File(file) });
    }
    let mut request = client.request(Method::GET, at);
    if from > 0 {
        request = request.header(RANGE, format!("bytes={from}-"));
        if let Some(validator) = validator {
            request = request.header(IF_RANGE, validator);
        }
    }
    let response = timeout(limit, request.send())
        .await
        .map_err(|_| Trouble::Unreachable(format!("the server did not answer for {limit:.0?}")))??;
    let headers = response.headers();
    let (begins_at, total) = match response.status() {
        StatusCode::OK => (0, number(headers, CONTENT_LENGTH.as_str())),
        StatusCode::PARTIAL_CONTENT => content_range(headers)
            .ok_or_else(|| Trouble::Passing("the server's answer has no valid Content-Range".into()))?,
        // The part on the disk is at least as large as the file, so there is nothing to download. The hash shows whether the part is the
        // complete file.
        StatusCode::RANGE_NOT_SATISFIABLE if from > 0 => {
            return Ok(Opened { begins_at: from, total: None, validator: None, body: Body::Nothing });
        }
        _ => return Err(refusal(response).await),
    };
    let validator = strong_validator(headers);
    Ok(Opened { begins_at, total, validator, body: Body::Http(response) })
}

/// The size of a file, if the server reports it without a download.
pub(super) async fn size(
    client: &LocationClient,
    at: &Location,
    limit: Duration,
) -> Result<Option<u64>, Trouble> {
    if at.url.scheme() == "file" {
        return Ok(Some(tokio::fs::metadata(path(&at.url)?).await?.len()));
    }
    if at.size.is_some() || at.has_headers() {
        return Ok(at.size);
    }
    let request = client.request(Method::HEAD, at).send();
    let response = timeout(limit, request)
        .await
        .map_err(|_| Trouble::Unreachable(format!("the server did not answer for {limit:.0?}")))??;
    match response.status() {
        StatusCode::OK => Ok(number(response.headers(), CONTENT_LENGTH.as_str())),
        // Not every server supports HEAD, so an error here may not matter. The download reports real errors.
        _ => Ok(None),
    }
}

fn path(url: &Url) -> Result<std::path::PathBuf, Trouble> {
    url.to_file_path().map_err(|()| Trouble::Lasting("it names no file of this machine".into()))
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// The position of the first byte in the answer, and the file's size, as in `bytes 5-9/10` (RFC 9110, section 14.4).
fn content_range(headers: &HeaderMap) -> Option<(u64, Option<u64>)> {
    let (part, total) = headers.get(CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes ")?.split_once('/')?;
    Some((part.split_once('-')?.0.trim().parse().ok()?, total.trim().parse().ok()))
}

/// An entity tag for `If-Range`. The tag must be strong (RFC 9110, section 13.1.5), and the server must support
/// ranges.
fn strong_validator(headers: &HeaderMap) -> Option<String> {
    let knows_ranges = headers.get(ACCEPT_RANGES).is_none_or(|units| units != "none");
    let tag = headers.get(ETAG)?.to_str().ok()?;
    (knows_ranges && tag.starts_with('"')).then(|| tag.to_owned())
}

/// Turns an error status into an error. The error quotes the server's answer, except for a redirect or the status 404, 408, 425, 429 or
/// 5xx.
async fn refusal(answer: Response) -> Trouble {
    let status = answer.status();
    let said = format!("the server answered {status}");
    match status {
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS | StatusCode::TOO_EARLY => {
            Trouble::Passing(said)
        }
        status if status.is_server_error() => Trouble::Passing(said),
        status if status.is_redirection() => Trouble::Lasting(format!("{said}, and {NOT_FOLLOWED}")),
        StatusCode::NOT_FOUND => Trouble::Lasting(said),
        _ => match Said::from_answer(answer).await.in_words() {
            words if words.is_empty() => Trouble::Lasting(said),
            words => Trouble::Lasting(format!("{said}, and says \"{words}\"")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: reqwest::header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    #[test]
    fn content_range_gives_the_part_of_the_file() {
        for (value, part) in [
            ("bytes 5-9/10", Some((5, Some(10)))),
            ("bytes 5-9/*", Some((5, None))),
            ("bytes */10", None),
            ("items 1-2/3", None),
            ("bytes 5-9", None),
        ] {
            assert_eq!(content_range(&headers(CONTENT_RANGE, value)), part, "{value}");
        }
    }

    #[test]
    fn only_a_strong_tag_identifies_a_version() {
        assert_eq!(strong_validator(&headers(ETAG, "\"v1\"")).as_deref(), Some("\"v1\""));
        assert_eq!(strong_validator(&headers(ETAG, "W/\"v1\"")), None);
        let mut none = headers(ETAG, "\"v1\"");
        none.extend(headers(ACCEPT_RANGES, "none"));
        assert_eq!(strong_validator(&none), None);
    }
}
