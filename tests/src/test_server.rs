//! A real HTTP server on a loopback port, for tests of clients.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::Body;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Makes the server close the connection without an answer.
#[derive(Debug)]
pub struct HangUp;

impl std::fmt::Display for HangUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("hung up")
    }
}

impl std::error::Error for HangUp {}

pub type Answer = Result<Response<Body>, HangUp>;

/// A running server. Dropping it stops the server.
#[derive(Debug)]
pub struct TestServer {
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    listening: JoinHandle<()>,
}

impl TestServer {
    /// Starts a server. `handler` returns the response to each request.
    pub async fn start<F, A>(handler: F) -> TestServer
    where
        F: Fn(Request<Incoming>) -> A + Send + Sync + 'static,
        A: Future<Output = Answer> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        TestServer::start_on(listener, handler)
    }

    /// Like `start`, on a socket on which clients may already wait.
    pub fn start_on<F, A>(listener: TcpListener, handler: F) -> TestServer
    where
        F: Fn(Request<Incoming>) -> A + Send + Sync + 'static,
        A: Future<Output = Answer> + Send + 'static,
    {
        let url = format!("http://{}", listener.local_addr().unwrap());
        let handler = Arc::new(handler);
        let listening = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                // Without TCP_NODELAY, a body waits until the client's kernel has acknowledged the
                // head.
                let _ = socket.set_nodelay(true);
                let handler = handler.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request| handler(request));
                    let _hung_up = Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(socket), service)
                        .await;
                });
            }
        });
        TestServer { url, listening }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

pub fn text(status: u16, text: &str) -> Response<Body> {
    Response::builder().status(status).body(Body::from(text.to_owned())).unwrap()
}
