//! The behavior of liars on a connection: the bytes that they send, by TLS or instead of it, and the time that they take.

use std::sync::Arc;
use std::time::Duration;

use kops_agent_tests::authority::Authority;
use rcgen::CertificateParams;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConnection, Resumption, WantsClientCert};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, cipher_suite};
use rustls::crypto::cipher::{OutboundChunks, OutboundPlainMessage};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ConfigBuilder, ConnectionTrafficSecrets, ContentType, DigitallySignedStruct, Error,
    ProtocolVersion, SignatureScheme, SupportedCipherSuite,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

/// A timeout that is longer than the server's limit for any connection.
const NEVER_AFTER: Duration = Duration::from_secs(60);
/// The pause between two bytes of a slow client.
const SLOW: Duration = Duration::from_secs(1);
/// The number of handshakes that a client requests within one connection.
const RENEGOTIATIONS: u64 = 4;
const RECORD_HEADER: usize = 5;
/// The number of CAs with equal names in a client's certificate chain.
const DECOYS: usize = 20;

/// The behavior of a liar on a connection.
pub enum Manner {
    /// Sends these bytes instead of TLS, and then nothing.
    Plain(Vec<u8>),
    /// Sends this many bytes of a handshake, and then these bytes.
    BrokenHandshake(usize, Vec<u8>),
    /// Requests further handshakes within a TLS 1.2 connection.
    Renegotiation,
    /// Sends a certificate, and many CAs with equal names that could have signed it.
    Chain,
    /// Speaks only HTTP/2.
    OnlyHttp2,
    /// Sends these bytes over TLS, and continues as [`Then`] says.
    Request(Vec<u8>, Then),
}

/// The data that a liar sends after the first part of a request.
pub enum Then {
    Silence,
    /// Sends these bytes, one byte each second.
    Slowly(Vec<u8>),
    /// Sends these bytes repeatedly.
    Forever(Vec<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    HungUp,
    /// The server sends a TLS alert.
    Alert,
    Handshake,
    Status(u16),
    /// The server neither sends anything nor closes the connection.
    Never,
}

/// The TLS configurations of liars, which trust every server.
pub struct Dialects {
    name: ServerName<'static>,
    usual: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
    chain: Arc<ClientConfig>,
    /// TLS 1.2 with one cipher suite. The liar can extract the keys of the connection.
    old: Arc<ClientConfig>,
}

impl Dialects {
    /// The TLS configurations for a server with this name.
    pub fn new(name: ServerName<'static>) -> Dialects {
        let usual = config(aws_lc_rs::default_provider());
        let mut http2 = usual.clone();
        http2.alpn_protocols = vec![b"h2".to_vec()];
        let suites = vec![cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256];
        let mut old = config(CryptoProvider { cipher_suites: suites, ..aws_lc_rs::default_provider() });
        old.enable_secret_extraction = true;
        let [usual, http2, chain, old] = [usual, http2, showing_a_chain(), old].map(Arc::new);
        Dialects { name, usual, http2, chain, old }
    }

