//! Signs requests to an AWS service with this machine's credentials.

use std::time::{Duration, SystemTime};

use aws_sdk_s3::config::{Credentials, ProvideCredentials, SharedCredentialsProvider};
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use kops_agent_net::http;
use reqwest::header::{CONTENT_TYPE, HeaderName};
use reqwest::{Client, Request};
use tokio::sync::Mutex;

use crate::api::{ApiError, Question};

const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";
/// Advice if there are no credentials.
const ADVICE: &str = "give the instance a role, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
/// Credentials are renewed this long before they expire.
const RENEWED_BEFORE: Duration = Duration::from_secs(5 * 60);

/// Signs requests to one service in one region.
#[derive(Debug)]
pub(super) struct Signer {
    service: &'static str,
    region: String,
    provider: Option<SharedCredentialsProvider>,
    credentials: Mutex<Option<Credentials>>,
}

impl Signer {
    pub(super) fn new(
        service: &'static str,
        region: &str,
        provider: Option<SharedCredentialsProvider>,
    ) -> Signer {
        Signer { service, region: region.to_owned(), provider, credentials: Mutex::default() }
    }

    /// Builds a POST request to the question's endpoint with the body `form`, and signs the request.
    pub(super) async fn post(
        &self,
        client: &Client,
        question: Question<'_>,
        form: String,
        timeout: Duration,
    ) -> Result<Request, ApiError> {
        let url = question.endpoint;
        let not_signed = |cause: &dyn std::error::Error| ApiError::NoRequest {
            endpoint: url.to_owned(),
            cause: format!("the request cannot be signed: {cause}"),
        };
        let no_credentials = |cause| ApiError::NoCredentials {
            api: question.api.name,
            cause: format!("{cause}; {ADVICE}"),
            // A role that was just attached to an instance takes a few seconds to appear, so a retry may help.
            may_pass: true,
        };
        let identity = self.credentials().await.map_err(no_credentials)?.into();
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name(self.service)
            .time(SystemTime::now())
            .settings(SigningSettings::default())
            .build()
            .map_err(|error| not_signed(&error))?
            .into();
        let headers = [(CONTENT_TYPE.as_str(), FORM)];
        let body = SignableBody::Bytes(form.as_bytes());
        let signable = SignableRequest::new("POST", url, headers.into_iter(), body)
            .map_err(|error| not_signed(&error))?;
        let (instructions, _signature) =
            sign(signable, &parameters).map_err(|error| not_signed(&error))?.into_parts();
        let mut request = client
            .post(url)
            .timeout(timeout)
            .header(CONTENT_TYPE, FORM)
            .body(form)
            .build()
            .map_err(|error| not_signed(&error))?;
        for (name, value) in instructions.headers() {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| not_signed(&error))?;
            request.headers_mut().insert(name, http::secret(value).map_err(|error| not_signed(&error))?);
        }
        Ok(request)
    }

    /// Returns credentials that are valid for longer than `RENEWED_BEFORE`, or the reason why there are none. The
    /// credentials are cached, so that few requests need the metadata service.
    async fn credentials(&self) -> Result<Credentials, String> {
        let mut remembered = self.credentials.lock().await;
        let soon = SystemTime::now() + RENEWED_BEFORE;
        if let Some(known) = remembered.as_ref().filter(|known| known.expiry().is_none_or(|end| end > soon)) {
            return Ok(known.clone());
        }
        let Some(provider) = &self.provider else {
            return Err("no source of credentials is configured".into());
        };
        let fresh = provider.provide_credentials().await.map_err(|error| error.to_string())?;
        Ok(remembered.insert(fresh).clone())
    }
}
