//! Sets up the AWS SDK: its HTTP client, and where it finds server and credentials.

use std::time::Duration;

use aws_config::{BehaviorVersion, SdkConfig};
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{Builder, Config, Credentials, Region, SharedCredentialsProvider, SharedHttpClient};
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use aws_smithy_http_client::{Builder as HttpClientBuilder, Connector};

use super::super::error::StoreError;
use super::settings::S3Settings;
use crate::dns::SystemResolver;
use crate::tls::CaBundle;

/// What a client for any region is made from, and who will sign its requests.
///
/// # Errors
/// If the server is to be reached by TLS, but this host has no CA bundle, or a proxy is no URL.
pub(super) async fn config(
    settings: S3Settings,
) -> Result<(Config, Option<SharedCredentialsProvider>), StoreError> {
    let (builder, credentials) = match settings {
        S3Settings::Server { endpoint, region, access_key_id, secret_access_key } => {
            let needs_tls = endpoint.starts_with("https://");
            let roots = if needs_tls { trust(CaBundle::of_this_host()?) } else { TrustStore::empty() };
            let credentials =
                Credentials::new(access_key_id, secret_access_key, None, None, "S3_ACCESS_KEY_ID");
            let credentials = SharedCredentialsProvider::new(credentials);
            let builder = Builder::new()
                .behavior_version(BehaviorVersion::latest())
                .http_client(http_client(roots)?)
                .credentials_provider(credentials.clone())
                .region(Region::new(region))
                .endpoint_url(endpoint)
                .force_path_style(true);
            (builder, Some(credentials))
        }
        S3Settings::Aws => {
            let endpoint = endpoint_of_environment();
            let needs_tls = endpoint.as_deref().is_none_or(|endpoint| endpoint.starts_with("https://"));
            // Whoever gives the credentials may need TLS even where S3 does not.
            let roots = match CaBundle::of_this_host() {
                Err(missing) if needs_tls => return Err(missing.into()),
                Err(_) => TrustStore::empty(),
                Ok(bundle) => trust(bundle),
            };
            let shared =
                aws_config::defaults(BehaviorVersion::latest()).http_client(http_client(roots)?).load().await;
            // S3 tells where a bucket is, wherever one asks.
            let region = shared.region().cloned().unwrap_or_else(|| Region::new("us-east-1"));
            let builder = Builder::from(&shared).region(region);
            let builder =
                if dual_stack(&shared, endpoint.as_deref()) { builder.use_dual_stack(true) } else { builder };
            (builder, shared.credentials_provider())
        }
    };
    // Trying again is our own doing: see `Retries`.
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(Duration::from_secs(5))
        .read_timeout(Duration::from_secs(15))
        .build();
    Ok((builder.retry_config(RetryConfig::disabled()).timeout_config(timeouts).build(), credentials))
}

/// Whether to ask for Amazon's dual-stack endpoint. Upstream always does: a node may have IPv6 only.
/// The SDK refuses it together with an endpoint of one's own.
fn dual_stack(shared: &SdkConfig, endpoint: Option<&str>) -> bool {
    endpoint.is_none() && shared.endpoint_url().is_none() && shared.use_dual_stack().unwrap_or(true)
}

/// The endpoint that the SDK itself will find in the environment.
fn endpoint_of_environment() -> Option<String> {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    set("AWS_ENDPOINT_URL_S3").or_else(|| set("AWS_ENDPOINT_URL"))
}

fn trust(bundle: &CaBundle) -> TrustStore {
    TrustStore::empty().with_pem_certificate(bundle.to_pem())
}

fn http_client(roots: TrustStore) -> Result<SharedHttpClient, StoreError> {
    let tls = TlsContext::builder()
        .with_trust_store(roots)
        .build()
        .map_err(|error| StoreError::BadSettings(format!("TLS cannot be set up: {error}")))?;
    let proxy = proxy(|name| std::env::var(name).ok())?;
    Ok(HttpClientBuilder::new().build_with_connector_fn(move |settings, components| {
        let mut connector = Connector::builder();
        connector.set_connector_settings(settings.cloned());
        connector.set_sleep_impl(components.and_then(|components| components.sleep_impl()));
        connector
            .tls_provider(Provider::rustls(CryptoMode::AwsLc))
            .tls_context(tls.clone())
            .proxy_config(proxy.clone())
            .build_with_resolver(SystemResolver)
    }))
}

/// The proxy for HTTPS. Plain HTTP goes straight: it is the metadata service, or a server nearby.
fn proxy(variable: impl Fn(&str) -> Option<String>) -> Result<ProxyConfig, StoreError> {
    let set = |names: &[&str]| names.iter().filter_map(|name| variable(name)).find(|value| !value.is_empty());
    let Some(url) = set(&["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]) else {
        return Ok(ProxyConfig::disabled());
    };
    let url = if url.contains("://") { url } else { format!("http://{url}") };
    // The URL may hold a password, so it is not shown.
    let proxy = ProxyConfig::https(url.as_str()).map_err(|_| {
        StoreError::BadSettings("HTTPS_PROXY is no URL, as in http://proxy.example.com:3128".into())
    })?;
    Ok(match set(&["no_proxy", "NO_PROXY"]) {
        Some(exceptions) => proxy.no_proxy(exceptions),
        None => proxy,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_proxy_comes_from_the_environment() {
        assert!(proxy(|_| None).unwrap().is_disabled());
        assert!(proxy(|_| Some(String::new())).unwrap().is_disabled());
        for url in
            ["http://proxy.example.com:3128", "proxy.example.com:3128", "http://user:hidden@[fd00::1]:3128/"]
        {
            let variable = |name: &str| (name == "HTTPS_PROXY").then(|| url.to_owned());
            assert!(!proxy(variable).unwrap().is_disabled(), "{url}");
        }
    }

    #[test]
    fn a_proxy_that_is_no_url_is_refused_without_showing_it() {
        let error =
            proxy(|name| (name == "https_proxy").then(|| "http://us er:hidden@proxy".into())).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("HTTPS_PROXY is no URL") && !error.contains("hidden"), "{error}");
    }

    #[test]
    fn amazons_endpoints_are_dual_stack_unless_somebody_says_otherwise() {
        let shared = || SdkConfig::builder().behavior_version(BehaviorVersion::latest());
        assert!(dual_stack(&shared().build(), None));
        assert!(!dual_stack(&shared().build(), Some("https://s3.example.com")));
        assert!(!dual_stack(&shared().endpoint_url("https://s3.example.com").build(), None));
        assert!(!dual_stack(&shared().use_dual_stack(false).build(), None));
    }
}
