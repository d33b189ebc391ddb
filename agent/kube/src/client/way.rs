//! Connections to the API server: direct, or through a proxy (`CONNECT`, RFC 9110, section 9.3.6).

use std::pin::Pin;
use std::task::{Context as Wakers, Poll};

use anyhow::{Context as _, Result};
use hyper::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::rt::TokioIo;
use kops_agent_net::proxies::ProxyServer;
use kops_agent_net::tls;
use tokio::net::TcpStream;
use tower::{BoxError, Service};

/// Opens connections to one server, through a proxy or directly.
#[derive(Clone)]
pub(super) enum Way {
    Straight(HttpConnector),
    Through(Box<Tunnel<HttpsConnector<HttpConnector>>>),
}

impl Way {
    /// Connects through the proxy. Without a proxy, connects directly.
    pub(super) fn by(proxy: Option<&ProxyServer>) -> Result<Way> {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        let Some(proxy) = proxy else { return Ok(Way::Straight(connector)) };
        let url: Uri = proxy.url.parse().with_context(|| format!("using the proxy {}", proxy.url))?;
        let to_proxy = HttpsConnectorBuilder::new().with_tls_config(tls::client_config()?).https_or_http();
        let tunnel = Tunnel::new(url, to_proxy.enable_http1().wrap_connector(connector));
        Ok(Way::Through(Box::new(match &proxy.authorization {
            Some(login) => tunnel.with_auth(login.clone()),
            None => tunnel,
        })))
    }
}

impl Service<Uri> for Way {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, wakers: &mut Wakers<'_>) -> Poll<Result<(), BoxError>> {
        match self {
            Way::Straight(connector) => connector.poll_ready(wakers).map_err(BoxError::from),
            Way::Through(tunnel) => tunnel.poll_ready(wakers).map_err(BoxError::from),
        }
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        match self {
            Way::Straight(connector) => {
                let connecting = connector.call(server);
                Box::pin(async move { Ok(MaybeHttpsStream::Http(connecting.await?)) })
            }
            Way::Through(tunnel) => {
                let connecting = tunnel.call(server);
                Box::pin(async move { Ok(connecting.await?) })
            }
        }
    }
}
