//! The HTTPS server for peers that are not verified yet. Every resource of a connection is bounded.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use kops_agent_cluster::bootstrap::renewal;
use kops_agent_cluster::pacing::message;
use kops_agent_process::output::one_line;
use kops_agent_spec::failure::{self, Failure};
use rustls::crypto::aws_lc_rs;
use rustls::server::NoServerSessionStorage;
use rustls::{CertificateError, Error as TlsError, ServerConfig};
use tokio::net::{TcpListener, TcpSocket, TcpStream, lookup_host};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::answer::{Bootstrap, Endpoint, RequestParts};
use super::audit::{Kind, Record};
use super::connections::{Connections, Outcome, Slot};
use super::derived_configs::NO_NODE_CONFIG;
use super::descriptors;
use super::keystore::Keystore;
use super::replay::TOKEN_OLDER_THAN_SERVER;
use super::threads::Handshakes;
use kops_agent_cloud::verify::{Answer, Refusal};
use kops_agent_net::tls::chains::Clients;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum number of connections at the same time.
    pub connections: usize,
    pub connections_of_one: usize,
    /// The timeout of each phase of a request: the TLS handshake, the header, and the body.
    pub timeout: Duration,
    pub answer_within: Duration,
    /// The timeout of a whole connection, including sending the answer.
    pub connection_within: Duration,
    /// How long open connections may continue after the server is told to stop.
    pub drain_within: Duration,
}

impl Default for Limits {
    /// A machine waits 15 seconds for the answer to its request, so `answer_within` is shorter.
    fn default() -> Limits {
        Limits {
            connections: 2048,
            connections_of_one: 128,
            timeout: Duration::from_secs(5),
            answer_within: Duration::from_secs(14),
            connection_within: Duration::from_secs(30),
            drain_within: Duration::from_secs(5),
        }
    }
}

/// The maximum number of connections that the kernel queues before this process accepts them. If the queue is full, a new connection is
/// delayed by seconds. 4096 is the kernel's default maximum (`net.core.somaxconn`).
const BACKLOG: u32 = 4096;
/// The maximum size of a header, in bytes. A token in it has some KiB.
const LONGEST_HEADER: usize = 16 * 1024;
/// The maximum size of a body, in bytes. Five public keys in it need some 4 KiB. Each open connection may use almost this much memory.
const LONGEST_BODY: usize = 32 * 1024;
/// The maximum length of the problem text that a node without a slot gets in the answer, in characters.
const LONGEST_TROUBLE: usize = 400;

pub struct Server {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    bootstrap: Arc<Bootstrap>,
    connections: Arc<Connections>,
    handshakes: Arc<Handshakes>,
    limits: Limits,
}

impl Server {
    pub fn new(
        listener: TcpListener,
        keystore: Arc<Keystore>,
        bootstrap: Arc<Bootstrap>,
        limits: Limits,
    ) -> Result<Server> {
        let clients = Clients::of_current({
            let keystore = keystore.clone();
            move || keystore.keys().clients.clone()
        });
        let mut tls = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .context("setting up TLS for machines that bootstrap")?
            .with_client_cert_verifier(clients)
            .with_cert_resolver(keystore);
        // Disable session resumption, so that TLS checks the client certificate on every connection.
        tls.session_storage = Arc::new(NoServerSessionStorage {});
        tls.send_tls13_tickets = 0;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let metrics = &bootstrap.metrics;
        let (open, refused) = (metrics.connections.clone(), metrics.connections_refused.clone());
        let most = descriptors::connections(limits.connections);
        let connections = Connections::new(most, limits.connections_of_one, open, refused);
        let (acceptor, handshakes) = (TlsAcceptor::from(Arc::new(tls)), Arc::default());
        Ok(Server { listener, acceptor, bootstrap, connections, handshakes, limits })
    }

    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is true. Then drains the open connections.
    pub async fn serve(self, mut stop: watch::Receiver<bool>) {
        let mut open = JoinSet::new();
        let stopped = async { drop(stop.wait_for(|stop| *stop).await) };
        let mut stopped = std::pin::pin!(stopped);
        loop {
            tokio::select! {
                () = &mut stopped => break,
                Some(_) = open.join_next(), if !open.is_empty() => {}
                accepted = self.listener.accept() => match accepted {
                    Ok((socket, remote)) => self.accept(socket, remote, &mut open),
                    // `accept` fails, for example, if there are no free file descriptors. The end of another connection may free a
                    // descriptor.
                    Err(_) => sleep(Duration::from_millis(50)).await,
                },
            }
        }
        drop(self.listener);
        let all = async { while open.join_next().await.is_some() {} };
        if timeout(self.limits.drain_within, all).await.is_err() {
            log::warn!("the bootstrap server stops and closes {} open connections", open.len());
        }
    }

