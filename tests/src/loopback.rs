//! An HTTP server on a free port of the loopback interface, or where a test wants it, for as long as its value lives.
//!
//! It runs on a thread of its own, so tests that know nothing of async can start one as well.

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

/// A running server; dropping it stops it and cuts its connections.
#[derive(Debug)]
pub struct LoopbackServer {
    address: SocketAddr,
    scheme: &'static str,
    connections: Arc<AtomicUsize>,
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

/// What answers requests, on a thread of its own.
pub trait Answers:
    Service<
        Request<Incoming>,
        Response = Response<Self::Sent>,
        Error: Into<Box<dyn Error + Send + Sync>>,
        Future: Send,
    > + Send
    + 'static
{
    /// The body of its answers.
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
    /// The certificate for 127.0.0.1 and localhost, signed by itself.
    pub certificate_pem: String,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    /// How many certificates are shown beside that one.
    beside: usize,
}

impl Identity {
    /// Makes one up.
    ///
    /// # Errors
    /// If no key can be made.
    pub fn new() -> anyhow::Result<Identity> {
        Identity::named(&["127.0.0.1", "localhost"])
    }

    /// Makes one up, of these names.
    ///
    /// # Errors
    /// If no key can be made.
    pub fn named(names: &[&str]) -> anyhow::Result<Identity> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names)?;
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
        Ok(Identity { certificate_pem: cert.pem(), certificate: cert.der().clone(), key, beside: 0 })
    }

    /// One of this DNS name that an authority has signed, as kOps does for kops-controller.
    ///
    /// # Errors
    /// If the authority cannot sign.
    pub fn signed_by(authority: &Keyset, name: &str) -> anyhow::Result<Identity> {
        let signing_key = KeyPair::generate()?;
        let mut params = CertificateParams::new([name.to_owned()])?;
        // As long as the authority itself, so that no test depends on the day it runs.
        (params.not_before, params.not_after) = (date_time_ymd(2026, 1, 1), date_time_ymd(2045, 1, 1));
        let certificate = params.signed_by(&signing_key, &authority.issuer()?)?;
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
        let (certificate_pem, certificate) = (certificate.pem(), certificate.der().clone());
        Ok(Identity { certificate_pem, certificate, key, beside: 0 })
    }

    /// The same, which shows so many more certificates of its own name.
    #[must_use]
    pub fn showing_more(self, beside: usize) -> Identity {
        Identity { beside, ..self }
    }

    fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![self.certificate.clone(); 1 + self.beside]
    }

    /// What a server needs that speaks HTTP/1.1 only and asks no certificates of its clients.
    ///
    /// # Errors
    /// If the key does not fit the certificate.
    pub fn server_config(&self) -> anyhow::Result<Arc<ServerConfig>> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(self.chain(), self.key.clone_key())?;
        Ok(Arc::new(config))
    }

    /// Takes certificates of clients that this authority (PEM) vouches for, where there is one, and clients without.
    fn acceptor(&self, of_clients: Option<&str>) -> anyhow::Result<TlsAcceptor> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let clients = match of_clients {
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(CertificateDer::from_pem_slice(authority.as_bytes())?)?;
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
    /// Starts to answer with `service`.
    ///
    /// # Errors
    /// If there is no free port or no thread to be had.
    pub fn start<S>(name: &str, service: S) -> anyhow::Result<LoopbackServer>
    where
        S: Answers + Clone,
    {
        LoopbackServer::start_at((Ipv4Addr::LOCALHOST, 0).into(), name, service)
    }

    /// The same at an address that need not be of the loopback interface.
    ///
    /// # Errors
    /// If the address or a thread is not to be had.
    pub fn start_at<S>(address: SocketAddr, name: &str, service: S) -> anyhow::Result<LoopbackServer>
    where
        S: Answers + Clone,
    {
        let socket = Socket::bind(address).context("finding a free port")?;
        LoopbackServer::start_on(name, socket, move |_| service.clone())
    }

    /// The same on this socket, to each client with what `service_for` its address has.
    ///
    /// # Errors
    /// If there is no thread to be had.
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

    /// The same by TLS, with HTTP/2 for clients that speak it.
    ///
    /// # Errors
    /// If there is no free port or no thread to be had.
    pub fn start_tls<S>(name: &str, service: S, identity: &Identity) -> anyhow::Result<LoopbackServer>
    where
        S: Answers + Clone,
    {
        LoopbackServer::start_tls_for(name, identity, None, move |_| service.clone())
    }

    /// The same, to each client with what `service_for` the certificate (DER) has that it has shown, if any, of this
    /// authority (PEM).
    ///
    /// # Errors
    /// If there is no free port or no thread to be had, or the authority is none.
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
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        LoopbackServer::start_tls_for_at(address, name, identity, of_clients, service_for)
    }

    /// The same at an address.
    ///
    /// # Errors
    /// If the address or a thread is not to be had, or the authority is none.
    pub fn start_tls_for_at<F, S>(
        address: SocketAddr,
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
        let socket = Socket::bind(address).context("finding a free port")?;
        LoopbackServer::run(socket, name, "https", async move |listener, connections| {
            loop {
                let (connection, _) = accept(&listener, &connections).await?;
                let (acceptor, service_for) = (acceptor.clone(), service_for.clone());
                tokio::spawn(async move {
                    // A client that does not trust us hangs up, and says so on its side.
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
            // A server that fails shows in its clients, which are what a test looks at.
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

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://ADDRESS:PORT`.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// How many connections were made to it.
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
    // As servers do: else a body waits up to 40 ms for the client's kernel to acknowledge the head before it.
    connection.set_nodelay(true)?;
    Ok((connection, client))
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
