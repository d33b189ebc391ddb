//! STS, which names the role behind a signature: it is sent requests that machines have signed, and one of our own.
//!
//! Source: the STS API Reference, `GetCallerIdentity`.

use std::time::Duration;

#[cfg(any(test, feature = "testing"))]
use aws_sdk_s3::config::Credentials;
use aws_sdk_s3::config::SharedCredentialsProvider;
use aws_smithy_xml::decode::Document;
use kops_agent_plan::bootstrap::aws_token::{Caller, STS_BODY, STS_SERVICE, StsCall};
use reqwest::{Client, Request, Url};
use thiserror::Error;
use tokio::sync::OnceCell;

use super::ec2::{Ec2Error, text_of};
use super::endpoint::Endpoint;
use super::signing::{Signer, SigningError};
use crate::api::{self, NoAnswer};
use crate::calls::{CloudCalls, Outcome};
use kops_agent_net::http::{client_with, innermost_cause};
use kops_agent_net::tls;

const ACTION: &str = "GetCallerIdentity";
/// One request with its answer may take this long. A machine that asks waits 15 seconds, for all of it.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The longest answer that is read, in bytes. A good one has some 500.
const LONGEST_ANSWER: usize = 16 * 1024;

/// Why STS does not tell.
#[derive(Debug, Error)]
pub enum StsError {
    /// The signature is not good.
    #[error("STS does not know who signed: {status} {code}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// STS' name of the error (`SignatureDoesNotMatch`).
        code: String,
    },
    /// STS has trouble of its own, asks to be asked less, or something between answers in its place.
    #[error("{endpoint} answers {status}, and not as STS does")]
    Unusable {
        /// Where.
        endpoint: String,
        /// The HTTP status.
        status: u16,
    },
    /// No answer.
    #[error("cannot ask {endpoint}: {cause}; check the network, DNS and proxy")]
    Unreachable {
        /// Where.
        endpoint: String,
        /// What failed.
        cause: String,
    },
    /// There are no credentials, which this machine itself needs.
    #[error("asking STS who kops-controller is: {0}; give the instance a role")]
    NotSigned(#[from] SigningError),
}

/// STS of a region.
#[derive(Debug)]
pub struct Sts {
    client: Client,
    endpoint: Url,
    host: String,
    signer: Signer,
    own: OnceCell<Caller>,
    calls: CloudCalls,
}

impl Sts {
    /// STS of a region: where `AWS_ENDPOINT_URL_STS` or `AWS_ENDPOINT_URL` says, else at Amazon's endpoint.
    ///
    /// # Errors
    /// If the endpoint is no URL, this host has no certificate authorities, or a proxy is no URL.
    pub async fn of_region(region: &str, calls: CloudCalls) -> Result<Sts, Ec2Error> {
        let Endpoint { url, settings } = Endpoint::of(STS_SERVICE, region).await?;
        Sts::new(&url, region, settings.credentials_provider(), calls)
    }

    fn new(
        url: &str,
        region: &str,
        provider: Option<SharedCredentialsProvider>,
        calls: CloudCalls,
    ) -> Result<Sts, Ec2Error> {
        let bad = |cause: String| Ec2Error::NotSigned { endpoint: url.to_owned(), cause };
        let endpoint = Url::parse(url).map_err(|error| bad(error.to_string()))?;
        let host = match (endpoint.host_str(), endpoint.port()) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            (Some(host), None) => host.to_owned(),
            (None, _) => return Err(bad("it has no host".into())),
        };
        if endpoint.path() != "/" {
            return Err(bad("it has a path, and machines sign none".into()));
        }
        let tls = tls::client_config().map_err(|error| bad(error.to_string()))?;
        let signer = Signer::of(STS_SERVICE, region, provider);
        // It follows no redirect: what a machine has signed is for STS only.
        Ok(Sts { client: client_with(tls)?, endpoint, host, signer, own: OnceCell::new(), calls })
    }

    /// STS at an endpoint, with credentials that a stand-in knows.
    #[cfg(any(test, feature = "testing"))]
    pub fn for_tests(url: &str, region: &str, access_key: &str, secret: &str) -> Sts {
        let credentials = Credentials::new(access_key, secret, None, None, "test");
        let provider = SharedCredentialsProvider::new(credentials);
        Sts::new(url, region, Some(provider), CloudCalls::default()).expect("an endpoint")
    }

    /// Its host, with its port where that is not the scheme's own.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The role of this process, asked once.
    ///
    /// # Errors
    /// If STS does not tell.
    pub async fn own(&self) -> Result<&Caller, StsError> {
        self.own
            .get_or_try_init(|| async {
                let request =
                    self.signer.post(&self.client, self.endpoint.as_str(), STS_BODY.into(), TIMEOUT).await?;
                self.ask(request).await
            })
            .await
    }

    /// The caller that signed a request.
    ///
    /// # Errors
    /// If the signature is not good, or STS does not tell.
    pub async fn caller(&self, call: &StsCall) -> Result<Caller, StsError> {
        let mut url = self.endpoint.clone();
        url.set_query(call.query.as_deref());
        let request = match call.query {
            Some(_) => self.client.get(url),
            None => self.client.post(url).body(STS_BODY),
        };
        let headers = call.headers.iter();
        let request = headers.fold(request, |request, (name, value)| request.header(*name, value));
        let request =
            request.timeout(TIMEOUT).build().map_err(|error| self.unreachable(innermost_cause(error)))?;
        self.ask(request).await
    }

    async fn ask(&self, request: Request) -> Result<Caller, StsError> {
        let told = self.told(request).await;
        let outcome = match &told {
            Ok(_) => Outcome::Success,
            Err(StsError::Unusable { status: 429, .. }) => Outcome::Throttled,
            Err(_) => Outcome::Error,
        };
        self.calls.count(STS_SERVICE, ACTION, outcome);
        told
    }

    async fn told(&self, request: Request) -> Result<Caller, StsError> {
        let unusable = |status| StsError::Unusable { endpoint: self.endpoint.to_string(), status };
        let asked = api::ask(&self.client, request, LONGEST_ANSWER).await;
        let answer = asked.map_err(|none| match none {
            NoAnswer::Unreachable(cause) => self.unreachable(cause),
            NoAnswer::TooLong { status } => unusable(status),
        })?;
        let status = answer.status;
        let document = answer.text().ok_or_else(|| unusable(status))?;
        match (status, text_of(&document, "Code")) {
            (200, _) => read(&document).ok_or(unusable(status)),
            (_, Some(code)) if code == "Throttling" => Err(unusable(429)),
            (400..=428 | 431..=499, Some(code)) => {
                let code = code.chars().filter(char::is_ascii_alphanumeric).take(64).collect();
                Err(StsError::Refused { status, code })
            }
            _ => Err(unusable(status)),
        }
    }

    fn unreachable(&self, cause: String) -> StsError {
        StsError::Unreachable { endpoint: self.endpoint.to_string(), cause }
    }
}

fn read(document: &str) -> Option<Caller> {
    let mut parsed = Document::new(document);
    let root = parsed.root_element().ok()?;
    if !root.start_el().matches("GetCallerIdentityResponse") {
        return None;
    }
    let text = |name| text_of(document, name).filter(|text| !text.is_empty());
    Some(Caller { arn: text("Arn")?, user_id: text("UserId")?, account: text("Account")? })
}
