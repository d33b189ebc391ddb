//! Requests to an API server as its administrator. Each start of kubectl takes as much processor time as dozens of these requests.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::authority::Pair;

/// The time within which the API server must send each part of a response.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Media types of the bodies of requests.
pub const JSON: &str = "application/json";
pub const MERGE_PATCH: &str = "application/merge-patch+json";
pub const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";

#[derive(Debug)]
pub struct Administrator {
    config: Arc<ClientConfig>,
    port: u16,
}

impl Administrator {
    /// Makes an administrator that authenticates with this certificate and key. The API server listens on this port of the loopback
    /// interface. The CA `authority` (PEM) has signed the API server's certificate.
    pub fn new(authority: &str, Pair { certificate, private_key }: &Pair, port: u16) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.as_bytes())?)?;
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes())?];
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(private_key.as_bytes())?)?;
        Ok(Administrator { config: Arc::new(config), port })
    }

    pub fn get(&self, path: &str) -> anyhow::Result<String> {
        self.send("GET", path, JSON, "")
    }

    /// Sends a request, and returns the body of the response. `media_type` is the type of `body`. Fails unless the request succeeds.
    pub fn send(&self, method: &str, path: &str, media_type: &str, body: &str) -> anyhow::Result<String> {
        let response = self.respond(method, path, media_type, body);
        let response = response.with_context(|| format!("{method} {path}"))?;
        let (head, body) =
            response.split_once("\r\n\r\n").with_context(|| format!("{method} {path}: no response"))?;
        let status = head.split(' ').nth(1).unwrap_or_default();
        ensure!(status.starts_with('2'), "{method} {path}: {status} {body}");
        Ok(body.to_owned())
    }

    fn respond(&self, method: &str, path: &str, media_type: &str, body: &str) -> anyhow::Result<String> {
        let connection = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        connection.set_read_timeout(Some(TIMEOUT))?;
        let session = ClientConnection::new(Arc::clone(&self.config), ServerName::try_from("localhost")?)?;
        let mut stream = StreamOwned::new(session, connection);
        // A server answers an HTTP/1.0 request without chunks, and closes the connection after the response.
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nHost: localhost\r\nUser-Agent: kubectl\r\nAccept: */*\r\n\
             Content-Type: {media_type}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response)
    }
}
