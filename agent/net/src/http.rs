//! The HTTP clients of this process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kops_agent_spec::failure::{Failing, Kind};
use kops_agent_spec::terminal::one_line;
use reqwest::header::{DATE, HeaderValue, InvalidHeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Proxy, Response, StatusCode, Url};
use thiserror::Error;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

use crate::causes::innermost;
use crate::dns::SystemResolver;
use crate::proxies::{Proxies, ProxyError};
use crate::tls;

#[derive(Debug, Error)]
pub enum HttpError {
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The value of a proxy variable is not the URL of an HTTP proxy.
    #[error("cannot set up an HTTP client: {0}")]
    Proxy(#[from] ProxyError),
    #[error("cannot set up an HTTP client: {0}")]
    Client(#[from] reqwest::Error),
}

impl Failing for HttpError {
    fn kind(&self) -> Kind {
        match self {
            HttpError::Proxy(error) => error.kind(),
            HttpError::Tls(_) | HttpError::Client(_) => Kind::NoHttpClient,
        }
    }
}

/// Whether a status says that the server fails or has too many requests, so that a later request may succeed. A proxy may answer with a
/// status above 599.
pub fn is_temporary(status: StatusCode) -> bool {
    status.as_u16() >= 500 || status == StatusCode::TOO_MANY_REQUESTS
}

/// A token that cannot be the value of a request header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum UnusableToken {
    #[error("the token is empty")]
    Empty,
    /// The token has characters that a header may not contain, such as a newline.
    #[error("the token has characters that an HTTP header cannot have")]
    NoHeader,
}

/// The HTTP/2 flow control windows of a stream and of a connection, in bytes. They are large enough for 1 Gbit/s
/// across a continent, and small enough to be held in memory.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;

/// A client for any server. It uses the host's CA bundle, HTTP/2 and the proxies in the environment. kOps' boot
/// script writes `spec.networking.egressProxy` to /etc/environment, as `http_proxy`, `https_proxy` and `no_proxy`
/// (upstream: `createProxyEnv` in pkg/model/resources/nodeup.go). The boot script and nodeup's unit both read this
/// file. A download may take any time, but must not stall. The client does not follow a redirect from https to http.
///
/// [`tls::require_ca_bundle_for`] checks early whether the host has a CA bundle.
pub fn client() -> Result<Client, HttpError> {
    client_with_policy(crate::redirects())
}

/// Like [`client`], but with the redirect policy `redirects`.
pub(crate) fn client_with_policy(redirects: Policy) -> Result<Client, HttpError> {
    Ok(proxied_builder()?
        .tls_backend_preconfigured(tls_with_http2()?)
        .redirect(redirects)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .read_timeout(Duration::from_secs(30))
        .pool_idle_timeout(Duration::from_secs(30))
        .build()?)
}

/// A client for the API of a cloud, with HTTP/2. It follows no redirect, because a redirect could send the cloud's
/// token to another server.
pub fn client_without_redirects() -> Result<Client, HttpError> {
    client_with(tls_with_http2()?)
}

/// A TLS configuration that offers HTTP/2. reqwest adds no ALPN to a given TLS configuration, and would use HTTP/1.1.
fn tls_with_http2() -> Result<rustls::ClientConfig, rustls::Error> {
    let mut config = tls::client_config()?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// A client with the TLS configuration `config` and with the proxies in the environment. It follows no redirect.
pub fn client_with(config: rustls::ClientConfig) -> Result<Client, HttpError> {
    Ok(proxied_builder()?.tls_backend_preconfigured(config).redirect(Policy::none()).build()?)
}

/// A client for a cloud's own library, with HTTP/1.1. It follows no redirect. The default connect timeout is ten
/// seconds.
pub(crate) fn client_of_library(connect_timeout: Option<Duration>) -> Result<Client, HttpError> {
    let mut builder = proxied_builder()?.tls_backend_preconfigured(tls::client_config()?);
    if let Some(limit) = connect_timeout {
        builder = builder.connect_timeout(limit);
    }
    Ok(builder.redirect(Policy::none()).build()?)
}

/// A client for a server of the cluster itself, such as kops-controller. It connects to `address` with HTTP/1.1, uses
/// no proxy, and follows no redirect. A request must end within `timeout`, and its TLS handshake within
/// `connect_timeout`.
pub fn cluster_client(
    config: rustls::ClientConfig,
    name: &str,
    address: SocketAddr,
    connect_timeout: Duration,
    timeout: Duration,
) -> Result<Client, HttpError> {
    Ok(builder()
        .tls_backend_preconfigured(config)
        .http1_only()
        .no_proxy()
        .redirect(Policy::none())
        .resolve(name, address)
        .connect_timeout(connect_timeout)
        .timeout(timeout)
        .build()?)
}

/// A client for a cloud's metadata service. This service is link-local and has no TLS, so the client uses no proxy
/// and no TLS. It follows no redirect.
pub fn metadata_client() -> Result<Client, HttpError> {
    // With this configuration, reqwest does not read the CA bundle, which these requests do not need.
    let config = tls::refusing_every_server("a metadata service does not use TLS".into())?;
    Ok(builder()
        .tls_backend_preconfigured(config)
        .no_proxy()
        .redirect(Policy::none())
        .connect_timeout(Duration::from_secs(2))
        .build()?)
}

/// A client builder with the proxies in the environment.
fn proxied_builder() -> Result<ClientBuilder, ProxyError> {
    let proxies = Proxies::of_environment()?;
    Ok(builder().proxy(Proxy::custom(move |url| proxies.proxy_for(url).cloned())))
}

/// Whether a request to the URL goes through a proxy in the environment. If so, the proxy resolves the server's name.
pub fn is_proxied(url: &str) -> bool {
    let (url, proxies) = (Url::parse(url), Proxies::of_environment());
    url.is_ok_and(|url| proxies.is_ok_and(|proxies| proxies.proxy_for(&url).is_some()))
}

/// The value of a header that is not logged, and that HTTP/2 does not index.
pub fn secret(value: &str) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut value = HeaderValue::from_str(value)?;
    value.set_sensitive(true);
    Ok(value)
}

/// The `Authorization` header of a request with an access token (RFC 6750), as a [`secret`].
pub fn bearer(token: &str) -> Result<HeaderValue, UnusableToken> {
    match token {
        "" => Err(UnusableToken::Empty),
        token => secret(&format!("Bearer {token}")).map_err(|_| UnusableToken::NoHeader),
    }
}

/// The server's time, from the `Date` header of its response (RFC 9110, section 6.6.1), in seconds since 1970.
pub fn date_of(answer: &Response) -> Option<i64> {
    let date = answer.headers().get(DATE)?.to_str().ok()?;
    Some(OffsetDateTime::parse(date, &Rfc2822).ok()?.unix_timestamp())
}

/// The body of a response. `None` if the body has more than `longest` bytes.
pub async fn body(mut answer: Response, longest: usize) -> Result<Option<Vec<u8>>, reqwest::Error> {
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        if bytes.len() + chunk.len() > longest {
            return Ok(None);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(Some(bytes))
}

/// The beginning of a response's body for an error message: one line of at most `longest` characters. A server may
/// send a body of any length. Returns an empty text if the body is empty.
pub async fn said(answer: Response, longest: usize) -> String {
    // A character has four bytes at most.
    let bytes = beginning(answer, longest.saturating_mul(4), |_| false).await;
    let text = String::from_utf8_lossy(&bytes);
    one_line(&text.trim().lines().collect::<Vec<_>>().join("; "), longest)
}

/// Reads a body until `is_enough` returns true, but at most `longest` bytes. If the connection breaks earlier,
/// returns the bytes that have arrived.
pub async fn beginning(mut answer: Response, longest: usize, is_enough: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < longest
        && !is_enough(&bytes)
        && let Ok(Some(chunk)) = answer.chunk().await
    {
        bytes.extend_from_slice(&chunk[..chunk.len().min(longest - bytes.len())]);
    }
    bytes
}

/// Whether the bytes are the beginning of a web page. If the request was not for a web page, a proxy, a mirror or a
/// captive portal has answered in place of the server.
pub fn is_page(beginning: &[u8]) -> bool {
    let text = String::from_utf8_lossy(&beginning[..beginning.len().min(1024)]);
    let text = text.trim_start_matches('\u{feff}').trim_start().to_ascii_lowercase();
    ["<!doctype html", "<html", "<head", "<?xml"].iter().any(|tag| text.starts_with(tag))
}

/// The innermost cause of a failed request, without the URL. The URL may be signed, and the caller knows it.
pub fn innermost_cause(error: reqwest::Error) -> String {
    if error.is_timeout() {
        return "it takes too long".to_owned();
    }
    innermost(&error.without_url()).to_string()
}

fn builder() -> ClientBuilder {
    tls::install_provider();
    Client::builder()
        .user_agent(concat!("kops-agent/", env!("CARGO_PKG_VERSION")))
        .dns_resolver(Arc::new(SystemResolver))
        .connect_timeout(Duration::from_secs(10))
        // A `Referer` header would send the original URL to the target of a redirect. The original URL may be signed.
        .referer(false)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use kops_agent_tests::test_server::{TestServer, text};

    #[tokio::test]
    async fn both_clients_fetch_by_name() {
        let server = TestServer::start(|request| async move {
            let agent = request.headers()["user-agent"].to_str().unwrap().to_owned();
            Ok(text(200, &agent))
        })
        .await;
        let url = server.url.replace("127.0.0.1", "localhost");
        for client in [client().unwrap(), metadata_client().unwrap()] {
            let answer = client.get(&url).send().await.unwrap();
            let agent = said(answer, 100).await;
            assert!(agent.starts_with("kops-agent/"), "{agent}");
        }
    }

    #[test]
    fn debug_output_hides_the_header_of_a_token() {
        let header = bearer("hidden").unwrap();
        assert_eq!(header.to_str().unwrap(), "Bearer hidden");
        assert!(!format!("{header:?}").contains("hidden"));
        assert_eq!(bearer("two\nlines"), Err(UnusableToken::NoHeader));
        assert_eq!(bearer(""), Err(UnusableToken::Empty));
    }

    #[tokio::test]
    async fn the_time_of_a_server_is_read_from_its_date_header() {
        let server = TestServer::start(|_| async move {
            let mut answer = text(200, "");
            answer.headers_mut().insert("date", "Sun, 06 Nov 1994 08:49:37 GMT".parse().unwrap());
            Ok(answer)
        })
        .await;
        let answer = client().unwrap().head(&server.url).send().await.unwrap();
        assert_eq!(date_of(&answer), Some(784_111_777));
    }

    #[tokio::test]
    async fn the_beginning_of_an_endless_body_is_returned() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move {
            let (mut connection, _) = listener.accept().await.unwrap();
            let _ = connection.read(&mut [0; 4096]).await.unwrap();
            connection.write_all(b"HTTP/1.1 500 Oh\r\n\r\n\x1b[2J[-]etcd\r\nbad\n").await.unwrap();
            // Sends until the client closes the connection.
            while connection.write_all(&[b'x'; 1 << 16]).await.is_ok() {}
        });
        let answer = metadata_client().unwrap().get(&url).send().await.unwrap();
        let said = said(answer, 300).await;
        assert!(said.starts_with(" [2J[-]etcd; bad; x"), "{said:?}");
        assert_eq!(said.chars().count(), 300);
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn the_metadata_client_follows_no_redirect() {
        let server = TestServer::start(|_| async move {
            let mut answer = text(302, "");
            answer.headers_mut().insert("location", "http://203.0.113.1/".parse().unwrap());
            Ok(answer)
        })
        .await;
        let answer = metadata_client().unwrap().get(&server.url).send().await.unwrap();
        assert_eq!(answer.status(), 302);
    }
}
