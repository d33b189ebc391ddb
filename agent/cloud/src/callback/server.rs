//! The machine's side of the call-back: listens while the machine waits for kops-controller, and proves only to kops-controller
//! that it made the request.
//!
//! The server answers only the latest challenge, and only once. Its port is open to all peers that can reach the machine, such as its own
//! pods. kops-controller waits only seconds for an answer. So a new connection always gets in. If there are too many connections, the
//! server closes a connection that has not shown kops-controller's certificate ([`Open`]). Each connection has a deadline.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Empty, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kops_agent_cluster::bootstrap::challenge::{
    CONSTANT, Challenge, LONGEST_MESSAGE, METHOD, answer, caller_name, encode_answer, server_name,
};
use kops_agent_cluster::bootstrap::message::{Bytes as Base64, ChallengeRequest};
use kops_agent_pki::{CertificateError, common_name_and_validity, self_signed};
use kops_agent_spec::failure::{Failing, Kind};
use parking_lot::Mutex;
use rustls::ServerConfig;
use thiserror::Error;
use time::OffsetDateTime;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::grpc;
use super::open::{Open, Place};
use kops_agent_net::random::{self, NoRandomness};
use kops_agent_net::retry::Backoff;
use kops_agent_net::tls;

/// The maximum number of connections. At this limit, a new connection replaces the oldest unverified connection of the address that has the
/// most unverified connections. To keep kops-controller out, an attacker must open this many connections within the time of one handshake.
pub(crate) const CONNECTIONS: usize = 256;
/// The timeout of a TLS handshake, which takes some round trips. kops-agent's controller also waits 4 seconds, for the whole call-back.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(4);
/// The timeout of kops-controller's call after the handshake. Upstream's kops-controller also waits 15 seconds for the call-back, and a
/// machine waits 15 seconds for its bootstrap response (`pkg/kopscontrollerclient/client.go`).
const CALL_WITHIN: Duration = Duration::from_secs(15);
/// How long a connection stays open after the server rejects the name in the caller's certificate, so that the caller can read the reason.
const REFUSED_WITHIN: Duration = Duration::from_secs(2);
const SECRET: usize = 16;
/// How long the server waits for the port. A forked child process has a copy of the previous listener until it calls exec.
/// Until then, the port stays in use although the listener is closed.
const PORT_FREE_WITHIN: Duration = Duration::from_secs(1);
const PORT_TRIED_EVERY: Duration = Duration::from_millis(10);

/// The timeouts of a connection: for the TLS handshake, for the call of kops-controller, and for a caller that the server rejects.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadlines {
    pub(super) handshake: Duration,
    pub(super) call: Duration,
    pub(super) refused: Duration,
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines { handshake: HANDSHAKE_WITHIN, call: CALL_WITHIN, refused: REFUSED_WITHIN }
    }
}

