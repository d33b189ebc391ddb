//! The HTTP clients: one for downloads, one for the AWS SDK, with the same TLS and the same resolver.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use aws_smithy_runtime_api::client::dns::{DnsFuture, ResolveDns, ResolveDnsError};
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use hickory_resolver::TokioResolver;

use crate::tls;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(10);

/// The client for downloads. Proxies are taken from the environment.
///
/// # Errors
/// If the machine's resolver or its CA bundle cannot be read, other than by having no bundle: without
/// one the client still speaks plain HTTP, and an HTTPS download says what is missing.
pub fn client() -> Result<reqwest::Client> {
    let builder = reqwest::Client::builder()
        .user_agent(concat!("kops-agent/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT)
        .tls_backend_preconfigured(tls::client_config_or_trusting_nobody());
    builder.build().context("setting up the HTTP client")
}

/// The client for the AWS SDK.
///
/// # Errors
/// If TLS cannot be set up or the machine's resolver configuration cannot be read.
pub fn aws_client() -> Result<SharedHttpClient> {
    let trust = TrustStore::empty().with_native_roots(tls::roots().is_ok());
    let context =
        TlsContext::builder().with_trust_store(trust).build().context("setting up TLS for the AWS client")?;
    Ok(aws_smithy_http_client::Builder::new()
        .tls_provider(Provider::Rustls(CryptoMode::AwsLc))
        .tls_context(context)
        .build_with_resolver(Resolver::new()?))
}

/// Names resolved by our own resolver: the C library's, in a static binary, loads the host's plugins.
#[derive(Clone, Debug)]
struct Resolver(Arc<TokioResolver>);

impl Resolver {
    fn new() -> Result<Resolver> {
        let builder = TokioResolver::builder_tokio().context("reading /etc/resolv.conf")?;
        Ok(Resolver(Arc::new(builder.build().context("setting up name resolution")?)))
    }
}

impl ResolveDns for Resolver {
    fn resolve_dns<'a>(&'a self, name: &'a str) -> DnsFuture<'a> {
        DnsFuture::new(async move {
            let addresses = self.0.lookup_ip(name).await.map_err(ResolveDnsError::new)?;
            Ok(addresses.iter().collect())
        })
    }
}
