//! An HTTP server on a free port of the loopback interface, or at an address that the test chooses. It runs until it is dropped.
//!
//! It has its own thread, so tests without async code can start it, too.

use std::convert::Infallible;
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener as Socket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::Context;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{CertificateParams, CertifiedKey, KeyPair, date_time_ymd, generate_simple_self_signed};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use crate::example_keys::Keyset;

/// A running server. Dropping it stops the server and closes its connections.
#[derive(Debug)]
pub struct LoopbackServer {
    address: SocketAddr,
    scheme: &'static str,
    connections: Arc<AtomicUsize>,
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

/// A service that responds to requests on the server's thread.
pub trait Answers:
    Service<
        Request<Incoming>,
        Response = Response<Self::Sent>,
        Error: Into<Box<dyn Error + Send + Sync>>,
        Future: Send,
    > + Send
    + 'static
{
    /// The body of the service's responses.
    type Sent: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;
}

impl<S, B> Answers for S
where
    S: Service<
            Request<Incoming>,
            Response = Response<B>,
            Error: Into<Box<dyn Error + Send + Sync>>,
            Future: Send,
        > + Send
        + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    type Sent = B;
}

/// A TLS server's certificate and key.
pub struct Identity {
    pub certificate_pem: String,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    /// The number of additional copies of the certificate in the TLS handshake.
    beside: usize,
}

impl Identity {
    /// Makes a self-signed certificate for 127.0.0.1 and localhost.
    pub fn new() -> anyhow::Result<Identity> {
        Identity::named(&["127.0.0.1", "localhost"])
    }

    /// Makes a self-signed certificate for these names.
    pub fn named(names: &[&str]) -> anyhow::Result<Identity> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names)?;
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
        Ok(Identity { certificate_pem: cert.pem(), certificate: cert.der().clone(), key, beside: 0 })
    }

    /// Makes a certificate for this DNS name, signed by a CA, as kOps does for kops-controller.
    pub fn signed_by(authority: &Keyset, name: &str) -> anyhow::Result<Identity> {
        let signing_key = KeyPair::generate()?;
        let mut params = CertificateParams::new([name.to_owned()])?;
        // The years are fixed and within the CA's validity, so that no test depends on the date.
        (params.not_before, params.not_after) = (date_time_ymd(2026, 1, 1), date_time_ymd(2045, 1, 1));
        let certificate = params.signed_by(&signing_key, &authority.issuer()?)?;
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
        let (certificate_pem, certificate) = (certificate.pem(), certificate.der().clone());
        Ok(Identity { certificate_pem, certificate, key, beside: 0 })
    }

    /// Adds this many copies of the certificate to the TLS handshake.
    #[must_use]
    pub fn showing_more(self, beside: usize) -> Identity {
        Identity { beside, ..self }
    }

    fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![self.certificate.clone(); 1 + self.beside]
    }

    /// The TLS configuration of a server that speaks only HTTP/1.1 and requests no client certificates.
    pub fn server_config(&self) -> anyhow::Result<Arc<ServerConfig>> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(self.chain(), self.key.clone_key())?;
        Ok(Arc::new(config))
    }

    /// Accepts clients without a certificate. If `of_clients` contains CAs (PEM), also accepts client certificates that one of these CAs
    /// has signed.
    fn acceptor(&self, of_clients: Option<&str>) -> anyhow::Result<TlsAcceptor> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let clients = match of_clients {
            Some(authorities) => {
                let mut roots = RootCertStore::empty();
                for certificate in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
                    roots.add(certificate?)?;
                }
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                    .allow_unauthenticated()
                    .build()?
            }
            None => WebPkiClientVerifier::no_client_auth(),
        };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(clients)
            .with_single_cert(self.chain(), self.key.clone_key())?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

impl LoopbackServer {
    /// Starts a server on a free port of the loopback interface. `service` responds to its requests.
    pub fn start<S>(name: &str, service: S) -> anyhow::Result<LoopbackServer>
    where
        S: Answers + Clone,
    {
        LoopbackServer::start_at((Ipv4Addr::LOCALHOST, 0).into(), name, service)
    }

    /// Like `start`, at this address, which need not be on the loopback interface.
    pub fn start_at<S>(address: SocketAddr, name: &str, service: S) -> anyhow::Result<LoopbackServer>
    where
        S: Answers + Clone,
    {
        let socket = Socket::bind(address).context("finding a free port")?;
        LoopbackServer::start_on(name, socket, move |_| service.clone())
    }

