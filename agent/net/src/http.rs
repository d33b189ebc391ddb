//! The HTTP clients of this process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kops_agent_spec::terminal::one_line;
use reqwest::header::{DATE, HeaderValue, InvalidHeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Proxy, Response, Url};
use thiserror::Error;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

use crate::causes::innermost;
use crate::dns::SystemResolver;
use crate::proxies::{Proxies, ProxyError};
use crate::tls;

/// No HTTP client could be made.
#[derive(Debug, Error)]
pub enum HttpError {
    /// TLS cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// A proxy variable names no proxy.
    #[error("cannot set up an HTTP client: {0}")]
    Proxy(#[from] ProxyError),
    /// The client cannot be set up.
    #[error("cannot set up an HTTP client: {0}")]
    Client(#[from] reqwest::Error),
}

/// A token that no request can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum UnusableToken {
    /// It has no characters.
    #[error("the token is empty")]
    Empty,
    /// It has characters that are none of a header, such as the end of a line.
    #[error("the token has characters that no header may have")]
    NoHeader,
}

/// How much of an HTTP/2 answer may be on its way before it is read; and of all answers of a connection. Enough to
/// fill a gigabit over a continent, and little enough to be held in memory.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;

/// A client for the world: the host's CA bundle, HTTP/2, and the proxies that the environment names: kOps' boot
/// script writes `spec.networking.egressProxy` to /etc/environment, as `http_proxy`, `https_proxy` and `no_proxy`
/// (upstream: `createProxyEnv` in pkg/model/resources/nodeup.go), which it loads itself and nodeup's unit reads.
/// A download may take its time, but must not stall; a redirect from https to http is not followed.
///
/// [`tls::require_ca_bundle_for`] tells early whether the CA bundle is there.
///
/// # Errors
/// If TLS or the client cannot be set up.
pub fn client() -> Result<Client, HttpError> {
    client_for_the_world(crate::redirects())
}

/// What [`client`] is, following these redirects.
pub(crate) fn client_for_the_world(redirects: Policy) -> Result<Client, HttpError> {
    Ok(proxied_builder()?
        .tls_backend_preconfigured(tls_with_http2()?)
        .redirect(redirects)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .read_timeout(Duration::from_secs(30))
        .pool_idle_timeout(Duration::from_secs(30))
        .build()?)
}

/// A client for the API of a cloud, to which alone its tokens may go: with HTTP/2, and never redirected.
///
/// # Errors
/// If TLS or the client cannot be set up.
pub fn client_without_redirects() -> Result<Client, HttpError> {
    client_with(tls_with_http2()?)
}

/// With a TLS configuration of our own, reqwest offers no ALPN, and speaks HTTP/1.1.
fn tls_with_http2() -> Result<rustls::ClientConfig, rustls::Error> {
    let mut config = tls::client_config()?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// A client for one server of the world that asks for a client certificate: with this configuration of TLS, and what else
/// [`client`] has.
///
/// # Errors
/// If the client cannot be set up.
pub fn client_with(config: rustls::ClientConfig) -> Result<Client, HttpError> {
    Ok(proxied_builder()?.tls_backend_preconfigured(config).redirect(Policy::none()).build()?)
}

/// A client for the requests of a cloud's own library: never redirected, in HTTP/1.1. Connecting may take ten seconds, unless it is told
/// otherwise.
pub(crate) fn client_of_library(connect_timeout: Option<Duration>) -> Result<Client, HttpError> {
    let mut builder = proxied_builder()?.tls_backend_preconfigured(tls::client_config()?);
    if let Some(limit) = connect_timeout {
        builder = builder.connect_timeout(limit);
    }
    Ok(builder.redirect(Policy::none()).build()?)
}

/// A client for a server of the cluster itself, as kops-controller's are: at this address, never through a proxy,
/// in HTTP/1.1, and never redirected. Each request has to end within `timeout`, and its TLS handshake within `connect_timeout`.
///
/// # Errors
/// If the client cannot be set up.
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

/// A client for a cloud's metadata service: link-local, so never through a proxy, without TLS, and
/// never redirected.
///
/// # Errors
/// If the client cannot be set up.
pub fn metadata_client() -> Result<Client, HttpError> {
    // No request of it uses TLS; this keeps reqwest from reading the CA bundle.
    let config = tls::refusing_every_server("a metadata service is not spoken to in TLS".into())?;
    Ok(builder()
        .tls_backend_preconfigured(config)
        .no_proxy()
        .redirect(Policy::none())
        .connect_timeout(Duration::from_secs(2))
        .build()?)
}

/// What goes to the world, through the proxies that the environment names.
fn proxied_builder() -> Result<ClientBuilder, ProxyError> {
    let proxies = Proxies::of_environment()?;
    Ok(builder().proxy(Proxy::custom(move |url| proxies.proxy_for(url).cloned())))
}

/// Whether a request for this URL goes through a proxy that the environment names: that one resolves the server's name then.
pub fn is_proxied(url: &str) -> bool {
    let (url, proxies) = (Url::parse(url), Proxies::of_environment());
    url.is_ok_and(|url| proxies.is_ok_and(|proxies| proxies.proxy_for(&url).is_some()))
}

/// A header's value that logs of a request do not show, and that HTTP/2 does not index.
///
/// # Errors
/// If it has characters that no header may have.
pub fn secret(value: &str) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut value = HeaderValue::from_str(value)?;
    value.set_sensitive(true);
    Ok(value)
}

/// What a request shows as its `Authorization` with an access token (RFC 6750), as a [`secret`].
///
/// # Errors
/// If it is empty, or has characters that no header may have.
pub fn bearer(token: &str) -> Result<HeaderValue, UnusableToken> {
    match token {
        "" => Err(UnusableToken::Empty),
        token => secret(&format!("Bearer {token}")).map_err(|_| UnusableToken::NoHeader),
    }
}

/// When a server says that it is, by the `Date` of its answer (RFC 9110, section 6.6.1): in seconds since 1970.
pub fn date_of(answer: &Response) -> Option<i64> {
    let date = answer.headers().get(DATE)?.to_str().ok()?;
    Some(OffsetDateTime::parse(date, &Rfc2822).ok()?.unix_timestamp())
}

/// The body of an answer; `None` where it has more bytes than that.
///
/// # Errors
/// If it does not come to its end.
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

/// What the body of an answer says at its beginning, as part of one line, of so many characters at most, for an error:
/// a server may say any amount, and has given its reason with the status where it says nothing.
pub async fn said(answer: Response, longest: usize) -> String {
    // A character has four bytes at most.
    let bytes = beginning(answer, longest.saturating_mul(4), |_| false).await;
    let text = String::from_utf8_lossy(&bytes);
    one_line(&text.trim().lines().collect::<Vec<_>>().join("; "), longest)
}

/// As much of a body as is enough, and no more bytes than that; as much as came, where it does not come to its end.
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

/// Whether bytes begin as a web page does. Where something else was asked for, a proxy, a mirror or a captive portal answers in the
/// place of the server.
pub fn is_page(beginning: &[u8]) -> bool {
    let text = String::from_utf8_lossy(&beginning[..beginning.len().min(1024)]);
    let text = text.trim_start_matches('\u{feff}').trim_start().to_ascii_lowercase();
    ["<!doctype html", "<html", "<head", "<?xml"].iter().any(|tag| text.starts_with(tag))
}

/// What a failed request failed of in the end, without the URL: the caller knows it better, and it may be signed.
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
        // A redirect's target has no business with the signature in the URL that led there.
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
            let answer = client.get(&url).send().await.unwrap().text().await.unwrap();
            assert!(answer.starts_with("kops-agent/"), "{answer}");
        }
    }

    #[test]
    fn a_header_of_a_token_is_not_shown() {
        let header = bearer("hidden").unwrap();
        assert_eq!(header.to_str().unwrap(), "Bearer hidden");
        assert!(!format!("{header:?}").contains("hidden"));
        assert_eq!(bearer("two\nlines"), Err(UnusableToken::NoHeader));
        assert_eq!(bearer(""), Err(UnusableToken::Empty));
    }

    #[tokio::test]
    async fn the_time_of_a_server_is_read_as_http_writes_it() {
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
    async fn of_what_never_ends_the_beginning_is_told() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move {
            let (mut connection, _) = listener.accept().await.unwrap();
            let _ = connection.read(&mut [0; 4096]).await.unwrap();
            connection.write_all(b"HTTP/1.1 500 Oh\r\n\r\n\x1b[2J[-]etcd\r\nbad\n").await.unwrap();
            // Until the client has heard enough.
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
