//! `/healthz`, `/readyz` and `/metrics`, over plain HTTP on this machine.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::metrics;

/// What a probe is answered.
pub trait Health: Send + Sync + 'static {
    /// Whether this process does its work, or at least waits for its turn.
    ///
    /// # Errors
    /// What it does not do; a restart helps.
    fn live(&self) -> Result<(), String>;

    /// Whether it can do its work.
    ///
    /// # Errors
    /// What it waits for.
    fn ready(&self) -> Result<(), String>;
}

const CONNECTIONS: usize = 64;
const HEADERS_WITHIN: Duration = Duration::from_secs(5);
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Listens, and tells where.
///
/// # Errors
/// If somebody else listens there, or nobody may.
pub async fn listen(address: &str) -> Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("listening on {address} for /healthz, /readyz and /metrics"))?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Answers for ever.
pub async fn serve(listener: TcpListener, health: Arc<dyn Health>, registry: Arc<Registry>) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        // It fails where there are no file descriptors, say; somebody may close one.
        let Ok((socket, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (health, registry) = (health.clone(), registry.clone());
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let answer = answer(&request, &*health, &registry);
                async move { Ok::<_, Infallible>(answer) }
            });
            let _hung_up = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADERS_WITHIN)
                .serve_connection(TokioIo::new(socket), service)
                .await;
            drop(slot);
        });
    }
}

fn answer(request: &Request<Incoming>, health: &dyn Health, registry: &Registry) -> Response<String> {
    if request.method() != Method::GET {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET".into());
    }
    match request.uri().path() {
        "/healthz" => told(health.live()),
        "/readyz" => told(health.ready()),
        "/metrics" => {
            let mut response = text(StatusCode::OK, metrics::text(registry));
            response
                .headers_mut()
                .insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(OPEN_METRICS));
            response
        }
        _ => text(StatusCode::NOT_FOUND, "there are /healthz, /readyz and /metrics".into()),
    }
}

fn told(health: Result<(), String>) -> Response<String> {
    match health {
        Ok(()) => text(StatusCode::OK, "ok".into()),
        Err(problem) => text(StatusCode::SERVICE_UNAVAILABLE, problem),
    }
}

fn text(status: StatusCode, text: String) -> Response<String> {
    let mut response = Response::new(text);
    *response.status_mut() = status;
    response
}
