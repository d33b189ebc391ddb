//! A stand-in for a mirror. It serves small files under the paths of the Kubernetes downloads' URLs, with a
//! `.sha256` beside each as `kops get assets --copy` leaves them. Tests can set faults.

mod body;
mod fault;

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderName, HeaderValue, IF_RANGE, RANGE,
};
use hyper::service::Service;
use hyper::{Method, Request, Response, StatusCode, Version};
use parking_lot::Mutex;

use crate::digest::sha256_hex;
use crate::loopback::{Identity, LoopbackServer};
use crate::stand_ins::Releases;
use body::DownloadBody;
pub use fault::Fault;
use fault::page;

/// A running mirror. Dropping it stops the mirror.
#[derive(Debug)]
pub struct Downloads {
    server: LoopbackServer,
    shelf: Arc<Shelf>,
}

impl Downloads {
    /// Serves the stand-ins for `releases`.
    pub fn start(releases: &Releases) -> anyhow::Result<Downloads> {
        Downloads::start_with(releases.stand_ins()?)
    }

    /// Serves `files`, whose keys are URL paths, and a `.sha256` file for each.
    pub fn start_with(files: BTreeMap<String, Vec<u8>>) -> anyhow::Result<Downloads> {
        let shelf = Arc::new(Shelf::new(files, Duration::ZERO));
        let server = LoopbackServer::start("downloads", Mirror { shelf: Arc::clone(&shelf) })?;
        Ok(Downloads { server, shelf })
    }

    /// Like `start_with`, on this socket.
    pub fn start_on(socket: TcpListener, files: BTreeMap<String, Vec<u8>>) -> anyhow::Result<Downloads> {
        let shelf = Arc::new(Shelf::new(files, Duration::ZERO));
        let mirror = Mirror { shelf: Arc::clone(&shelf) };
        let server = LoopbackServer::start_on("downloads", socket, move |_| mirror.clone())?;
        Ok(Downloads { server, shelf })
    }

    /// Like `start_with`, but with TLS and the certificate of `identity`. Clients that support HTTP/2 use HTTP/2.
    pub fn start_tls(files: BTreeMap<String, Vec<u8>>, identity: &Identity) -> anyhow::Result<Downloads> {
        let shelf = Arc::new(Shelf::new(files, Duration::ZERO));
        let server = LoopbackServer::start_tls("downloads", Mirror { shelf: Arc::clone(&shelf) }, identity)?;
        Ok(Downloads { server, shelf })
    }

    /// Like `start_with`, but at this address. Each response is delayed by `late`, like from a distant mirror.
    pub fn start_at(
        address: SocketAddr,
        files: BTreeMap<String, Vec<u8>>,
        late: Duration,
    ) -> anyhow::Result<Downloads> {
        let shelf = Arc::new(Shelf::new(files, late));
        let server = LoopbackServer::start_at(address, "downloads", Mirror { shelf: Arc::clone(&shelf) })?;
        Ok(Downloads { server, shelf })
    }

    /// The URL of the mirror, for `spec.assets.fileRepository`.
    pub fn url(&self) -> String {
        self.server.url()
    }

    pub fn connections(&self) -> usize {
        self.server.connections()
    }

    /// Adds or replaces the file at this path. Returns its URL.
    pub fn put(&self, path: &str, content: &[u8]) -> String {
        self.shelf.files.lock().insert(path.to_owned(), File::new(content.to_vec()));
        format!("{}{path}", self.url())
    }

    /// Serves a file and its `.sha256` file. Returns the file's URL.
    pub fn publish(&self, path: &str, content: &[u8]) -> String {
        self.put(&format!("{path}.sha256"), sha256_hex(content).as_bytes());
        self.put(path, content)
    }

    /// The paths of all downloads, without checksum files.
    pub fn paths(&self) -> Vec<String> {
        self.shelf.files.lock().keys().filter(|path| !path.ends_with(".sha256")).cloned().collect()
    }

    /// From now on, answers requests for `path` with this fault.
    pub fn break_path(&self, path: &str, fault: Fault) {
        self.shelf
            .faults
            .lock()
            .insert(path.to_owned(), Faults { first: VecDeque::new(), then: Some(fault) });
    }

    /// Answers each of the next requests for `path` with one of these faults, in order. Later requests get correct answers.
    /// HEAD requests use up no fault.
    pub fn break_next(&self, path: &str, faults: impl IntoIterator<Item = Fault>) {
        let first = faults.into_iter().collect();
        self.shelf.faults.lock().insert(path.to_owned(), Faults { first, then: None });
    }

    /// From now on, answers requests for `path` correctly.
    pub fn mend_path(&self, path: &str) {
        self.shelf.faults.lock().remove(path);
    }

    /// All requests so far, in order: `METHOD PATH`, followed by `bytes=…` if the request has a range.
    pub fn requests(&self) -> Vec<String> {
        self.shelf.requests.lock().clone()
    }

