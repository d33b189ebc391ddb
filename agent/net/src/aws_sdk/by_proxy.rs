//! Sends each request of the AWS SDK through the proxy for its URL, or straight to the server. The SDK's own client reads
//! `no_proxy` by other rules than Go, so it is given none.

use std::fmt;
use std::sync::Arc;

use aws_sdk_s3::config::{HttpClient, RuntimeComponents, SharedHttpClient};
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use reqwest::Url;

use super::SetupError;
use crate::proxies::Proxies;

/// A client of clients that send every request one way: `client` makes them.
///
/// # Errors
/// If the SDK cannot use a proxy's URL.
pub(super) fn by_proxy(
    proxies: Proxies,
    client: impl Fn(ProxyConfig) -> SharedHttpClient,
) -> Result<SharedHttpClient, SetupError> {
    let proxied = proxies.all().map(|proxy| {
        // The URL may hold a password, so it is not shown.
        let config = ProxyConfig::all(proxy.as_str())
            .map_err(|_| SetupError("HTTPS_PROXY or HTTP_PROXY is no URL of a proxy".to_owned()))?;
        Ok::<_, SetupError>((proxy.clone(), client(config)))
    });
    let proxied = proxied.collect::<Result<_, _>>()?;
    let direct = client(ProxyConfig::disabled());
    Ok(SharedHttpClient::new(Ways { proxies: Arc::new(proxies), direct, proxied }))
}

/// A client, or a connector, for each way.
struct Ways<T> {
    proxies: Arc<Proxies>,
    direct: T,
    proxied: Vec<(Url, T)>,
}

/// Without the URLs of proxies, which may hold passwords.
impl<T> fmt::Debug for Ways<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ways").field("proxied", &self.proxied.len()).finish_non_exhaustive()
    }
}

impl<T> Ways<T> {
    fn to(&self, url: &str) -> &T {
        let url = Url::parse(url).ok();
        let proxy = url.as_ref().and_then(|url| self.proxies.proxy_for(url));
        let way = proxy.and_then(|proxy| self.proxied.iter().find(|(of, _)| of == proxy));
        way.map_or(&self.direct, |(_, way)| way)
    }
}

impl HttpClient for Ways<SharedHttpClient> {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let connector = |client: &SharedHttpClient| client.http_connector(settings, components);
        SharedHttpConnector::new(Ways {
            proxies: Arc::clone(&self.proxies),
            direct: connector(&self.direct),
            proxied: self.proxied.iter().map(|(proxy, client)| (proxy.clone(), connector(client))).collect(),
        })
    }
}

impl HttpConnector for Ways<SharedHttpConnector> {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        self.to(request.uri()).call(request)
    }
}
