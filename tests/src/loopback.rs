//! An HTTP server on a free port of the loopback interface, or where a test wants it, for as long as its value lives.
//!
//! It runs on a thread of its own, so tests that know nothing of async can start one as well.

use std::convert::Infallible;
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener as Socket};
use std::thread::{self, JoinHandle};

use anyhow::Context;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// A running server; dropping it stops it and cuts its connections.
#[derive(Debug)]
pub struct LoopbackServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl LoopbackServer {
    /// Starts to answer with `service`.
    ///
    /// # Errors
    /// If there is no free port or no thread to be had.
    pub fn start<S, B>(name: &str, service: S) -> anyhow::Result<LoopbackServer>
    where
        S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Into<Box<dyn Error + Send + Sync>>,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let socket = Socket::bind((Ipv4Addr::LOCALHOST, 0)).context("finding a free port")?;
        LoopbackServer::start_on(name, socket, move |_| service.clone())
    }

    /// Starts to answer on this socket, to each client with what `service_for` its address has.
    ///
    /// # Errors
    /// If there is no thread to be had.
    pub fn start_on<F, S, B>(name: &str, socket: Socket, service_for: F) -> anyhow::Result<LoopbackServer>
    where
        F: Fn(IpAddr) -> S + Send + 'static,
        S: Service<Request<Incoming>, Response = Response<B>> + Send + 'static,
        S::Future: Send,
        S::Error: Into<Box<dyn Error + Send + Sync>>,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let serve = async move {
            let listener = TcpListener::from_std(socket)?;
            tokio::select! {
                done = accept_forever(listener, service_for) => done,
                _ = stopped => Ok(()),
            }
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            // A server that fails shows in its clients, which are what a test looks at.
            let _ = runtime.block_on(serve);
        })?;
        Ok(LoopbackServer { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://ADDRESS:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for LoopbackServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It ended by itself or by the line above; how does not matter any more.
            let _ = thread.join();
        }
    }
}

async fn accept_forever<F, S, B>(listener: TcpListener, service_for: F) -> std::io::Result<()>
where
    F: Fn(IpAddr) -> S,
    S: Service<Request<Incoming>, Response = Response<B>> + Send + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    loop {
        let (connection, client) = listener.accept().await?;
        let service = service_for(client.ip());
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(connection), service));
    }
}
