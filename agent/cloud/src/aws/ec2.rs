//! EC2's query API, for facts that the metadata service does not have.
//!
//! Source: the EC2 API Reference, "Error codes"; for hosts, "Service endpoints".

use std::time::Duration;

#[cfg(any(test, feature = "testing"))]
use aws_sdk_s3::config::Credentials;
use aws_sdk_s3::config::SharedCredentialsProvider;

use super::endpoint::Endpoint;
use super::query::{QueryClient, Service, advice_on_credentials, read_error};
use crate::api::{Api, ApiError, Meaning};

/// The timeout of one request with its response. Some responses describe a thousand machines.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) static SERVICE: Service = Service {
    api: Api { name: "EC2", limited: "account", read: read_error, meaning, advice },
    name: "ec2",
    version: "2016-11-15",
    longest_answer: 64 * 1024 * 1024,
};

fn meaning(_status: u16, code: &str) -> Meaning {
    match code {
        "RequestLimitExceeded" | "Throttling" | "ThrottlingException" | "RequestThrottledException" => {
            Meaning::Throttled
        }
        "UnauthorizedOperation" => Meaning::Forbidden,
        // The code is `InvalidInstanceID.NotFound`, or `InvalidInstanceID.Malformed` for an id that only looks valid.
        code if code.starts_with("InvalidInstanceID.") => Meaning::NotFound,
        _ => Meaning::Refused,
    }
}

fn advice(action: &str, _status: u16, code: &str) -> String {
    match code {
        "UnauthorizedOperation" => format!("; grant this machine's role the permission ec2:{action}"),
        code => advice_on_credentials(code),
    }
}

/// A client for EC2 in one region, with the default AWS credentials.
#[derive(Debug)]
pub struct Ec2(QueryClient);

impl Ec2 {
    /// Creates a client for EC2 in `region`. The endpoint is `AWS_ENDPOINT_URL_EC2`, else `AWS_ENDPOINT_URL`, else Amazon's.
    pub async fn of_region(region: &str) -> Result<Ec2, ApiError> {
        let Endpoint { url, settings } = Endpoint::new(SERVICE.name, region).await?;
        Ec2::new(&url, region, settings.credentials_provider())
    }

    /// Like `of_region`, for requests of a node about itself. Fails if the environment selects a role that is not the node's
    /// role.
    pub async fn of_node(region: &str) -> Result<Ec2, ApiError> {
        let Endpoint { url, settings } = Endpoint::of_node(SERVICE.name, region).await?;
        Ec2::new(&url, region, settings.credentials_provider())
    }

    fn new(
        endpoint: &str,
        region: &str,
        provider: Option<SharedCredentialsProvider>,
    ) -> Result<Ec2, ApiError> {
        Ok(Ec2(QueryClient::new(&SERVICE, endpoint, region, provider)?))
    }

    /// Creates a client for EC2 at `endpoint`, with credentials that a stand-in accepts.
    #[cfg(any(test, feature = "testing"))]
    pub fn for_tests(endpoint: &str) -> Ec2 {
        let credentials = Credentials::new("AKIDEXAMPLE", "secret", None, None, "test");
        let provider = SharedCredentialsProvider::new(credentials);
        Ec2::new(endpoint, "us-test-1", Some(provider)).expect("a client")
    }

    /// Sends one request, and returns EC2's XML document. Parameters have the names of EC2's reference (`NetworkInterfaceId`,
    /// `Filter.1.Value.1`). [`ApiError::may_pass`] says whether to retry after an error.
    pub async fn query(&self, action: &'static str, parameters: &[(&str, &str)]) -> Result<String, ApiError> {
        self.query_within(TIMEOUT, action, parameters).await
    }

    /// Like [`Ec2::query`], with a timeout of the caller's choice.
    pub async fn query_within(
        &self,
        timeout: Duration,
        action: &'static str,
        parameters: &[(&str, &str)],
    ) -> Result<String, ApiError> {
        self.0.query(action, parameters, timeout).await
    }

    /// The error for a response that does not match the request.
    pub(super) fn garbage(&self, action: &'static str, problem: &dyn std::error::Error) -> ApiError {
        self.0.question(action).garbage(200, problem)
    }
}

#[cfg(test)]
pub(super) mod tests;