    /// Tells a lie on a connection, and waits until the connection ends or `NEVER_AFTER` has passed. Returns the server's answer.
    pub async fn lie(&self, stream: TcpStream, manner: Manner) -> Answer {
        let lying = async {
            match manner {
                Manner::Plain(bytes) => said(stream, &bytes, Then::Silence).await,
                Manner::BrokenHandshake(count, then) => {
                    let mut bytes = self.hello();
                    bytes.truncate(count);
                    bytes.extend(then);
                    said(stream, &bytes, Then::Silence).await
                }
                Manner::Chain => {
                    match TlsConnector::from(self.chain.clone()).connect(self.name.clone(), stream).await {
                        Err(_) => Answer::HungUp,
                        Ok(stream) => {
                            said(stream, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", Then::Silence).await
                        }
                    }
                }
                Manner::Renegotiation => self.renegotiate(stream).await.unwrap_or(Answer::HungUp),
                Manner::OnlyHttp2 => {
                    match TlsConnector::from(self.http2.clone()).connect(self.name.clone(), stream).await {
                        Err(error) if error.to_string().contains("alert") => Answer::Alert,
                        Err(_) => Answer::HungUp,
                        Ok(stream) => said(stream, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Then::Silence).await,
                    }
                }
                Manner::Request(bytes, then) => {
                    match TlsConnector::from(self.usual.clone()).connect(self.name.clone(), stream).await {
                        Err(_) => Answer::HungUp,
                        Ok(stream) => said(stream, &bytes, then).await,
                    }
                }
            }
        };
        timeout(NEVER_AFTER, lying).await.unwrap_or(Answer::Never)
    }

    /// The first record of a TLS handshake.
    fn hello(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let connection = ClientConnection::new(self.old.clone(), self.name.clone());
        connection.unwrap().write_tls(&mut bytes).unwrap();
        bytes
    }

    /// Makes a TLS connection, and begins further handshakes within it. `None` if the first handshake fails.
    async fn renegotiate(&self, stream: TcpStream) -> Option<Answer> {
        let stream = TlsConnector::from(self.old.clone()).connect(self.name.clone(), stream).await.ok()?;
        let (mut stream, connection) = stream.into_inner();
        let (sequence, secrets) = connection.dangerous_extract_secrets().ok()?.tx;
        let ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } = secrets else { return None };
        let SupportedCipherSuite::Tls12(suite) = cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
        else {
            return None;
        };
        let mut encrypter = suite.aead_alg.encrypter(key, iv.as_ref(), &[]);
        let hello = self.hello();
        for number in 0..RENEGOTIATIONS {
            let message = OutboundPlainMessage {
                typ: ContentType::Handshake,
                version: ProtocolVersion::TLSv1_2,
                payload: OutboundChunks::Single(&hello[RECORD_HEADER..]),
            };
            let record = encrypter.encrypt(message, sequence + number).ok()?.encode();
            // An error is ignored, because the server may already have closed the connection.
            let _ = stream.write_all(&record).await;
        }
        let mut answer = Answer::HungUp;
        let mut header = [0; RECORD_HEADER];
        while stream.read_exact(&mut header).await.is_ok() {
            // In TLS 1.2, the type of a record is not encrypted. 21 is an alert, and 22 is a handshake record.
            answer = match header[0] {
                21 => answer.max(Answer::Alert),
                22 => Answer::Handshake,
                _ => answer,
            };
            let mut rest = vec![0; usize::from(u16::from_be_bytes([header[3], header[4]]))];
            stream.read_exact(&mut rest).await.ok()?;
        }
        Some(answer)
    }
}

/// Sends these bytes. At the same time, reads until the server has closed the connection.
async fn said<S: AsyncRead + AsyncWrite>(stream: S, bytes: &[u8], then: Then) -> Answer {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut heard = Vec::new();
    let saying = async {
        let mut result = writer.write_all(bytes).await;
        // TLS may have buffered the bytes, so they are flushed.
        result = result.and(writer.flush().await);
        match then {
            Then::Silence => {}
            Then::Slowly(bytes) => {
                for byte in bytes {
                    sleep(SLOW).await;
                    let sent = writer.write_all(&[byte]).await;
                    result = result.and(sent).and(writer.flush().await);
                }
            }
            Then::Forever(bytes) => while writer.write_all(&bytes).await.is_ok() {},
        }
        // A failed write is ignored, because the read below ends this function when the server closes the connection.
        drop(result);
        std::future::pending::<()>().await
    };
    let mut limited = reader.take(1 << 16);
    tokio::select! {
        () = saying => {}
        _ = limited.read_to_end(&mut heard) => {}
    }
    let status = heard.strip_prefix(b"HTTP/1.1 ").and_then(|rest| std::str::from_utf8(rest.get(..3)?).ok());
    match status.and_then(|status| status.parse().ok()) {
        Some(status) => Answer::Status(status),
        None if heard.first() == Some(&21) => Answer::Alert,
        None => Answer::HungUp,
    }
}

fn config(provider: CryptoProvider) -> ClientConfig {
    paying_in_full(builder(provider).with_no_client_auth())
}

/// Sends a certificate and CAs that could have signed it. All CAs have the name of the cluster's CA, so webpki tries them in every
/// order.
fn showing_a_chain() -> ClientConfig {
    let authorities: Vec<Authority> =
        (0..=DECOYS).map(|_| Authority::new("kubernetes-ca").unwrap()).collect();
    let pair = authorities[0].issue(&CertificateParams::default()).unwrap();
    let pems =
        std::iter::once(&pair.certificate).chain(authorities[1..].iter().map(|authority| &authority.pem));
    let chain = pems.map(|pem| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).collect();
    let key = PrivateKeyDer::from_pem_slice(pair.private_key.as_bytes()).unwrap();
    let provider = aws_lc_rs::default_provider();
    paying_in_full(builder(provider).with_client_auth_cert(chain, key).unwrap())
}

fn builder(provider: CryptoProvider) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let provider = Arc::new(provider);
    let any_server = Arc::new(AnyServer(provider.clone()));
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    builder.unwrap().dangerous().with_custom_certificate_verifier(any_server)
}

/// Disables resumption, so that each handshake is a full handshake.
fn paying_in_full(mut config: ClientConfig) -> ClientConfig {
    config.resumption = Resumption::disabled();
    config
}

/// Accepts every server certificate, because verification would cost the liar time.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
