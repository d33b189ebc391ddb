//! The mirror: serves stand-ins for the Kubernetes downloads under the very paths of their URLs, with a
//! `.sha256` beside each as `kops get assets --copy` leaves them, and misbehaves as told.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use anyhow::Context as _;
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_RANGE, RANGE};
use hyper::service::Service;
use hyper::{Method, Request, Response, StatusCode};
use sha2::{Digest, Sha256};

use crate::loopback::LoopbackServer;
use crate::stand_ins::Releases;

/// A way in which a mirror lets its users down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A page for people, with status 200.
    HtmlPage,
    /// The first half, and then the connection is cut.
    StopsHalfway,
    /// The first half, and then silence.
    StallsHalfway,
    /// As many bytes as announced, but not those.
    OtherBytes,
    /// Nothing but this status.
    Status(u16),
}

/// A running mirror; dropping it stops it.
#[derive(Debug)]
pub struct Downloads {
    server: LoopbackServer,
    shelf: Arc<Shelf>,
}

impl Downloads {
    /// Serves the stand-ins for `releases`.
    ///
    /// # Errors
    /// If they cannot be packed, or there is no free port.
    pub fn start(releases: &Releases) -> anyhow::Result<Downloads> {
        Downloads::start_with(releases.stand_ins()?)
    }

    /// Serves `files`, by URL path, and `.sha256` beside each.
    ///
    /// # Errors
    /// If there is no free port.
    pub fn start_with(files: BTreeMap<String, Vec<u8>>) -> anyhow::Result<Downloads> {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("finding a free port")?;
        Downloads::start_on(socket, files)
    }

    /// [`Downloads::start_with`] on this socket.
    ///
    /// # Errors
    /// If there is no thread to be had.
    pub fn start_on(socket: TcpListener, files: BTreeMap<String, Vec<u8>>) -> anyhow::Result<Downloads> {
        let shelf = Arc::new(Shelf::new(files));
        let mirror = Mirror { shelf: Arc::clone(&shelf) };
        let server = LoopbackServer::start_on("downloads", socket, move |_| mirror.clone())?;
        Ok(Downloads { server, shelf })
    }

    /// What to write into `spec.assets.fileRepository`.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// The paths of all downloads, without their checksum files.
    pub fn paths(&self) -> Vec<String> {
        self.shelf.files.keys().filter(|path| !path.ends_with(".sha256")).cloned().collect()
    }

    /// From now on, answers for `path` so.
    pub fn break_path(&self, path: &str, fault: Fault) {
        lock(&self.shelf.faults).insert(path.to_owned(), fault);
    }

    /// From now on, answers for `path` as it should.
    pub fn mend_path(&self, path: &str) {
        lock(&self.shelf.faults).remove(path);
    }

    /// Every request so far, in order: `METHOD PATH`, and `bytes=…` where a range was asked for.
    pub fn requests(&self) -> Vec<String> {
        lock(&self.shelf.requests).clone()
    }
}

#[derive(Debug)]
struct Shelf {
    files: BTreeMap<String, File>,
    faults: Mutex<BTreeMap<String, Fault>>,
    requests: Mutex<Vec<String>>,
}

#[derive(Debug)]
struct File {
    content: Bytes,
    etag: String,
}

impl Shelf {
    fn new(downloads: BTreeMap<String, Vec<u8>>) -> Shelf {
        let mut files = BTreeMap::new();
        for (path, content) in downloads {
            let sha256 = hex_sha256(&content);
            files.insert(format!("{path}.sha256"), File::new(sha256.into_bytes()));
            files.insert(path, File::new(content));
        }
        Shelf { files, faults: Mutex::default(), requests: Mutex::default() }
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<DownloadBody> {
        let path = request.uri().path();
        let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        lock(&self.requests).push(match header(RANGE) {
            Some(range) => format!("{} {path} {range}", request.method()),
            None => format!("{} {path}", request.method()),
        });
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return page(StatusCode::METHOD_NOT_ALLOWED);
        }
        let Some(file) = self.files.get(path) else {
            return page(StatusCode::NOT_FOUND);
        };
        let fault = lock(&self.faults).get(path).copied();
        match fault {
            Some(Fault::HtmlPage) => return page(StatusCode::OK),
            Some(Fault::Status(code)) => {
                return page(StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR));
            }
            Some(Fault::OtherBytes) => {
                return whole(file, DownloadBody::of(Bytes::from(vec![b'?'; file.content.len()])));
            }
            Some(Fault::StopsHalfway) => {
                return whole(file, DownloadBody::cut(file.content.slice(..file.content.len() / 2)));
            }
            Some(Fault::StallsHalfway) => {
                return whole(file, DownloadBody::stalled(file.content.slice(..file.content.len() / 2)));
            }
            None => {}
        }
        let same_file = header(IF_RANGE).is_none_or(|etag| etag == file.etag);
        match header(RANGE).filter(|_| same_file).map(|range| parse_range(range, file.content.len())) {
            None | Some(Range::NotUnderstood) => whole(file, DownloadBody::of(file.content.clone())),
            Some(Range::Bytes(first, last)) => part(file, first, last),
            Some(Range::BeyondTheEnd) => page(StatusCode::RANGE_NOT_SATISFIABLE),
        }
    }
}

