//! The HTTP client and settings of the AWS SDK, for all requests of the SDK: files of S3, APIs of AWS, and credentials.

mod own_client;

use aws_config::{BehaviorVersion, SdkConfig};
use aws_sdk_s3::config::{Region, SharedHttpClient};
use thiserror::Error;

use own_client::OwnClient;

/// The SDK cannot be set up. The text says why, and what to do.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct SetupError(String);

/// The SDK's default configuration for a region. Like every AWS tool, the SDK reads its settings and the source of
/// its credentials from this machine.
pub async fn shared_config(region: &str) -> Result<SdkConfig, SetupError> {
    let region = Region::new(region.to_owned());
    let loader = aws_config::defaults(BehaviorVersion::latest()).http_client(http_client()?);
    Ok(loader.region(region).load().await)
}

/// Refuses `KOPS_AWS_ROLE_ARN`, because the agent does not support it. With this variable, upstream's nodeup uses the
/// role in the variable for EC2 and Auto Scaling, and not the machine's role (upup/pkg/fi/nodeup/awsup/aws_cloud.go).
pub fn refuse_another_role(variable: impl Fn(&str) -> Option<String>) -> Result<(), SetupError> {
    match variable("KOPS_AWS_ROLE_ARN").filter(|role| !role.is_empty()) {
        None => Ok(()),
        Some(role) => Err(SetupError(format!(
            "KOPS_AWS_ROLE_ARN is {role}, but kops-agent uses only the machine's own role; unset the \
             variable, and give the rights to the machine's own role"
        ))),
    }
}

/// A client that trusts the host's CA bundle. Without a CA bundle, TLS connections fail. The client reads at most 16 MiB of a
/// successful response, and at most 1 MiB of any other response.
pub fn http_client() -> Result<SharedHttpClient, SetupError> {
    let client = OwnClient::new().map_err(|error| SetupError(error.to_string()))?;
    Ok(SharedHttpClient::new(client))
}

/// The endpoint of a service (`S3`) in the environment: the name of the variable, and the URL. The SDK reads the same
/// variables in the same order. Callers need the endpoint if they send requests without the SDK, or must know the
/// endpoint before a request.
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
