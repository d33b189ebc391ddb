//! Faults of a mirror.

use std::time::Duration;

use hyper::body::Bytes;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, LOCATION};
use hyper::{Method, Response, StatusCode};

use super::body::{DownloadBody, End};
use super::{File, describe};

/// How often a [`Fault::Drips`] lets go of a byte.
const DRIP: Duration = Duration::from_millis(20);

/// A fault of a mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A page for people, with status 200.
    HtmlPage,
    /// The first half, and then the connection is cut.
    StopsHalfway,
    /// So many bytes of what was asked for, and then the connection is cut.
    StopsAfter(usize),
    /// The first half, and then silence.
    StallsHalfway,
    /// All of it, a byte at a time and fifty a second.
    Drips,
    /// No answer at all.
    Silent,
    /// As many bytes as announced, but not those.
    OtherBytes,
    /// The first half, announced and sent as if it were all.
    Truncated,
    /// More bytes than the file has, announced and sent.
    TooLong,
    /// A body without announced length that does not end.
    Endless,
    /// An announced length that fits no disk, and then [`Fault::Endless`].
    Claims(u64),
    /// An earlier version of the file, by its own entity tag, and the connection cut at its half.
    StopsHalfwayOfAnother,
    /// All of it, whatever part was asked for.
    IgnoresRanges,
    /// HEAD is not known.
    IgnoresHead,
    /// Sent on to this URL.
    RedirectsTo(String),
    /// Nothing but this status.
    Status(u16),
}

impl Fault {
    /// What is answered instead of `file`; `None` where the fault does not concern this request. `asked_from` is the
    /// first byte that was asked for.
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
            Fault::OtherBytes => as_announced(DownloadBody::of(Bytes::from(vec![b'?'; content.len()]))),
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
                let mut response = Response::new(DownloadBody::of(content.slice(..half)));
                describe(&mut response, file, half);
                response
            }
            Fault::TooLong => {
                let longer = [content, &b"and more"[..]].concat();
                let mut response = Response::new(DownloadBody::of(Bytes::from(longer.clone())));
                describe(&mut response, file, longer.len());
                response
            }
            Fault::Endless if *method == Method::HEAD => Response::new(DownloadBody::of(Bytes::new())),
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
            Fault::IgnoresRanges => as_announced(DownloadBody::of(content.clone())),
            Fault::IgnoresHead if *method == Method::HEAD => page(StatusCode::METHOD_NOT_ALLOWED),
            Fault::IgnoresHead => return None,
            Fault::RedirectsTo(url) => {
                let mut response = Response::new(DownloadBody::of(Bytes::new()));
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
    let mut response = Response::new(DownloadBody::of(Bytes::from(html)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html"));
    response
}