    fn accept(&self, socket: TcpStream, remote: SocketAddr, open: &mut JoinSet<()>) {
        let origin = self.bootstrap.machines.origin(remote.ip());
        let peers = self.bootstrap.load_balancing.peers_at(remote.ip());
        let Some((slot, ended)) = self.connections.open(origin, peers, Instant::now()) else { return };
        // Send small packets without delay. If setting the option fails, answers are only slower.
        let _ = socket.set_nodelay(true);
        let (acceptor, handshakes) = (self.acceptor.clone(), self.handshakes.clone());
        let (bootstrap, limits) = (self.bootstrap.clone(), self.limits);
        open.spawn(async move {
            let connection = async {
                // If a peer does not complete the TLS handshake in time, it is disconnected.
                let accepted = timeout(limits.timeout, handshakes.run(acceptor.accept(socket))).await;
                match accepted {
                    Ok(Ok(stream)) => connection(stream, remote, &bootstrap, &limits, &slot).await,
                    Ok(Err(error)) => refused_certificate(&error, remote, &bootstrap),
                    Err(_) => {}
                }
            };
            tokio::select! {
                _ = timeout(limits.connection_within, connection) => slot.remember(Instant::now()),
                // The connection limit ends this connection to make room for a new one.
                _ = ended => {}
            }
        });
    }
}

/// A bound address. The kernel refuses connections until `listen` is called.
pub struct Bound {
    socket: TcpSocket,
    address: String,
}

impl Bound {
    /// Starts to accept connections. Fails if another program already listens at this address.
    pub fn listen(self) -> Result<TcpListener> {
        let Bound { socket, address } = self;
        socket.listen(BACKLOG).with_context(|| listening(&address))
    }
}

fn listening(address: &str) -> String {
    format!("listening on {address} (server.Listen) for machines that bootstrap")
}

/// Binds an address in Go's notation: `:3988` is port 3988 of every address.
pub async fn bind(address: &str) -> Result<Bound> {
    let socket = match address.strip_prefix(':') {
        // If the kernel has no IPv6, bind IPv4 only.
        Some(port) => match bound_to(&format!("[::]:{port}")).await {
            Err(_) => bound_to(&format!("0.0.0.0:{port}")).await,
            socket => socket,
        },
        None => bound_to(address).await,
    };
    let socket = socket.with_context(|| listening(address))?;
    Ok(Bound { socket, address: address.to_owned() })
}

async fn bound_to(address: &str) -> Result<TcpSocket> {
    let no_address = || Failure::new(failure::Kind::ControlPlaneSettings, "it is not an address with a port");
    let address = lookup_host(address).await?.next().ok_or_else(no_address)?;
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Allow a restarted process to bind the port while connections of the old process linger.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

async fn connection(
    stream: TlsStream<TcpStream>,
    remote: SocketAddr,
    bootstrap: &Bootstrap,
    limits: &Limits,
    slot: &Slot,
) {
    let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first()).cloned();
    let shown = shown.as_deref();
    let service = service_fn(|request| async move {
        Ok::<_, Infallible>(answer(request, shown, remote, bootstrap, limits, slot).await)
    });
    let _hung_up = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.timeout)
        .max_buf_size(LONGEST_HEADER)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// Logs a client certificate that TLS rejects. The client has sent no request yet, so this counts as a renewal request, even if the client
/// wants a slot.
fn refused_certificate(error: &std::io::Error, remote: SocketAddr, bootstrap: &Bootstrap) {
    let Some(TlsError::InvalidCertificate(problem)) =
        error.get_ref().and_then(|cause| cause.downcast_ref::<TlsError>())
    else {
        return;
    };
    let problem = match problem {
        CertificateError::Other(problem) => problem.to_string(),
        problem => problem.to_string(),
    };
    let refusal = Refusal::not_verified("ClientCertificateRefused", format!("bad certificate: {problem}"));
    let _ = Record::new(Kind::Renewal, remote, &bootstrap.metrics).finish(Err::<(), _>(refusal));
}

/// The effect of a refusal on the origin of the connection.
fn outcome(refusal: &Refusal) -> Outcome {
    match refusal.answer {
        Answer::AlreadyRegistered | Answer::Unavailable | Answer::Busy => Outcome::InVain,
        // An honest machine may have made its token before this server started.
        _ if refusal.reason == TOKEN_OLDER_THAN_SERVER => Outcome::InVain,
        _ => Outcome::Penalized,
    }
}

