//! The AWS SDK's HTTP client, for whatever the SDK asks on our behalf: files of S3, and credentials.

mod own_client;

use aws_config::{BehaviorVersion, SdkConfig};
use aws_sdk_s3::config::{Region, SharedHttpClient};
use thiserror::Error;

use own_client::OwnClient;

/// The SDK cannot be set up; says why, and what to do.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct SetupError(String);

/// What every AWS tool would find on this machine for a region: settings, and the source of credentials.
///
/// # Errors
/// As [`http_client`].
pub async fn shared_config(region: &str) -> Result<SdkConfig, SetupError> {
    let region = Region::new(region.to_owned());
    let loader = aws_config::defaults(BehaviorVersion::latest()).http_client(http_client()?);
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

/// A client that trusts the host's CA bundle; without one it speaks no TLS. It reads 16 MiB of an answer at most, and 1 MiB of one
/// that is an error.
///
/// # Errors
/// If TLS cannot be set up, or a proxy variable names no proxy.
pub fn http_client() -> Result<SharedHttpClient, SetupError> {
    let client = OwnClient::new().map_err(|error| SetupError(error.to_string()))?;
    Ok(SharedHttpClient::new(client))
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
