//! Serves `/healthz`, `/readyz` and `/metrics` over plain HTTP on this machine.

use std::convert::Infallible;
use std::future::ready;
use std::io::ErrorKind;
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

/// The answers to probes.
pub trait Health: Send + Sync + 'static {
    /// The problem that a restart of this process would solve. `None` if the process works, or waits for the Lease.
    fn not_live(&self) -> Option<String>;

    /// The condition for which this process waits; `None` if the process can do its work now.
    fn not_ready(&self) -> Option<String>;

    /// The text of a successful probe.
    fn doing(&self) -> &str {
        "ok"
    }
}

const PATHS: &str = "/healthz, /readyz and /metrics";
const TRIED_AGAIN_AFTER: Duration = Duration::from_secs(1);
const CONNECTIONS: usize = 64;
const HEADERS_WITHIN: Duration = Duration::from_secs(5);
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Listens at an address. While another program has the port, waits and retries. The process does its other work in the meantime.
pub async fn listen(address: &str) -> Result<TcpListener> {
    let mut is_told = false;
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => {
                log::info!("{PATHS} are at http://{}", listener.local_addr()?);
                return Ok(listener);
            }
            Err(error) if matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable) => {
                if !std::mem::replace(&mut is_told, true) {
                    log::warn!("cannot serve {PATHS} at {address} (--health-listen): {error}; trying again");
                }
                tokio::time::sleep(TRIED_AGAIN_AFTER).await;
            }
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("listening on {address} (--health-listen) for {PATHS}"));
            }
        }
    }
}

pub async fn listen_and_serve(
    address: &str,
    health: Arc<dyn Health>,
    registry: Arc<Registry>,
) -> Result<Infallible> {
    serve(listen(address).await?, health, registry).await
}

/// Polls the probe server `answering` once. If the port is free, the server listens when this function returns. If another program has the
/// port, this function does not wait.
pub async fn begin(answering: &mut (impl Future<Output = Result<Infallible>> + Unpin)) -> Result<()> {
    tokio::select! {
        biased;
        result = answering => match result? {},
        () = ready(()) => Ok(()),
    }
}

/// Serves probes forever.
pub async fn serve(
    listener: TcpListener,
    health: Arc<dyn Health>,
    registry: Arc<Registry>,
) -> Result<Infallible> {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let slot = slots.clone().acquire_owned().await?;
        // `accept` fails, for example, if there are no free file descriptors. The end of another connection may free a descriptor.
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
        "/healthz" => probe_answer(health.not_live(), health.doing()),
        "/readyz" => probe_answer(health.not_ready(), health.doing()),
        "/metrics" => {
            let mut response = text(StatusCode::OK, metrics::text(registry));
            response
                .headers_mut()
                .insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(OPEN_METRICS));
            response
        }
        _ => text(StatusCode::NOT_FOUND, format!("there are {PATHS}")),
    }
}

fn probe_answer(problem: Option<String>, doing: &str) -> Response<String> {
    match problem {
        None => text(StatusCode::OK, doing.to_owned()),
        Some(problem) => text(StatusCode::SERVICE_UNAVAILABLE, problem),
    }
}

fn text(status: StatusCode, text: String) -> Response<String> {
    let mut response = Response::new(text);
    *response.status_mut() = status;
    response
}