async fn answer(
    request: Request<Incoming>,
    shown: Option<&[u8]>,
    remote: SocketAddr,
    bootstrap: &Bootstrap,
    limits: &Limits,
    slot: &Slot,
) -> Response<String> {
    let (allowed, kind, requested) = match request.uri().path() {
        "/bootstrap" => (Method::POST, Kind::Bootstrap, Requested::Certificates(Endpoint::Bootstrap)),
        renewal::PATH => (Method::POST, Kind::Renewal, Requested::Certificates(Endpoint::Renewal(shown))),
        message::PATH => (Method::POST, Kind::Slot, Requested::Slot(shown)),
        "/healthz" => (Method::GET, Kind::Bootstrap, Requested::Certificates(Endpoint::Bootstrap)),
        _ => return text(StatusCode::NOT_FOUND, "there are /bootstrap, /renew, /slot and /healthz"),
    };
    if request.method() != allowed {
        let problem = "it is POST /bootstrap, POST /renew, POST /slot and GET /healthz";
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, problem);
        let allow = if allowed == Method::POST { "POST" } else { "GET" };
        response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
        return response;
    }
    if allowed == Method::GET {
        // A probe tells nothing about the peer, so it neither adds nor removes a penalty.
        slot.comes_to(Outcome::InVain);
        return text(StatusCode::OK, "ok");
    }
    let record = Record::new(kind, remote, &bootstrap.metrics);
    match read_and_answer(request, requested, record, bootstrap, limits, slot).await {
        Ok(json) => {
            slot.comes_to(Outcome::Served);
            let mut response = text(StatusCode::OK, json);
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(refusal) => {
            slot.comes_to(outcome(&refusal));
            refused(refusal, requested)
        }
    }
}

#[derive(Clone, Copy)]
enum Requested<'a> {
    Certificates(Endpoint<'a>),
    /// `/slot`, for nodes that are about to restart their components. The value is the client certificate (DER), if the client presented
    /// one. The certificate names the node.
    Slot(Option<&'a [u8]>),
}

async fn read_and_answer(
    request: Request<Incoming>,
    requested: Requested<'_>,
    record: Record<'_>,
    bootstrap: &Bootstrap,
    limits: &Limits,
    slot: &Slot,
) -> Result<String, Refusal> {
    let tokens: Vec<&HeaderValue> = request.headers().get_all(AUTHORIZATION).iter().collect();
    let token = match tokens.as_slice() {
        [token] => token.to_str().unwrap_or_default().to_owned(),
        _ => String::new(),
    };
    let body = match body(request.into_body(), limits).await {
        Ok(body) => body,
        Err(refusal) => return record.finish(Err(refusal)),
    };
    slot.has_asked();
    match requested {
        Requested::Certificates(endpoint) => {
            let asked = RequestParts { token: &token, body: &body, endpoint };
            bootstrap.answer(record, &asked, limits.answer_within).await
        }
        Requested::Slot(certificate) => {
            let origin = bootstrap.machines.origin(record.remote.ip());
            bootstrap.slots.give(record, origin, certificate, &body, limits.answer_within).await
        }
    }
}

async fn body(body: Incoming, limits: &Limits) -> Result<Vec<u8>, Refusal> {
    let refused = |answer, reason, problem: &str| Refusal { answer, reason, message: problem.to_owned() };
    let too_large = || refused(Answer::TooLarge, "BodyTooLarge", "the request is too large");
    if body.size_hint().lower() > LONGEST_BODY as u64 {
        return Err(too_large());
    }
    match timeout(limits.timeout, Limited::new(body, LONGEST_BODY).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes().to_vec()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(refused(Answer::BadRequest, "BodyUnreadable", "failed to read body")),
        Err(_) => Err(refused(Answer::TooSlow, "BodyTooSlow", "the request does not come in time")),
    }
}

/// Answers a refusal as upstream does, with the details only in this server's log. There are two exceptions. A node that presented its
/// certificate gets the reason as one word. A node that waits for a slot gets the problem, so that its operator can fix it.
fn refused(refusal: Refusal, requested: Requested<'_>) -> Response<String> {
    match refusal.answer {
        Answer::NotVerified if !matches!(requested, Requested::Certificates(Endpoint::Bootstrap)) => {
            text(StatusCode::FORBIDDEN, refusal.reason)
        }
        Answer::Unavailable if matches!(requested, Requested::Slot(_)) => {
            text(StatusCode::INTERNAL_SERVER_ERROR, one_line(&refusal.message, LONGEST_TROUBLE))
        }
        Answer::NotVerified => text(StatusCode::FORBIDDEN, "failed to verify token"),
        Answer::NotProven => text(StatusCode::BAD_REQUEST, "callback failed"),
        Answer::AlreadyRegistered => text(StatusCode::CONFLICT, ""),
        Answer::BadRequest if refusal.reason == NO_NODE_CONFIG => {
            text(StatusCode::BAD_REQUEST, "failed to build node config")
        }
        Answer::BadRequest => text(StatusCode::BAD_REQUEST, refusal.message),
        Answer::TooLarge => text(StatusCode::PAYLOAD_TOO_LARGE, refusal.message),
        Answer::TooSlow => text(StatusCode::REQUEST_TIMEOUT, refusal.message),
        Answer::Unavailable => text(StatusCode::INTERNAL_SERVER_ERROR, "internal error"),
        Answer::TooOften(seconds) => {
            let mut response = text(StatusCode::TOO_MANY_REQUESTS, refusal.message);
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
            response
        }
        Answer::Busy => {
            let mut response = text(StatusCode::SERVICE_UNAVAILABLE, "too busy, come again");
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
            response
        }
    }
}

fn text(status: StatusCode, text: impl Into<String>) -> Response<String> {
    let mut response = Response::new(text.into());
    *response.status_mut() = status;
    response
}