    /// Like `start`, on this socket. `service_for` returns the service for a client's address.
    pub fn start_on<F, S>(name: &str, socket: Socket, service_for: F) -> anyhow::Result<LoopbackServer>
    where
        F: Fn(IpAddr) -> S + Send + 'static,
        S: Answers,
    {
        LoopbackServer::run(socket, name, "http", async move |listener, connections| {
            loop {
                let (connection, client) = accept(&listener, &connections).await?;
                let service = service_for(client.ip());
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(connection), service));
            }
        })
    }

    /// Like `start`, but with TLS. Clients that support HTTP/2 use HTTP/2.
    pub fn start_tls<S>(name: &str, service: S, identity: &Identity) -> anyhow::Result<LoopbackServer>
    where
        S: Answers + Clone,
    {
        LoopbackServer::start_tls_for(name, identity, None, move |_| service.clone())
    }

    /// Like `start_tls`. `service_for` returns the service for a client's certificate (DER), or for no certificate. One of the CAs in
    /// `of_clients` (PEM) must have signed a client's certificate.
    pub fn start_tls_for<F, S>(
        name: &str,
        identity: &Identity,
        of_clients: Option<&str>,
        service_for: F,
    ) -> anyhow::Result<LoopbackServer>
    where
        F: Fn(Option<Vec<u8>>) -> S + Clone + Send + 'static,
        S: Answers,
    {
        let socket = Socket::bind((Ipv4Addr::LOCALHOST, 0)).context("finding a free port")?;
        LoopbackServer::start_tls_for_on(socket, name, identity, of_clients, service_for)
    }

    /// Like `start_tls_for`, on this socket.
    pub fn start_tls_for_on<F, S>(
        socket: Socket,
        name: &str,
        identity: &Identity,
        of_clients: Option<&str>,
        service_for: F,
    ) -> anyhow::Result<LoopbackServer>
    where
        F: Fn(Option<Vec<u8>>) -> S + Clone + Send + 'static,
        S: Answers,
    {
        let acceptor = identity.acceptor(of_clients)?;
        LoopbackServer::run(socket, name, "https", async move |listener, connections| {
            loop {
                let (connection, _) = accept(&listener, &connections).await?;
                let (acceptor, service_for) = (acceptor.clone(), service_for.clone());
                tokio::spawn(async move {
                    // A client that does not trust the certificate closes the connection and reports the error itself.
                    let Ok(connection) = acceptor.accept(connection).await else { return };
                    let shown = connection.get_ref().1.peer_certificates().and_then(|chain| chain.first());
                    let service = service_for(shown.map(|certificate| certificate.to_vec()));
                    let server = auto::Builder::new(TokioExecutor::new());
                    let _ = server.serve_connection(TokioIo::new(connection), service).await;
                });
            }
        })
    }

    fn run<F>(socket: Socket, name: &str, scheme: &'static str, serve: F) -> anyhow::Result<LoopbackServer>
    where
        F: AsyncFnOnce(TcpListener, Arc<AtomicUsize>) -> std::io::Result<()> + Send + 'static,
    {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let connections = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&connections);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            // The error is dropped, because clients see that the server has failed.
            let _ = runtime.block_on(async move {
                let listener = TcpListener::from_std(socket)?;
                tokio::select! {
                    done = serve(listener, counted) => done,
                    _ = stopped => Ok(()),
                }
            });
        })?;
        Ok(LoopbackServer { address, scheme, connections, stop: Some(stop), thread: Some(thread) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://ADDRESS:PORT`, or `https://ADDRESS:PORT` with TLS.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

async fn accept(
    listener: &TcpListener,
    connections: &AtomicUsize,
) -> std::io::Result<(tokio::net::TcpStream, SocketAddr)> {
    let (connection, client) = listener.accept().await?;
    connections.fetch_add(1, Ordering::Relaxed);
    // Real servers also set TCP_NODELAY. Without TCP_NODELAY, a body waits up to 40 ms until the client's kernel acknowledges the head.
    connection.set_nodelay(true)?;
    Ok((connection, client))
}

impl Drop for LoopbackServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread has ended, or ends because `stop` is dropped. Its result does not matter.
            let _ = thread.join();
        }
    }
}
