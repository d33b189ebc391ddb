//! Requests to a service of AWS that are signed with this machine's credentials.

use std::time::{Duration, SystemTime};

use aws_sdk_s3::config::{Credentials, ProvideCredentials, SharedCredentialsProvider};
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use reqwest::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Client, Request};
use thiserror::Error;
use tokio::sync::Mutex;

const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";
/// Credentials that end sooner than this are asked for anew.
const RENEWED_BEFORE: Duration = Duration::from_secs(5 * 60);

/// Why a request is not signed.
#[derive(Debug, Error)]
pub enum SigningError {
    /// There are no credentials.
    #[error("there are no credentials: {0}")]
    NoCredentials(String),
    /// It cannot be.
    #[error("it cannot be signed: {0}")]
    NotSigned(String),
}

/// Signs requests to one service in one region.
#[derive(Debug)]
pub(super) struct Signer {
    service: &'static str,
    region: String,
    provider: Option<SharedCredentialsProvider>,
    credentials: Mutex<Option<Credentials>>,
}

impl Signer {
    /// Signs with what this provider gives.
    pub(super) fn of(
        service: &'static str,
        region: &str,
        provider: Option<SharedCredentialsProvider>,
    ) -> Signer {
        Signer { service, region: region.to_owned(), provider, credentials: Mutex::default() }
    }

    /// A form to be posted to a URL, signed now.
    ///
    /// # Errors
    /// If there are no credentials, or the request cannot be made.
    pub(super) async fn post(
        &self,
        client: &Client,
        url: &str,
        form: String,
        timeout: Duration,
    ) -> Result<Request, SigningError> {
        let not_signed = |cause: &dyn std::error::Error| SigningError::NotSigned(cause.to_string());
        let identity = self.credentials().await?.into();
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
            let mut value = HeaderValue::from_str(value).map_err(|error| not_signed(&error))?;
            value.set_sensitive(true);
            request.headers_mut().insert(name, value);
        }
        Ok(request)
    }

    /// Credentials that are good for a while yet. They are remembered: a role's are asked of the metadata service.
    async fn credentials(&self) -> Result<Credentials, SigningError> {
        let mut remembered = self.credentials.lock().await;
        let soon = SystemTime::now() + RENEWED_BEFORE;
        if let Some(known) = remembered.as_ref().filter(|known| known.expiry().is_none_or(|end| end > soon)) {
            return Ok(known.clone());
        }
        let Some(provider) = &self.provider else {
            return Err(SigningError::NoCredentials("nothing is set that could give any".into()));
        };
        let fresh = provider
            .provide_credentials()
            .await
            .map_err(|error| SigningError::NoCredentials(error.to_string()))?;
        Ok(remembered.insert(fresh).clone())
    }
}
