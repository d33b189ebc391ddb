//! Configures the AWS SDK for S3: server, credentials and timeouts.

use std::time::Duration;

use aws_config::{BehaviorVersion, SdkConfig};
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{
    Builder, Config, Credentials, Region, ResponseChecksumValidation, SharedCredentialsProvider,
};

use super::super::error::StoreError;
use super::settings::S3Settings;
use kops_agent_net::aws_sdk::{endpoint_of_environment, environment_variable, http_client};
use kops_agent_net::tls::require_ca_bundle_for;

/// Returns the client configuration, which is the base for the client of each region, and the provider of credentials.
pub(super) async fn config(
    settings: S3Settings,
    checksums: ResponseChecksumValidation,
) -> Result<(Config, Option<SharedCredentialsProvider>), StoreError> {
    let (builder, credentials) = match settings {
        S3Settings::Server { endpoint, region, access_key_id, secret_access_key } => {
            require_ca_bundle_for([endpoint.as_str()])?;
            let credentials =
                Credentials::new(access_key_id, secret_access_key, None, None, "S3_ACCESS_KEY_ID");
            let credentials = SharedCredentialsProvider::new(credentials);
            let builder = Builder::new()
                .behavior_version(BehaviorVersion::latest())
                .http_client(http_client()?)
                .credentials_provider(credentials.clone())
                .region(Region::new(region))
                .endpoint_url(endpoint)
                .force_path_style(true);
            (builder, Some(credentials))
        }
        S3Settings::Aws => {
            let endpoint = endpoint_of_environment("S3", environment_variable).map(|(_, url)| url);
            // Amazon's own endpoint needs TLS, and TLS needs a CA bundle. The source of the credentials is not checked here: if it uses
            // TLS, it reports a missing CA bundle itself.
            require_ca_bundle_for([endpoint.as_deref().unwrap_or("https://")])?;
            let shared =
                aws_config::defaults(BehaviorVersion::latest()).http_client(http_client()?).load().await;
            // The default region is us-east-1. Any region works, because each S3 endpoint can report the region of a bucket.
            let region = shared.region().cloned().unwrap_or_else(|| Region::new("us-east-1"));
            let builder = Builder::from(&shared).region(region);
            let builder =
                if dual_stack(&shared, endpoint.as_deref()) { builder.use_dual_stack(true) } else { builder };
            (builder, shared.credentials_provider())
        }
    };
    let builder = builder.response_checksum_validation(checksums);
    // The SDK must not retry, because the agent retries (`Retries`).
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(Duration::from_secs(5))
        .read_timeout(Duration::from_secs(15))
        .build();
    Ok((builder.retry_config(RetryConfig::disabled()).timeout_config(timeouts).build(), credentials))
}

/// Whether to use Amazon's dual-stack endpoint. Upstream always uses it, because a node may have only IPv6. For a custom endpoint, the SDK
/// rejects the dual-stack setting.
fn dual_stack(shared: &SdkConfig, endpoint: Option<&str>) -> bool {
    endpoint.is_none() && shared.endpoint_url().is_none() && shared.use_dual_stack().unwrap_or(true)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn amazons_endpoints_are_dual_stack_unless_configured_otherwise() {
        let shared = || SdkConfig::builder().behavior_version(BehaviorVersion::latest());
        assert!(dual_stack(&shared().build(), None));
        assert!(!dual_stack(&shared().build(), Some("https://s3.example.com")));
        assert!(!dual_stack(&shared().endpoint_url("https://s3.example.com").build(), None));
        assert!(!dual_stack(&shared().use_dual_stack(false).build(), None));
    }
}
