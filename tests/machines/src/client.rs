//! An HTTPS client for the servers of test machines. It connects from its own address in the machines' network.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use http_body_util::BodyExt as _;
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderValue};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use rcgen::KeyPair;
use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};
use tokio::runtime;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::network::Network;

/// The timeout for TLS handshake, request and response together.
const TIMEOUT: Duration = Duration::from_secs(30);

pub struct Client {
    address: IpAddr,
    config: Arc<ClientConfig>,
}

/// A server's address, and the name that the server's certificate must have.
pub struct Server {
    pub at: SocketAddr,
    pub name: String,
}

pub type Answer = (StatusCode, String);

impl Client {
    /// A client at `address`, which is one of the test's own addresses. The client trusts the CA `authority` and has no
    /// certificate.
    pub fn at(address: IpAddr, authority: &str) -> Client {
        Client { address, config: Arc::new(trusting(authority).with_no_client_auth()) }
    }

    /// Like `at`, but the client authenticates with this certificate.
    pub fn showing(address: IpAddr, authority: &str, certificate: &str, key: &KeyPair) -> Client {
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = trusting(authority).with_client_auth_cert(vec![certificate], key).unwrap();
        Client { address, config: Arc::new(config) }
    }

    /// Sends one request, without retries. Fails if the response takes longer than 30 s.
    pub fn ask(
        &self,
        network: &Network,
        server: &Server,
        mut request: Request<String>,
    ) -> anyhow::Result<Answer> {
        request.headers_mut().insert(HOST, HeaderValue::try_from(&server.name)?);
        let stream = network.connect(self.address, server.at)?;
        stream.set_nonblocking(true)?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            timeout(TIMEOUT, self.exchange(stream, server, request)).await.context("no answer in time")?
        })
    }

    async fn exchange(
        &self,
        stream: TcpStream,
        server: &Server,
        request: Request<String>,
    ) -> anyhow::Result<Answer> {
        let name = ServerName::try_from(server.name.clone())?;
        let stream = tokio::net::TcpStream::from_std(stream)?;
        let stream = TlsConnector::from(self.config.clone()).connect(name, stream).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // The task of the connection ends with the runtime.
        tokio::spawn(connection);
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }
}

fn trusting(authority: &str) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots)
}
