//! A client of what the machines serve by TLS, at an address of its own in their network.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rcgen::KeyPair;
use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, ConfigBuilder, RootCertStore, StreamOwned};

use crate::network::Network;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A client.
pub struct Client {
    address: IpAddr,
    config: Arc<ClientConfig>,
}

/// A server, by where it is and the name that its certificate has to bear.
pub struct Server {
    /// Its address and port.
    pub at: SocketAddr,
    /// Its name.
    pub name: String,
}

/// What is asked for.
pub struct Request<'a> {
    /// `POST`, `PATCH`, …
    pub method: &'a str,
    /// Its path.
    pub path: &'a str,
    /// Headers, each with the end of its line.
    pub headers: &'a str,
    /// The body.
    pub body: &'a str,
}

/// A status, and the body.
pub type Answer = (u16, String);

impl Client {
    /// One at this address of the test's, which trusts an authority and shows no certificate.
    pub fn at(address: IpAddr, authority: &str) -> Client {
        Client { address, config: Arc::new(trusting(authority).with_no_client_auth()) }
    }

    /// One that shows this certificate.
    pub fn showing(address: IpAddr, authority: &str, certificate: &str, key: &KeyPair) -> Client {
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = trusting(authority).with_client_auth_cert(vec![certificate], key).unwrap();
        Client { address, config: Arc::new(config) }
    }

    /// Asks once.
    ///
    /// # Errors
    /// There is no answer.
    pub fn ask(&self, network: &Network, server: &Server, request: &Request<'_>) -> io::Result<Answer> {
        let stream = network.connect(self.address, server.at)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let name = ServerName::try_from(server.name.clone()).unwrap();
        let connection = ClientConnection::new(self.config.clone(), name).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(connection, stream);
        let Request { method, path, headers, body } = request;
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )?;
        let mut answer = Vec::new();
        // A server may close the connection without TLS' close_notify.
        if let Err(error) = stream.read_to_end(&mut answer)
            && answer.is_empty()
        {
            return Err(error);
        }
        let answer = String::from_utf8_lossy(&answer);
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        match (status, answer.split_once("\r\n\r\n")) {
            (Some(status), Some((_, body))) => Ok((status, body.to_owned())),
            _ => Err(io::Error::other(format!("no answer of HTTP: {answer}"))),
        }
    }
}

fn trusting(authority: &str) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots)
}
