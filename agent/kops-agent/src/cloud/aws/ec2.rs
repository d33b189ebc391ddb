//! EC2's query API, for whoever has to ask more of it than the metadata service says: an action and its
//! parameters go out as a signed form, and an XML document comes back.
//!
//! The whole SDK of EC2 would be several times larger than this agent.
//!
//! Source: the EC2 API Reference, "Query requests" and "Error codes"; for hosts, "Service endpoints".

use std::time::{Duration, SystemTime};

use aws_config::{BehaviorVersion, SdkConfig};
use aws_sdk_s3::config::{Credentials, ProvideCredentials, Region, SharedCredentialsProvider};
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use aws_smithy_xml::decode::{Document, try_data};
use reqwest::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Client, Request, Response};
use thiserror::Error;
use tokio::sync::Mutex;

use crate::aws_sdk::{SetupError, http_client};
use crate::http::{self, HttpError, innermost_cause};
use crate::tls::{CaBundle, NoCaBundle};

/// The version of the API whose actions and documents are spoken.
const VERSION: &str = "2016-11-15";
const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";

/// One request with its answer may take this long: some answers describe a thousand machines.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest answer that is read, in bytes.
const LONGEST_ANSWER: usize = 64 * 1024 * 1024;
/// Credentials that end sooner than this are asked for anew.
const RENEWED_BEFORE: Duration = Duration::from_secs(5 * 60);

/// Error codes of whoever asks too often.
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
    /// There is nobody to ask as.
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
    /// EC2 needs TLS, which needs somebody to trust.
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
    region: String,
    provider: Option<SharedCredentialsProvider>,
    credentials: Mutex<Option<Credentials>>,
}

impl Ec2 {
    /// EC2 of a region: where `AWS_ENDPOINT_URL_EC2` or `AWS_ENDPOINT_URL` says, else at Amazon's endpoint.
    ///
    /// # Errors
    /// If this host trusts nobody, or a proxy is no URL.
    pub async fn of_region(region: &str) -> Result<Ec2, Ec2Error> {
        let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let endpoint = set("AWS_ENDPOINT_URL_EC2").or_else(|| set("AWS_ENDPOINT_URL"));
        // Whoever gives the credentials may need TLS even where EC2 does not.
        let bundle = match CaBundle::of_this_host() {
            Err(missing) if endpoint.as_deref().is_none_or(|url| url.starts_with("https://")) => {
                return Err(missing.into());
            }
            bundle => bundle.ok(),
        };
        let shared = aws_config::defaults(BehaviorVersion::latest())
            .http_client(http_client(bundle)?)
            .region(Region::new(region.to_owned()))
            .load()
            .await;
        Ec2::new(endpoint.unwrap_or_else(|| amazon(region, &shared)), region, shared.credentials_provider())
    }

    fn new(
        endpoint: String,
        region: &str,
        provider: Option<SharedCredentialsProvider>,
    ) -> Result<Ec2, Ec2Error> {
        Ok(Ec2 {
            client: http::client()?,
            endpoint: format!("{}/", endpoint.trim_end_matches('/')),
            region: region.to_owned(),
            provider,
            credentials: Mutex::default(),
        })
    }

    /// EC2 at an endpoint, as somebody whom a stand-in believes.
    #[cfg(test)]
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
        let form = form_urlencoded::Serializer::new(String::new())
            .append_pair("Action", action)
            .append_pair("Version", VERSION)
            .extend_pairs(parameters)
            .finish();
        let request = self.signed(form).await?;
        let answer = self.client.execute(request).await.map_err(|error| self.unreachable(action, error))?;
        let status = answer.status().as_u16();
        let document = self.document(action, answer).await?;
        match status {
            200 => Ok(document),
            _ => Err(self.refusal(action, status, &document)),
        }
    }

    async fn signed(&self, form: String) -> Result<Request, Ec2Error> {
        let not_signed = |cause: &dyn std::error::Error| Ec2Error::NotSigned {
            endpoint: self.endpoint.clone(),
            cause: cause.to_string(),
        };
        let identity = self.credentials().await?.into();
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name("ec2")
            .time(SystemTime::now())
            .settings(SigningSettings::default())
            .build()
            .map_err(|error| not_signed(&error))?
            .into();
        let headers = [(CONTENT_TYPE.as_str(), FORM)];
        let body = SignableBody::Bytes(form.as_bytes());
        let signable = SignableRequest::new("POST", &self.endpoint, headers.into_iter(), body)
            .map_err(|error| not_signed(&error))?;
        let (instructions, _signature) =
            sign(signable, &parameters).map_err(|error| not_signed(&error))?.into_parts();
        let mut request = self
            .client
            .post(&self.endpoint)
            .timeout(PATIENCE)
            .header(CONTENT_TYPE, FORM)
            .body(form)
            .build()
            .map_err(|error| not_signed(&error))?;
        for (name, value) in instructions.headers() {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| not_signed(&error))?;
            let mut value = HeaderValue::from_str(value).map_err(|error| not_signed(&error))?;
            value.set_sensitive(true);
            request.headers_mut().insert(name, value);
        }
        Ok(request)
    }

    /// Credentials that are good for a while yet. They are remembered: a role's are asked of the metadata service.
    async fn credentials(&self) -> Result<Credentials, Ec2Error> {
        let mut remembered = self.credentials.lock().await;
        let soon = SystemTime::now() + RENEWED_BEFORE;
        if let Some(known) = remembered.as_ref().filter(|known| known.expiry().is_none_or(|end| end > soon)) {
            return Ok(known.clone());
        }
        let Some(provider) = &self.provider else {
            return Err(Ec2Error::NoCredentials("nothing is set that could give any".into()));
        };
        let fresh = provider
            .provide_credentials()
            .await
            .map_err(|error| Ec2Error::NoCredentials(error.to_string()))?;
        Ok(remembered.insert(fresh).clone())
    }

    async fn document(&self, action: &str, mut answer: Response) -> Result<String, Ec2Error> {
        let unusable = |status: u16| Ec2Error::Unusable {
            action: action.to_owned(),
            endpoint: self.endpoint.clone(),
            status,
        };
        let status = answer.status().as_u16();
        let mut bytes = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(|error| self.unreachable(action, error))? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > LONGEST_ANSWER {
                return Err(unusable(status));
            }
        }
        String::from_utf8(bytes).map_err(|_| unusable(status))
    }

    fn unreachable(&self, action: &str, error: reqwest::Error) -> Ec2Error {
        let cause = match error.is_timeout() {
            true => "it takes too long".to_owned(),
            false => innermost_cause(error),
        };
        Ec2Error::Unreachable { action: action.to_owned(), endpoint: self.endpoint.clone(), cause }
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

/// Amazon's own endpoint of a region, by the partition that the region is of.
fn amazon(region: &str, shared: &SdkConfig) -> String {
    let begins = |prefix: &str| region.starts_with(prefix);
    let is_dual_stack = shared.use_dual_stack().unwrap_or(false);
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
    format!("https://ec2.{region}.{suffix}")
}

#[cfg(test)]
pub(super) mod tests;
