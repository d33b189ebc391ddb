//! Faults of a mirror.

use std::time::Duration;

use hyper::body::Bytes;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, LOCATION};
use hyper::{Method, Response, StatusCode};

use super::body::{DownloadBody, End};
use super::{File, describe};

/// The pause between two bytes of [`Fault::Drips`].
const DRIP: Duration = Duration::from_millis(20);

/// A fault of a mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Sends an HTML page with status 200.
    HtmlPage,
    /// Sends the first half, then closes the connection.
    StopsHalfway,
    /// Sends this many bytes of the requested part, then closes the connection.
    StopsAfter(usize),
    /// Sends the first half, then nothing more.
    StallsHalfway,
    /// Sends the whole file, one byte at a time and fifty bytes a second.
    Drips,
    /// Never answers.
    Silent,
    /// Sends the announced number of bytes, but wrong bytes.
    OtherBytes,
    /// Sends the first half as if it were the whole file.
    Truncated,
    /// Announces and sends more bytes than the file has.
    TooLong,
    /// Sends an endless body, without announcing a length.
    Endless,
    /// Announces this length, which is too large for any disk, and sends an endless body.
    Claims(u64),
    /// Sends half of a different version of the file, with that version's entity tag. Then closes the connection.
    StopsHalfwayOfAnother,
    /// Sends the whole file, even if the request has a range.
    IgnoresRanges,
    /// Rejects HEAD with 405.
    IgnoresHead,
    /// Redirects to this URL.
    RedirectsTo(String),
    /// Sends an HTML page with this status.
    Status(u16),
}

impl Fault {
    /// The faulty response to a request for `file`. `None` if the fault does not affect this request, and for
    /// [`Fault::Silent`]. `asked_from` is the offset of the first requested byte.
    pub(super) fn answer(
        &self,
        method: &Method,
        file: &File,
        asked_from: usize,
    ) -> Option<Response<DownloadBody>> {
        let content = &file.content;
        let half = content.len() / 2;
        let as_announced = |body: DownloadBody| {
            let mut response = Response::new(body);
            describe(&mut response, file, content.len());
            response
        };
        Some(match self {
            Fault::HtmlPage => page(StatusCode::OK),
            Fault::Status(code) => {
                page(StatusCode::from_u16(*code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR))
            }
            Fault::OtherBytes => as_announced(DownloadBody::new(Bytes::from(vec![b'?'; content.len()]))),
            Fault::StopsHalfway => as_announced(DownloadBody::ending(content.slice(..half), End::CutLater)),
            Fault::StopsAfter(size) => {
                let rest = content.slice(asked_from.min(content.len())..);
                let sent = rest.slice(..rest.len().min(*size));
                let mut response = super::part(file, asked_from, content.len() - 1);
                *response.body_mut() = DownloadBody::ending(sent, End::CutLater);
                if asked_from == 0 {
                    *response.status_mut() = StatusCode::OK;
                }
                response
            }
            Fault::StallsHalfway => as_announced(DownloadBody::ending(content.slice(..half), End::Never)),
            Fault::Drips => as_announced(DownloadBody::dripping(content.clone(), DRIP)),
            Fault::Silent => return None,
            Fault::Truncated => {
                let mut response = Response::new(DownloadBody::new(content.slice(..half)));
                describe(&mut response, file, half);
                response
            }
            Fault::TooLong => {
                let longer = [content, &b"and more"[..]].concat();
                let mut response = Response::new(DownloadBody::new(Bytes::from(longer.clone())));
                describe(&mut response, file, longer.len());
                response
            }
            Fault::Endless if *method == Method::HEAD => Response::new(DownloadBody::new(Bytes::new())),
            Fault::Endless => Response::new(DownloadBody::endless()),
            Fault::Claims(size) => {
                let mut response = Response::new(DownloadBody::endless());
                response.headers_mut().insert(CONTENT_LENGTH, (*size).into());
                response
            }
            Fault::StopsHalfwayOfAnother => {
                let another = File::new(vec![b'!'; content.len()]);
                let mut response =
                    Response::new(DownloadBody::ending(another.content.slice(..half), End::CutLater));
                describe(&mut response, &another, content.len());
                response
            }
            Fault::IgnoresRanges => as_announced(DownloadBody::new(content.clone())),
            Fault::IgnoresHead if *method == Method::HEAD => page(StatusCode::METHOD_NOT_ALLOWED),
            Fault::IgnoresHead => return None,
            Fault::RedirectsTo(url) => {
                let mut response = Response::new(DownloadBody::new(Bytes::new()));
                *response.status_mut() = StatusCode::FOUND;
                if let Ok(url) = url.parse() {
                    response.headers_mut().insert(LOCATION, url);
                }
                response
            }
        })
    }
}

pub(super) fn page(status: StatusCode) -> Response<DownloadBody> {
    let html =
        format!("<!doctype html><title>{status}</title><h1>{status}</h1><p>This mirror greets you.</p>\n");
    let mut response = Response::new(DownloadBody::new(Bytes::from(html)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html"));
    response
}
