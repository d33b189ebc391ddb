//! The AWS SDK's HTTP client, for whatever the SDK asks on our behalf: files of S3, and credentials.

mod by_proxy;
mod limit;

use aws_config::{BehaviorVersion, SdkConfig};
use aws_sdk_s3::config::{Region, SharedHttpClient};
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use aws_smithy_http_client::{Builder, Connector};
use thiserror::Error;

use crate::dns::SystemResolver;
use crate::proxies::Proxies;
use crate::tls::CaBundle;
use by_proxy::by_proxy;
use limit::limited;

/// The SDK cannot be set up; says why, and what to do.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct SetupError(String);

/// What every AWS tool would find on this machine for a region: settings, and the source of credentials.
///
/// # Errors
/// As [`http_client`].
pub async fn shared_config(region: &str, bundle: Option<&CaBundle>) -> Result<SdkConfig, SetupError> {
    let region = Region::new(region.to_owned());
    let loader = aws_config::defaults(BehaviorVersion::latest()).http_client(http_client(bundle)?);
    Ok(loader.region(region).load().await)
}

/// Refuses by name what upstream's nodeup asks EC2 and Auto Scaling with and this agent does not: another role than the
/// machine's own (`KOPS_AWS_ROLE_ARN`, upup/pkg/fi/nodeup/awsup/aws_cloud.go).
///
/// # Errors
/// If the variable is set.
pub fn refuse_another_role(variable: impl Fn(&str) -> Option<String>) -> Result<(), SetupError> {
    match variable("KOPS_AWS_ROLE_ARN").filter(|role| !role.is_empty()) {
        None => Ok(()),
        Some(role) => Err(SetupError(format!(
            "KOPS_AWS_ROLE_ARN is {role}, and asking AWS in another role is not supported; unset it, and give the \
             rights to the machine's own role"
        ))),
    }
}

/// A client that trusts these certificates, or, where there are none, speaks no TLS. It reads 16 MiB of an answer at most,
/// and 1 MiB of one that is an error.
///
/// # Errors
/// If TLS cannot be set up, or a proxy variable names no proxy.
pub fn http_client(bundle: Option<&CaBundle>) -> Result<SharedHttpClient, SetupError> {
    let roots = bundle
        .map_or_else(TrustStore::empty, |bundle| TrustStore::empty().with_pem_certificate(bundle.to_pem()));
    let tls = TlsContext::builder()
        .with_trust_store(roots)
        .build()
        .map_err(|error| SetupError(format!("TLS cannot be set up: {error}")))?;
    let proxies = Proxies::of_environment().map_err(|error| SetupError(error.to_string()))?;
    Ok(limited(by_proxy(proxies, |proxy| client(&tls, proxy))?))
}

/// A client that sends every request this way.
fn client(tls: &TlsContext, proxy: ProxyConfig) -> SharedHttpClient {
    let tls = tls.clone();
    Builder::new().build_with_connector_fn(move |settings, components| {
        let mut connector = Connector::builder();
        connector.set_connector_settings(settings.cloned());
        connector.set_sleep_impl(components.and_then(|components| components.sleep_impl()));
        connector
            .tls_provider(Provider::rustls(CryptoMode::AwsLc))
            .tls_context(tls.clone())
            .proxy_config(proxy.clone())
            .build_with_resolver(SystemResolver)
    })
}

/// Where the environment says that a service is (`S3`), and by which variable: the SDK's own rule, for requests without
/// it, and where it must be known beforehand.
pub fn endpoint_of_environment(
    service: &str,
    variable: impl Fn(&str) -> Option<String>,
) -> Option<(String, String)> {
    let names = [format!("AWS_ENDPOINT_URL_{service}"), "AWS_ENDPOINT_URL".to_owned()];
    let set = |name: String| {
        let url = variable(&name).filter(|url| !url.is_empty())?;
        Some((name, url))
    };
    names.into_iter().find_map(set)
}

/// A variable of this process' environment.
pub fn environment_variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn another_role_is_refused_by_name() {
        refuse_another_role(|_| None).unwrap();
        refuse_another_role(|_| Some(String::new())).unwrap();
        let error = refuse_another_role(|_| Some("arn:aws:iam::1:role/x".into())).unwrap_err().to_string();
        assert!(error.contains("KOPS_AWS_ROLE_ARN is arn:aws:iam::1:role/x"), "{error}");
    }
}
