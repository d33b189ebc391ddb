//! EC2's query API, for what the metadata service does not say: an action and its
//! parameters go out as a signed form, and an XML document comes back.
//!
//! The whole SDK of EC2 would be several times larger than this agent.
//!
//! Source: the EC2 API Reference, "Query requests" and "Error codes"; for hosts, "Service endpoints".

use std::time::Duration;

#[cfg(any(test, feature = "testing"))]
use aws_sdk_s3::config::Credentials;
use aws_sdk_s3::config::SharedCredentialsProvider;
use aws_smithy_xml::decode::{Document, try_data};
use reqwest::{Client, Request};
use thiserror::Error;

use super::endpoint::Endpoint;
use super::signing::{Signer, SigningError};
use crate::api::{self, NoAnswer};
use kops_agent_net::aws_sdk::SetupError;
use kops_agent_net::http::{self, HttpError};
use kops_agent_net::tls::NoCaBundle;

/// The version of the API whose actions and documents are spoken.
const VERSION: &str = "2016-11-15";

/// One request with its answer may take this long: some answers describe a thousand machines.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The longest answer that is read, in bytes.
const LONGEST_ANSWER: usize = 64 * 1024 * 1024;

/// Error codes of throttled requests.
const TOO_OFTEN: [&str; 4] =
    ["RequestLimitExceeded", "Throttling", "ThrottlingException", "RequestThrottledException"];

