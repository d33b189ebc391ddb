//! The common parts of the stand-ins for clouds' APIs: a loopback server that answers from a state, and helpers for requests and
//! responses. The test can change the state while the server runs.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;

use anyhow::Context as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{HeaderValue, LOCATION};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use parking_lot::{Mutex, MutexGuard};
use percent_encoding::percent_decode_str;

use crate::loopback::LoopbackServer;

/// The state of a stand-in, from which it makes responses. All clones share one state.
#[derive(Debug, Default)]
pub(crate) struct Shared<S>(Arc<Mutex<S>>);

impl<S> Clone for Shared<S> {
    fn clone(&self) -> Shared<S> {
        Shared(self.0.clone())
    }
}

impl<S> Shared<S> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, S> {
        self.0.lock()
    }
}

/// A running stand-in for an API. Dropping it stops the stand-in.
#[derive(Debug)]
pub(crate) struct StandInApi<S> {
    state: Shared<S>,
    server: LoopbackServer,
}

impl<S: Send + 'static> StandInApi<S> {
    /// Starts with this state. `answer` makes the response to each request. If `answer` returns `None`, the server never
    /// answers.
    pub(crate) fn start<F, A>(name: &str, state: S, answer: F) -> anyhow::Result<StandInApi<S>>
    where
        F: Fn(Request<Incoming>, Shared<S>) -> A + Clone + Send + 'static,
        A: Future<Output = Option<Response<String>>> + Send + 'static,
    {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("finding a free port")?;
        StandInApi::start_on(socket, name, state, answer)
    }

    /// Like `start`, on this socket.
    pub(crate) fn start_on<F, A>(
        socket: TcpListener,
        name: &str,
        state: S,
        answer: F,
    ) -> anyhow::Result<StandInApi<S>>
    where
        F: Fn(Request<Incoming>, Shared<S>) -> A + Clone + Send + 'static,
        A: Future<Output = Option<Response<String>>> + Send + 'static,
    {
        let state = Shared(Arc::new(Mutex::new(state)));
        let answering = state.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let answered = answer(request, answering.clone());
            async move {
                match answered.await {
                    Some(response) => Ok::<_, Infallible>(response),
                    None => std::future::pending().await,
                }
            }
        });
        let server = LoopbackServer::start_on(name, socket, move |_| service.clone())?;
        Ok(StandInApi { state, server })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, S> {
        self.state.lock()
    }

    /// A handle to the state, for code that outlives a borrow of this stand-in.
    pub(crate) fn shared(&self) -> Shared<S> {
        self.state.clone()
    }

    /// `http://ADDRESS:PORT`.
    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    pub(crate) fn host(&self) -> String {
        self.server.address().to_string()
    }
}

/// A response with this status and text.
pub(crate) fn said(status: u16, text: impl Into<String>) -> Response<String> {
    let mut response = Response::new(text.into());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

/// A redirect to `location`.
pub(crate) fn elsewhere(status: u16, location: &str) -> Response<String> {
    let mut response = said(status, "");
    if let Ok(location) = HeaderValue::try_from(location) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

/// A header of a request. Empty if the request lacks this header.
pub(crate) fn header<'a>(request: &'a Request<Incoming>, name: &str) -> &'a str {
    request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The parameters in the query of a request's URL.
pub(crate) fn parameters(request: &Request<Incoming>) -> BTreeMap<String, String> {
    form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes()).into_owned().collect()
}

/// The fields of a request whose body is a form.
pub(crate) async fn form(request: Request<Incoming>) -> BTreeMap<String, String> {
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    form_urlencoded::parse(&body).into_owned().collect()
}

/// Decodes the percent-encoding of a path.
pub(crate) fn unescaped(path: &str) -> String {
    percent_decode_str(path).decode_utf8_lossy().into_owned()
}