    pub fn http_2_requests(&self) -> usize {
        self.shelf.http_2_requests.load(Ordering::Relaxed)
    }

    /// The ranges of the GET requests for a path, in order, such as `bytes=5-`. A request for the whole file has an empty
    /// range.
    pub fn gets(&self, path: &str) -> Vec<String> {
        let get = format!("GET {path}");
        let rest = |request: &String| request.strip_prefix(&get).map(|rest| rest.trim_start().to_owned());
        self.requests()
            .iter()
            .filter_map(rest)
            .filter(|rest| rest.is_empty() || rest.starts_with("bytes"))
            .collect()
    }
}

#[derive(Debug)]
struct Shelf {
    files: Mutex<BTreeMap<String, File>>,
    faults: Mutex<BTreeMap<String, Faults>>,
    requests: Mutex<Vec<String>>,
    http_2_requests: AtomicUsize,
    late: Duration,
}

#[derive(Debug, Default)]
struct Faults {
    first: VecDeque<Fault>,
    then: Option<Fault>,
}

#[derive(Clone, Debug)]
struct File {
    content: Bytes,
    etag: String,
}

impl Shelf {
    fn new(downloads: BTreeMap<String, Vec<u8>>, late: Duration) -> Shelf {
        let mut files = BTreeMap::new();
        for (path, content) in downloads {
            let sha256 = sha256_hex(&content);
            files.insert(format!("{path}.sha256"), File::new(sha256.into_bytes()));
            files.insert(path, File::new(content));
        }
        Shelf {
            files: Mutex::new(files),
            faults: Mutex::default(),
            requests: Mutex::default(),
            http_2_requests: AtomicUsize::default(),
            late,
        }
    }

    /// The response. `None` if the request gets no response.
    fn answer(&self, request: &Request<Incoming>) -> Option<Response<DownloadBody>> {
        let path = request.uri().path();
        let header = |name: HeaderName| request.headers().get(name).and_then(|value| value.to_str().ok());
        self.requests.lock().push(match header(RANGE) {
            Some(range) => format!("{} {path} {range}", request.method()),
            None => format!("{} {path}", request.method()),
        });
        if request.version() == Version::HTTP_2 {
            self.http_2_requests.fetch_add(1, Ordering::Relaxed);
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Some(page(StatusCode::METHOD_NOT_ALLOWED));
        }
        let Some(file) = self.files.lock().get(path).cloned() else {
            return Some(page(StatusCode::NOT_FOUND));
        };
        let same_file = header(IF_RANGE).is_none_or(|etag| etag == file.etag);
        let range = header(RANGE).filter(|_| same_file).map(|range| parse_range(range, file.content.len()));
        let fault = self.fault(path, request.method());
        let asked_from = if let Some(Range::Bytes(first, _)) = range { first } else { 0 };
        let answer = fault.as_ref().and_then(|fault| fault.answer(request.method(), &file, asked_from));
        if answer.is_some() || fault == Some(Fault::Silent) {
            return answer;
        }
        Some(match range {
            None | Some(Range::NotUnderstood) => whole(&file, DownloadBody::new(file.content.clone())),
            Some(Range::Bytes(first, last)) => part(&file, first, last),
            Some(Range::BeyondTheEnd) => page(StatusCode::RANGE_NOT_SATISFIABLE),
        })
    }

    fn fault(&self, path: &str, method: &Method) -> Option<Fault> {
        let mut faults = self.faults.lock();
        let faults = faults.get_mut(path)?;
        if *method == Method::HEAD {
            return faults.first.front().or(faults.then.as_ref()).cloned();
        }
        faults.first.pop_front().or_else(|| faults.then.clone())
    }
}

impl File {
    fn new(content: Vec<u8>) -> File {
        File { etag: format!("\"{}\"", sha256_hex(&content)), content: Bytes::from(content) }
    }
}

enum Range {
    /// The offsets of the first and the last byte of the range.
    Bytes(usize, usize),
    BeyondTheEnd,
    /// The range is not understood. A server may ignore such a range (RFC 9110, 14.2).
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
    let mut response = Response::new(DownloadBody::new(file.content.slice(first..=last)));
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
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Ok(etag) = file.etag.parse() {
        headers.insert(ETAG, etag);
    }
}

#[derive(Clone)]
struct Mirror {
    shelf: Arc<Shelf>,
}

impl Service<Request<Incoming>> for Mirror {
    type Response = Response<DownloadBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let answer = self.shelf.answer(&request);
        let late = self.shelf.late;
        Box::pin(async move {
            if !late.is_zero() {
                tokio::time::sleep(late).await;
            }
            match answer {
                Some(answer) => Ok(answer),
                None => std::future::pending().await,
            }
        })
    }
}