/// Why EC2 did not do what it was asked.
#[derive(Debug, Error)]
pub enum Ec2Error {
    /// The account asks more than EC2 lets it; the same request will succeed later.
    #[error("EC2 puts off {action} (RequestLimitExceeded): this account asks it too much at the moment")]
    RequestLimitExceeded {
        /// What was asked.
        action: String,
    },
    /// EC2 says no.
    #[error("EC2 answers {action} with {status} {code}: {message}{advice}")]
    Refused {
        /// What was asked.
        action: String,
        /// The HTTP status.
        status: u16,
        /// EC2's name of the error (`InvalidInstanceID.NotFound`).
        code: String,
        /// EC2's explanation.
        message: String,
        /// What to do, if we know it; begins with punctuation.
        advice: String,
    },
    /// EC2 has trouble of its own, or something between answers in its place.
    #[error("{endpoint} answers {action} with {status}, and not as EC2 does")]
    Unusable {
        /// What was asked.
        action: String,
        /// Where.
        endpoint: String,
        /// The HTTP status.
        status: u16,
    },
    /// No answer. Whether EC2 has done what it was asked is not known.
    #[error("cannot ask {endpoint} for {action}: {cause}; check the network, DNS and proxy")]
    Unreachable {
        /// What was asked.
        action: String,
        /// Where.
        endpoint: String,
        /// What failed.
        cause: String,
    },
    /// There are no credentials.
    #[error(
        "there are no credentials to ask EC2 with: {0}; give the instance a role, or set AWS_ACCESS_KEY_ID and \
         AWS_SECRET_ACCESS_KEY"
    )]
    NoCredentials(String),
    /// The request cannot be signed.
    #[error("cannot sign a request to {endpoint}: {cause}")]
    NotSigned {
        /// Where it was to go.
        endpoint: String,
        /// Why.
        cause: String,
    },
    /// EC2 needs TLS, and this host has no certificate authorities.
    #[error(transparent)]
    NoCaBundle(#[from] NoCaBundle),
    /// Nothing can be asked.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// No credentials can be asked for.
    #[error("the environment's settings of AWS are wrong: {0}")]
    Settings(#[from] SetupError),
}

impl Ec2Error {
    /// Whether the same request may succeed later. Where it is one that does more when made twice, look first
    /// whether the earlier one was carried out.
    pub fn is_passing(&self) -> bool {
        match self {
            Ec2Error::RequestLimitExceeded { .. } | Ec2Error::Unreachable { .. } => true,
            // A role that was just given to an instance takes a few seconds to show up.
            Ec2Error::NoCredentials(_) => true,
            Ec2Error::Refused { status, .. } | Ec2Error::Unusable { status, .. } => *status >= 500,
            Ec2Error::NotSigned { .. }
            | Ec2Error::NoCaBundle(_)
            | Ec2Error::Http(_)
            | Ec2Error::Settings(_) => false,
        }
    }
}

/// EC2 in one region, asked with the credentials that every AWS tool would find.
#[derive(Debug)]
pub struct Ec2 {
    client: Client,
    endpoint: String,
    signer: Signer,
}

impl Ec2 {
    /// EC2 of a region: where `AWS_ENDPOINT_URL_EC2` or `AWS_ENDPOINT_URL` says, else at Amazon's endpoint.
    ///
    /// # Errors
    /// If this host has no certificate authorities, or a proxy is no URL.
    pub async fn of_region(region: &str) -> Result<Ec2, Ec2Error> {
        let Endpoint { url, settings } = Endpoint::of("ec2", region).await?;
        Ec2::new(url, region, settings.credentials_provider())
    }

    /// The same, for what a node asks of itself.
    ///
    /// # Errors
    /// As there; and if the environment has it ask in another role than its own.
    pub async fn of_node(region: &str) -> Result<Ec2, Ec2Error> {
        let Endpoint { url, settings } = Endpoint::of_node("ec2", region).await?;
        Ec2::new(url, region, settings.credentials_provider())
    }

    fn new(
        endpoint: String,
        region: &str,
        provider: Option<SharedCredentialsProvider>,
    ) -> Result<Ec2, Ec2Error> {
        Ok(Ec2 {
            client: http::client()?,
            endpoint: format!("{}/", endpoint.trim_end_matches('/')),
            signer: Signer::of("ec2", region, provider),
        })
    }

    /// EC2 at an endpoint, with credentials that a stand-in takes.
    #[cfg(any(test, feature = "testing"))]
    pub fn for_tests(endpoint: &str) -> Ec2 {
        let credentials = Credentials::new("AKIDEXAMPLE", "secret", None, None, "test");
        let provider = SharedCredentialsProvider::new(credentials);
        Ec2::new(endpoint.to_owned(), "us-test-1", Some(provider)).expect("a client")
    }

    /// Asks once, and gives the document that EC2 answers with. Parameters are named as EC2's reference does
    /// (`NetworkInterfaceId`, `Filter.1.Value.1`).
    ///
    /// # Errors
    /// If EC2 cannot be asked, or refuses; [`Ec2Error::is_passing`] says whether to try again.
    pub async fn query(&self, action: &str, parameters: &[(&str, &str)]) -> Result<String, Ec2Error> {
        self.query_within(TIMEOUT, action, parameters).await
    }

    /// As [`Ec2::query`], within another timeout.
    ///
    /// # Errors
    /// As there.
    pub async fn query_within(
        &self,
        timeout: Duration,
        action: &str,
        parameters: &[(&str, &str)],
    ) -> Result<String, Ec2Error> {
        let form = form_urlencoded::Serializer::new(String::new())
            .append_pair("Action", action)
            .append_pair("Version", VERSION)
            .extend_pairs(parameters)
            .finish();
        let request = self.signed(form, timeout).await?;
        let unusable = |status| Ec2Error::Unusable {
            action: action.to_owned(),
            endpoint: self.endpoint.clone(),
            status,
        };
        let asked = api::ask(&self.client, request, LONGEST_ANSWER).await;
        let answer = asked.map_err(|none| match none {
            NoAnswer::Unreachable(cause) => {
                Ec2Error::Unreachable { action: action.to_owned(), endpoint: self.endpoint.clone(), cause }
            }
            NoAnswer::TooLong { status } => unusable(status),
        })?;
        let status = answer.status;
        let document = answer.text().ok_or_else(|| unusable(status))?;
        match status {
            200 => Ok(document),
            _ => Err(self.refusal(action, status, &document)),
        }
    }

    async fn signed(&self, form: String, timeout: Duration) -> Result<Request, Ec2Error> {
        self.signer.post(&self.client, &self.endpoint, form, timeout).await.map_err(|error| match error {
            SigningError::NoCredentials(cause) => Ec2Error::NoCredentials(cause),
            SigningError::NotSigned(cause) => Ec2Error::NotSigned { endpoint: self.endpoint.clone(), cause },
        })
    }

    fn refusal(&self, action: &str, status: u16, document: &str) -> Ec2Error {
        let action = action.to_owned();
        let Some(code) = text_of(document, "Code") else {
            return Ec2Error::Unusable { action, endpoint: self.endpoint.clone(), status };
        };
        if TOO_OFTEN.contains(&code.as_str()) {
            return Ec2Error::RequestLimitExceeded { action };
        }
        let advice = match code.as_str() {
            "UnauthorizedOperation" => format!("; let this machine's role do ec2:{action}"),
            "AuthFailure" | "InvalidClientTokenId" | "SignatureDoesNotMatch" => {
                "; check the access key and its secret, and this machine's clock".into()
            }
            "RequestExpired" => "; set this machine's clock (is chrony or timesyncd running?)".into(),
            _ => String::new(),
        };
        let message = text_of(document, "Message").unwrap_or_default();
        Ec2Error::Refused { action, status, code, message, advice }
    }
}

/// The text of the first element of this name, at whatever depth; `None` where there is none, or no XML.
pub fn text_of(document: &str, name: &str) -> Option<String> {
    let mut document = Document::new(document);
    while let Some(element) = document.next_start_element() {
        if element.local() == name {
            let text = try_data(&mut document.scoped_to(element)).ok()?;
            return Some(text.trim().to_owned());
        }
    }
    None
}

#[cfg(test)]
pub(super) mod tests;