impl File {
    fn new(content: Vec<u8>) -> File {
        File { etag: format!("\"{}\"", hex_sha256(&content)), content: Bytes::from(content) }
    }
}

enum Range {
    /// The first and the last byte wanted.
    Bytes(usize, usize),
    BeyondTheEnd,
    /// A server may ignore a range that it does not understand (RFC 9110, 14.2).
    NotUnderstood,
}

fn parse_range(header: &str, length: usize) -> Range {
    let Some((first, last)) = header.strip_prefix("bytes=").and_then(|range| range.split_once('-')) else {
        return Range::NotUnderstood;
    };
    let Ok(first) = first.parse::<usize>() else {
        return Range::NotUnderstood;
    };
    if first >= length {
        return Range::BeyondTheEnd;
    }
    match last.parse::<usize>() {
        Ok(last) if last >= first => Range::Bytes(first, last.min(length - 1)),
        Err(_) if last.is_empty() => Range::Bytes(first, length - 1),
        _ => Range::NotUnderstood,
    }
}

fn whole(file: &File, body: DownloadBody) -> Response<DownloadBody> {
    let mut response = Response::new(body);
    describe(&mut response, file, file.content.len());
    response
}

fn part(file: &File, first: usize, last: usize) -> Response<DownloadBody> {
    let mut response = Response::new(DownloadBody::of(file.content.slice(first..=last)));
    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    describe(&mut response, file, last - first + 1);
    if let Ok(range) = format!("bytes {first}-{last}/{}", file.content.len()).parse() {
        response.headers_mut().insert(CONTENT_RANGE, range);
    }
    response
}

fn describe(response: &mut Response<DownloadBody>, file: &File, length: usize) {
    let headers = response.headers_mut();
    headers.insert(CONTENT_LENGTH, length.into());
    headers.insert(ACCEPT_RANGES, hyper::header::HeaderValue::from_static("bytes"));
    if let Ok(etag) = file.etag.parse() {
        headers.insert(ETAG, etag);
    }
}

fn page(status: StatusCode) -> Response<DownloadBody> {
    let html =
        format!("<!doctype html><title>{status}</title><h1>{status}</h1><p>This mirror greets you.</p>\n");
    let mut response = Response::new(DownloadBody::of(Bytes::from(html)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("text/html"));
    response
}

/// Bytes, and then the end or a cut connection.
struct DownloadBody {
    bytes: Option<Bytes>,
    end: End,
}

enum End {
    Proper,
    /// The connection is to be cut, but only once the bytes have gone out.
    CutLater,
    CutNow,
    Never,
}

impl DownloadBody {
    fn of(bytes: Bytes) -> DownloadBody {
        DownloadBody { bytes: Some(bytes), end: End::Proper }
    }

    fn cut(bytes: Bytes) -> DownloadBody {
        DownloadBody { bytes: Some(bytes), end: End::CutLater }
    }

    fn stalled(bytes: Bytes) -> DownloadBody {
        DownloadBody { bytes: Some(bytes), end: End::Never }
    }
}

impl Body for DownloadBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Some(bytes) = self.bytes.take() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        match self.end {
            End::Proper => Poll::Ready(None),
            End::CutLater => {
                // hyper flushes what it has when a body has nothing to say for the moment.
                self.end = End::CutNow;
                context.waker().wake_by_ref();
                Poll::Pending
            }
            End::Never => Poll::Pending,
            End::CutNow => Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::ConnectionReset)))),
        }
    }
}

#[derive(Clone)]
struct Mirror {
    shelf: Arc<Shelf>,
}

impl Service<Request<Incoming>> for Mirror {
    type Response = Response<DownloadBody>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        ready(Ok(self.shelf.answer(&request)))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn hex_sha256(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}