#[derive(Debug, Error)]
pub enum CallbackServerError {
    /// The address is not available, for example because the port is in use.
    #[error("cannot listen on {address} for kops-controller's call-back: {cause}")]
    Listen { address: SocketAddr, cause: std::io::Error },
    #[error("cannot make a certificate for kops-controller's call-back: {0}")]
    Certificate(#[from] CertificateError),
    #[error("cannot set up TLS for kops-controller's call-back: {0}")]
    Tls(#[from] rustls::Error),
    #[error("cannot make a secret for kops-controller's call-back: {0}")]
    Random(#[from] NoRandomness),
}

impl Failing for CallbackServerError {
    fn kind(&self) -> Kind {
        match self {
            CallbackServerError::Random(error) => error.kind(),
            CallbackServerError::Certificate(_) => Kind::KeyUnusable,
            CallbackServerError::Listen { .. } | CallbackServerError::Tls(_) => Kind::Callback,
        }
    }
}

/// The form of the proof in answers to challenges. The right form depends on the kOps release of kops-controller, which is not known in
/// advance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Form {
    #[default]
    OfSecret,
    /// [`CONSTANT`], which is not a secret. Callers other than kops-controller get no proof.
    Constant,
}

/// Listens for call-backs. Dropping this value stops the server, but not immediately.
#[derive(Debug)]
pub struct CallbackServer {
    certificate: String,
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    serving: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct State {
    pending: Option<PendingChallenge>,
    form: Form,
    /// Whether the server has answered a challenge in the current form.
    is_answered: bool,
}

/// The challenge of the current request. The server answers no other challenge.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PendingChallenge {
    id: String,
    secret: Base64,
}

impl CallbackServer {
    /// Listens for the kops-controller of a cluster. One of `authorities` (PEM) must have signed the certificate of kops-controller.
    pub async fn start(
        cluster: &str,
        authorities: &str,
        address: SocketAddr,
    ) -> Result<CallbackServer, CallbackServerError> {
        CallbackServer::start_with(Deadlines::default(), cluster, authorities, address).await
    }

    pub(super) async fn start_with(
        deadlines: Deadlines,
        cluster: &str,
        authorities: &str,
        address: SocketAddr,
    ) -> Result<CallbackServer, CallbackServerError> {
        let pair = self_signed(&server_name(cluster), OffsetDateTime::now_utc())?;
        let mut config =
            tls::server_config_for_clients_of(authorities, &pair.certificate, &pair.private_key)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        let failed = |cause| CallbackServerError::Listen { address, cause };
        let listener = listen(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let state = Arc::<Mutex<State>>::default();
        let caller = Arc::from(caller_name(cluster));
        let serving = tokio::spawn(serve(deadlines, listener, config, caller, state.clone()));
        Ok(CallbackServer { certificate: pair.certificate, address, state, serving })
    }

    /// Stops listening, and returns after the address is free for the next server.
    pub async fn stop(mut self) {
        self.serving.abort();
        let _ = (&mut self.serving).await;
    }

    /// Creates a challenge for the next request. Earlier challenges get no answer from now on.
    pub fn challenge(&self) -> Result<ChallengeRequest, CallbackServerError> {
        let (id, secret) = (random::name()?, Base64(random::bytes::<SECRET>()?.to_vec()));
        self.state.lock().pending = Some(PendingChallenge { id: id.clone(), secret: secret.clone() });
        Ok(ChallengeRequest {
            endpoint: self.address.to_string(),
            ca: Base64(self.certificate.clone().into_bytes()),
            challenge_id: id,
            challenge_secret: secret,
        })
    }

    /// Called after every server was asked, if no server accepted the request and at least one call-back failed. If this machine has
    /// answered a challenge with the current form of proof, its next proofs have the other form, because only [`CONSTANT`] is
    /// accepted by kops-controller of kOps 1.34.0 and 1.34.1.
    pub fn refused(&self) {
        let mut state = self.state.lock();
        if std::mem::take(&mut state.is_answered) {
            state.form = match state.form {
                Form::OfSecret => Form::Constant,
                Form::Constant => Form::OfSecret,
            };
        }
    }
}

impl Drop for CallbackServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Binds the address. If the port is in use, retries for up to `PORT_FREE_WITHIN`.
async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    // An attempt that fails shortly before the end of `PORT_FREE_WITHIN` must still get one retry. `Backoff` allows only pauses that end
    // before its deadline. Therefore the deadline is `PORT_FREE_WITHIN` plus one pause.
    let mut backoff = Backoff::new(PORT_FREE_WITHIN + PORT_TRIED_EVERY, || PORT_TRIED_EVERY);
    loop {
        let bound = TcpListener::bind(address).await;
        let is_in_use = matches!(&bound, Err(error) if error.kind() == ErrorKind::AddrInUse);
        match backoff.next_pause().filter(|_| is_in_use) {
            Some(pause) => sleep(pause).await,
            None => return bound,
        }
    }
}

async fn serve(
    deadlines: Deadlines,
    listener: TcpListener,
    config: ServerConfig,
    caller: Arc<str>,
    state: Arc<Mutex<State>>,
) {
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let open = Open::at_most(CONNECTIONS);
    loop {
        let Ok((socket, remote)) = listener.accept().await else {
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Some((place, ended)) = open.enter(remote.ip()) else { continue };
        // With TCP_NODELAY, the second part of an answer does not wait for the acknowledgement of the first part. A failure to set
        // TCP_NODELAY is harmless.
        let _ = socket.set_nodelay(true);
        let (acceptor, caller, state) = (acceptor.clone(), caller.clone(), state.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = connection(deadlines, socket, remote, &acceptor, &caller, state, &place) => {}
                // A newer connection took this connection's place.
                _ = ended => log::debug!("{remote} was silent on the call-back port: a newer connection replaces it"),
            }
        });
    }
}

async fn connection(
    deadlines: Deadlines,
    socket: TcpStream,
    remote: SocketAddr,
    acceptor: &TlsAcceptor,
    caller: &str,
    state: Arc<Mutex<State>>,
    place: &Place,
) {
    let stream = match timeout(deadlines.handshake, acceptor.accept(socket)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            log::debug!("the TLS handshake of {remote} on the call-back port failed: {error}");
            return;
        }
        Err(_) => {
            log::debug!("{remote} did not finish the TLS handshake on the call-back port in time");
            return;
        }
    };
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let name = certificate.and_then(|der| common_name_and_validity(der, OffsetDateTime::now_utc()));
    let is_kops_controller = name.is_some_and(|(name, _)| name == caller);
    if is_kops_controller {
        place.mark_as_kops_controllers();
    }
    let service = service_fn(move |request| {
        let state = state.clone();
        async move {
            Ok::<_, Infallible>(match is_kops_controller {
                true => called(request, &state).await,
                false => refused(Code::Unauthenticated, "the caller is not this cluster's kops-controller"),
            })
        }
    });
    let within = if is_kops_controller { deadlines.call } else { deadlines.refused };
    let call = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_header_list_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), service);
    if timeout(within, call).await.is_err() {
        log::debug!("{remote} did not finish its call-back in time");
    }
}

