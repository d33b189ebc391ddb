//! The endpoint of an AWS service: from the environment, else Amazon's own.
//!
//! Source: "Service-specific endpoints" of the AWS SDKs' reference; for hosts, each service's "endpoints and quotas".

use aws_config::SdkConfig;

use crate::api::ApiError;
use kops_agent_net::aws_sdk::{
    endpoint_of_environment, environment_variable, refuse_another_role, shared_config,
};
use kops_agent_net::tls::require_ca_bundle_for;

/// The endpoint of a service in a region, and the settings for requests.
pub(super) struct Endpoint {
    /// The URL, with a trailing slash.
    pub url: String,
    /// The credentials and other settings from the environment.
    pub settings: SdkConfig,
}

impl Endpoint {
    /// Like [`Endpoint::new`], for requests of a node about itself. Fails if the environment selects a role that is not the node's role.
    pub(super) async fn of_node(service: &str, region: &str) -> Result<Endpoint, ApiError> {
        refuse_another_role(environment_variable)?;
        Endpoint::new(service, region).await
    }

    /// The endpoint of `service` (`ec2`): `AWS_ENDPOINT_URL_EC2`, else `AWS_ENDPOINT_URL`, else Amazon's.
    pub(super) async fn new(service: &str, region: &str) -> Result<Endpoint, ApiError> {
        let url =
            endpoint_of_environment(&variable_suffix(service), environment_variable).map(|(_, url)| url);
        // Without a URL in the environment, Amazon's endpoint is used, which needs TLS. This check does not cover the source of the
        // credentials: a source that needs a CA bundle reports itself that the CA bundle is missing.
        require_ca_bundle_for([url.as_deref().unwrap_or("https://")])?;
        let settings = shared_config(region).await?;
        let url = url.unwrap_or_else(|| amazon(service, region, settings.use_dual_stack().unwrap_or(false)));
        Ok(Endpoint { url: format!("{}/", url.trim_end_matches('/')), settings })
    }
}

/// The AWS service id, which is the suffix of the environment variable `AWS_ENDPOINT_URL_…`. For Auto Scaling, the id differs from the
/// service's name in host names.
fn variable_suffix(service: &str) -> String {
    match service {
        "autoscaling" => "AUTO_SCALING".into(),
        service => service.to_uppercase(),
    }
}

/// Amazon's own endpoint of a service in a region, by the region's partition.
pub(super) fn amazon(service: &str, region: &str, is_dual_stack: bool) -> String {
    let begins = |prefix: &str| region.starts_with(prefix);
    let suffix = match () {
        () if begins("cn-") && is_dual_stack => "api.amazonwebservices.com.cn",
        () if begins("cn-") => "amazonaws.com.cn",
        () if begins("us-isob-") => "sc2s.sgov.gov",
        () if begins("us-isof-") || begins("eu-isof-") => "csp.hci.ic.gov",
        () if begins("us-iso-") => "c2s.ic.gov",
        () if begins("eu-isoe-") => "cloud.adc-e.uk",
        () if begins("eusc-") => "amazonaws.eu",
        () if is_dual_stack => "api.aws",
        () => "amazonaws.com",
    };
    format!("https://{service}.{region}.{suffix}")
}
