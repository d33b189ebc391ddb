//! Where a service of AWS is asked: where the environment says, else at Amazon's own endpoint.
//!
//! Source: "Service-specific endpoints" of the AWS SDKs' reference; for hosts, each service's "endpoints and quotas".

use aws_config::SdkConfig;

use crate::api::ApiError;
use kops_agent_net::aws_sdk::{
    endpoint_of_environment, environment_variable, refuse_another_role, shared_config,
};
use kops_agent_net::tls::require_ca_bundle_for;

/// A service in a region, and how it is asked.
pub(super) struct Endpoint {
    /// Its URL, with a slash at its end.
    pub url: String,
    /// The credentials, and more settings of the environment.
    pub settings: SdkConfig,
}

impl Endpoint {
    /// As [`Endpoint::of`], for what a node asks of itself.
    ///
    /// # Errors
    /// As there; and if it is to ask in another role than its own.
    pub(super) async fn of_node(service: &str, region: &str) -> Result<Endpoint, ApiError> {
        refuse_another_role(environment_variable)?;
        Endpoint::of(service, region).await
    }

    /// That of `service` (`ec2`): where `AWS_ENDPOINT_URL_EC2` or `AWS_ENDPOINT_URL` says, else at Amazon's.
    ///
    /// # Errors
    /// If this host has no certificate authorities, or a proxy is no URL.
    pub(super) async fn of(service: &str, region: &str) -> Result<Endpoint, ApiError> {
        let url =
            endpoint_of_environment(&variable_suffix(service), environment_variable).map(|(_, url)| url);
        // Amazon's own endpoint needs TLS. So may the source of credentials, which says so itself.
        require_ca_bundle_for([url.as_deref().unwrap_or("https://")])?;
        let settings = shared_config(region).await?;
        let url = url.unwrap_or_else(|| amazon(service, region, settings.use_dual_stack().unwrap_or(false)));
        Ok(Endpoint { url: format!("{}/", url.trim_end_matches('/')), settings })
    }
}

/// What the variable with a service's endpoint ends in: its id, which for one is not the name in its host.
fn variable_suffix(service: &str) -> String {
    match service {
        "autoscaling" => "AUTO_SCALING".into(),
        service => service.to_uppercase(),
    }
}

/// Amazon's own endpoint of a service in a region, by the partition that the region is of.
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