async fn called(request: Request<Incoming>, state: &Mutex<State>) -> Response<Body> {
    if request.uri().path() != METHOD {
        return refused(Code::Unimplemented, "this call does not exist");
    }
    let Ok(body) = Limited::new(request.into_body(), LONGEST_MESSAGE).collect().await else {
        return refused(Code::InvalidArgument, "the message is cut off or too long");
    };
    let challenge = match Challenge::decode(&body.to_bytes()) {
        Ok(challenge) if !challenge.id.is_empty() => challenge,
        Ok(_) => return refused(Code::InvalidArgument, "the challenge has no id"),
        Err(error) => return refused(Code::InvalidArgument, &error.to_string()),
    };
    let answered = {
        let mut state = state.lock();
        match (state.pending.take_if(|pending| pending.id == challenge.id), state.form) {
            (Some(pending), form) => {
                state.is_answered = true;
                match form {
                    Form::OfSecret => answer(&pending.secret.0, &challenge.random),
                    Form::Constant => CONSTANT,
                }
            }
            (None, _) => return refused(Code::NotFound, "the challenge is unknown, or was already answered"),
        }
    };
    log::debug!("kops-controller has called back");
    let trailers = HeaderMap::from_iter([(
        hyper::header::HeaderName::from_static(grpc::STATUS),
        HeaderValue::from_static(grpc::OK),
    )]);
    let message = Full::new(Bytes::from(encode_answer(&answered)));
    response(message.with_trailers(std::future::ready(Some(Ok(trailers)))).boxed())
}

type Body = BoxBody<Bytes, Infallible>;

/// Status codes of gRPC (gRPC, "Status codes").
#[derive(Clone, Copy)]
enum Code {
    InvalidArgument = 3,
    NotFound = 5,
    Unimplemented = 12,
    Unauthenticated = 16,
}

fn refused(code: Code, message: &str) -> Response<Body> {
    log::debug!("a call-back is rejected: {message}");
    let mut response = response(Empty::new().boxed());
    response.headers_mut().insert(grpc::STATUS, HeaderValue::from(code as u16));
    if let Ok(message) = HeaderValue::from_str(message) {
        response.headers_mut().insert(grpc::MESSAGE, message);
    }
    response
}

fn response(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(grpc::CONTENT_TYPE));
    response
}
